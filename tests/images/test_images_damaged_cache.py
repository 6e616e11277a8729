"""Cached files are verified before use: damaged ones are made again and reported."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tare.hosts import Ledger, LocalHost
from tare.images import cache as store
from tare.images.ship import copy_to_host
from tare.images.toolbox.toolbox import IMAGE, TREE, cached_toolbox, publish_toolbox
from tare.images.toolbox.tree import make_uniform
from tare.platforms.contract import Context
from tare.platforms.oci.bundle import AGENT_INSIDE, DIRECTORIES
from tare.platforms.oci.runtime import root_file_system


class Far(LocalHost):
    """This computer, reached as if it were another, with a cache of its own."""

    local = False

    def __init__(self, agent: Path) -> None:
        super().__init__(agent)
        self.name = "far"


def _flipped(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    mode, about = file.stat().st_mode, file.stat()
    file.write_bytes(content)
    file.chmod(mode)
    os.utime(file, ns=(about.st_atime_ns, about.st_mtime_ns))


def _emptied(file: Path) -> None:
    file.write_bytes(b"")


def _removed(file: Path) -> None:
    file.unlink()


def _not_executable(file: Path) -> None:
    file.chmod(0o644)


def _linked(file: Path) -> None:
    file.rename(file.with_name("other"))
    file.symlink_to(file.with_name("other"))


@pytest.fixture
def context(agent_program: Path, tmp_path: Path) -> Context:
    return Context(
        host=LocalHost(agent_program),
        ledger=Ledger(tmp_path / "ledger.jsonl"),
        cache=tmp_path / "cache",
        agent=agent_program,
    )


@pytest.mark.parametrize("damage", [_flipped, _emptied, _removed, _not_executable, _linked])
async def test_a_damaged_agent_of_containers_is_replaced_and_reported(
    context: Context, damage: Callable[[Path], None]
) -> None:
    notices: list[str] = []
    context = replace(context, say=notices.append)
    root = await root_file_system(context)
    agent = root / AGENT_INSIDE.lstrip("/")
    whole = agent.read_bytes()
    assert await root_file_system(context) == root and not notices
    damage(agent)
    assert await root_file_system(context) == root
    assert agent.read_bytes() == whole and agent.stat().st_mode & 0o111
    assert len(notices) == 1 and str(root) in notices[0] and "damaged" in notices[0]
    assert [each.name for each in root.parent.iterdir()] == [root.name]


async def test_a_missing_mount_point_of_containers_is_made_again(context: Context) -> None:
    root = await root_file_system(context)
    (root / DIRECTORIES[0]).rmdir()
    assert ((await root_file_system(context)) / DIRECTORIES[0]).is_dir()


@pytest.mark.parametrize("damage", [_flipped, _emptied, _removed])
async def test_a_damaged_copy_on_a_host_is_sent_again(
    agent_program: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    damage: Callable[[Path], None],
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "there"))
    file = tmp_path / "initramfs"
    file.write_bytes(b"initramfs" * 10_000)
    copy = await copy_to_host(Far(agent_program), file)
    assert copy.read_bytes() == file.read_bytes() and copy != file
    damage(copy)
    # Once more with a new connection to the host, as in each run.
    host = Far(agent_program)
    assert await copy_to_host(host, file) == copy
    assert copy.read_bytes() == file.read_bytes()
    # While it is held, a copy is read once: machines boot without waiting for that.
    assert await copy_to_host(host, file) == copy and len(host.read_copies) == 1


def test_a_damaged_folder_of_the_cache_is_reported_when_it_is_rebuilt(tmp_path: Path) -> None:
    draft, folder = tmp_path / "draft", tmp_path / "images" / "key"
    draft.mkdir()
    (draft / "initramfs").write_bytes(b"content")
    assert store.rebuilding(folder) == ()
    store.publish(draft, folder, {"a": 1})
    assert store.load(folder) == {"a": 1}
    _flipped(folder / "initramfs")
    assert store.load(folder) is None
    assert "damaged" in store.rebuilding(folder)[0]


def test_a_toolboxes_tree_is_read_not_only_looked_at(tmp_path: Path) -> None:
    tree = tmp_path / "box" / TREE
    tree.mkdir(parents=True)
    (tree / "program").write_bytes(b"#!/bin/sh\nexit 0\n")
    (tree.parent / IMAGE).write_bytes(b"image")
    make_uniform(tree)
    facts = {"kind": "base", "packages": {}, "notes": []}
    publish_toolbox(tree, tmp_path / "kept" / "key", facts)
    assert cached_toolbox(tmp_path / "kept" / "key") is not None
    program = tmp_path / "kept" / "key" / TREE / "program"
    _flipped(program)
    assert program.stat().st_mtime_ns == 0
    assert cached_toolbox(tmp_path / "kept" / "key") is None
    assert json.loads((tmp_path / "kept" / "key" / store.MANIFEST).read_bytes())["facts"]
