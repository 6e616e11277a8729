"""A small toolbox that lacks what it says it has, and the real one, for tests of both."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from tare.hosts import LocalHost
from tare.images.cache import default_cache
from tare.images.toolbox import tree as trees
from tare.images.toolbox.recipe import ABOUT
from tare.images.toolbox.toolbox import Toolbox, prepare_toolbox

KEY = "5" * 64
ABOUT_IT = {
    "kind": "base",
    "key": KEY,
    "programs": {"gnugo": {"path": "/usr/games/gnugo", "package": "gnugo"}},
    "expected": {},
}
STARTS = {"argv": ["sh", "-c", "exit 9"]}
"""A step that fails: if it started, its failure would hide the missing program."""
LACKING = {"prepare": [STARTS], "steps": [{"argv": ["gnugo"]}]}
BUSYBOX = shutil.which("busybox")


def make_small(tree: Path) -> Path:
    """Make the tree of a toolbox with a shell, where there is one, and nothing else."""
    (tree / "usr/bin").mkdir(parents=True)
    (tree / "usr/lib").mkdir()
    trees.settle(tree)
    if BUSYBOX is not None:
        shutil.copy(BUSYBOX, tree / "usr/bin/sh")
    (tree / ABOUT).parent.mkdir(parents=True, exist_ok=True)
    (tree / ABOUT).write_text(json.dumps(ABOUT_IT))
    trees.make_uniform(tree)
    return tree


async def real_toolbox(agent: Path) -> Toolbox:
    """Return the toolbox that studies use: of the cache, or built now."""
    return await prepare_toolbox(
        LocalHost(agent), "base", agent=agent, cache=default_cache(), say=print
    )
