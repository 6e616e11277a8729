"""A toolbox that is damaged, or lacks a program: reported in plain words before anything starts."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from images.toolbox_small import BUSYBOX, KEY, LACKING, STARTS, make_small, real_toolbox
from tare.cli.image import image_app
from tare.errors import WorkloadFault
from tare.hosts import Ledger, LocalHost
from tare.images.archives import OWN
from tare.images.cache import MANIFEST, default_cache, file_digest
from tare.images.toolbox.check import snapshot
from tare.images.toolbox.recipe import ABOUT, recipe_digest
from tare.images.toolbox.toolbox import IMAGE, LISTING, TREE, make_image, prepare_toolbox
from tare.platforms.contract import Context, Machine, MachineSpec, Shape, ToolboxFiles
from tare.registry import installed

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="entering a toolbox needs root")
needs_shell = pytest.mark.skipif(BUSYBOX is None, reason="busybox-static is not installed")


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    return make_small(tmp_path / "cache" / "tare" / "toolbox" / KEY / TREE)


@pytest.fixture
def cached(tree: Path) -> Path:
    """The cache that holds that toolbox as one that was built and is remembered."""
    box = tree.parent
    (box / IMAGE).write_bytes(b"image")
    (box / LISTING).write_text(json.dumps(snapshot(tree)))
    digest = file_digest(box / IMAGE)
    facts = {"kind": "base", "digest": digest, "packages": {"gnugo": "3.8"}, "notes": []}
    files = {IMAGE: digest, LISTING: file_digest(box / LISTING)}
    (box / MANIFEST).write_text(json.dumps({"files": files, "facts": facts}))
    note = {"lists": OWN.state(), "recipe": recipe_digest(), "key": KEY}
    (box.parent / "base.json").write_text(json.dumps(note))
    return box.parent.parent


def damage_tree(box: Path) -> str:
    (box / TREE / "usr/lib").rmdir()
    return "usr/lib is missing"


def damage_file(box: Path) -> str:
    with (box / TREE / ABOUT).open("a") as file:
        file.write(" ")
    return f"{ABOUT} is not what was built"


def damage_image(box: Path) -> str:
    (box / IMAGE).write_bytes(b"imagE")
    return f"{IMAGE} is not what was built"


def lose_image(box: Path) -> str:
    (box / IMAGE).unlink()
    return f"{IMAGE} cannot be read"


DAMAGES = pytest.mark.parametrize("damage", [damage_tree, damage_file, damage_image, lose_image])


class Enough(Exception):
    """Raised at the first step of a build, which takes minutes."""


async def found(cache: Path, agent: Path) -> tuple[bool, list[str]]:
    """Return whether the toolbox is used unchanged, and the messages."""
    messages: list[str] = []

    def say(sentence: str) -> None:
        messages.append(sentence)
        if "resolving" in sentence:
            raise Enough

    try:
        await prepare_toolbox(LocalHost(agent), "base", agent=agent, cache=cache, say=say)
    except Enough:
        return False, messages
    return True, messages


async def test_an_intact_toolbox_is_taken_without_a_word(cached: Path, agent_program: Path) -> None:
    assert await found(cached, agent_program) == (True, [])


@DAMAGES
async def test_a_damaged_toolbox_is_rebuilt_before_use(
    damage: Any, cached: Path, agent_program: Path
) -> None:
    damage(cached / "toolbox" / KEY)
    taken, messages = await found(cached, agent_program)
    assert not taken
    assert messages[0] == "the toolbox base in the cache is damaged: building it again"


def tare(cache: Path, *words: str) -> Result:
    return CliRunner().invoke(image_app, words, env={"XDG_CACHE_HOME": str(cache.parent)})


def test_verifying_keeps_what_is_intact(cached: Path) -> None:
    listed = tare(cached, "list")
    assert listed.stdout.startswith("base")
    assert "1 packages" in listed.stdout
    done = tare(cached, "verify")
    assert (done.exit_code, done.stdout.split()[-1]) == (0, "intact")
    assert (cached / "toolbox" / KEY).exists()


@DAMAGES
def test_verifying_reports_and_removes_damaged_entries(damage: Any, cached: Path) -> None:
    words = damage(cached / "toolbox" / KEY)
    done = tare(cached, "verify")
    assert done.exit_code == 1
    assert "damaged" in done.stdout
    assert words in done.stdout
    assert "`tare image build`, builds it again" in done.stdout
    assert not (cached / "toolbox" / KEY).exists()
    assert "no toolbox is cached" in tare(cached, "list").stdout


def run_program(agent: Path, tree: Path, request: dict[str, Any]) -> str:
    """Return why the agent refused."""
    done = subprocess.run(
        [str(agent), "run", "program", json.dumps(request)],
        env={**os.environ, "TARE_TOOLBOX": str(tree)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode != 0, done.stdout
    assert not done.stdout
    return done.stderr


@needs_root
@needs_shell
def test_a_program_that_is_missing_is_named_before_anything_starts(
    agent_program: Path, tree: Path
) -> None:
    text = run_program(agent_program, tree, LACKING)
    assert "the toolbox (base) has no program gnugo of the package gnugo" in text
    text = run_program(agent_program, tree, {**LACKING, "steps": [{"argv": ["fio"]}]})
    assert (
        "the toolbox (base) has no program fio: add the package that has it by `toolbox: " in text
    )
    text = run_program(agent_program, tree, {**LACKING, "steps": [{"argv": ["awk"]}]})
    assert "has no program awk: write `mawk` for it in `argv`" in text
    # So it does start otherwise.
    assert "9" in run_program(agent_program, tree, {"steps": [STARTS]})


@needs_root
def test_a_toolbox_without_a_description_is_damaged(agent_program: Path, tree: Path) -> None:
    (tree / ABOUT).write_text("{")
    text = run_program(agent_program, tree, {"steps": [STARTS]})
    assert f"the toolbox is damaged: {ABOUT}" in text
    (tree / ABOUT).unlink()
    text = run_program(agent_program, tree, {"steps": [STARTS]})
    assert f"there is no toolbox at {tree}" in text


PLACES = [
    pytest.param("bare", marks=needs_root),
    pytest.param(
        "oci",
        marks=[
            needs_root,
            pytest.mark.container,
            pytest.mark.skipif(not shutil.which("runc"), reason="runc is not installed"),
        ],
    ),
]


@pytest.fixture
def context(tmp_path: Path, agent_program: Path) -> Iterator[Context]:
    host = LocalHost(agent_program)
    with Ledger(tmp_path / "ledger") as ledger:
        yield Context(host, ledger, tmp_path / "own-cache", agent_program)
        assert ledger.open_entries() == ()


@needs_shell
@pytest.mark.parametrize("platform", PLACES)
async def test_a_machine_with_a_faulty_toolbox_reports_it_and_continues(
    platform: str, context: Context, tree: Path
) -> None:
    kind, name = installed().platforms[platform], f"tare-test-{os.getpid()}-lacking"
    options, shape = kind.options.model_validate({}), Shape(1, 64 << 20)
    prepared = await kind.prepare(context, options, shape, False)
    files = ToolboxFiles(tree.parent / IMAGE, "0" * 64, tree)
    workdir = context.ledger.path.parent / name
    spec = MachineSpec(name, shape, (), workdir, False, toolbox=files)
    machine = await kind.start(context, options, prepared, spec)
    try:
        await machine.ready(60)
        await check_missing_program_is_reported(machine)
    finally:
        await machine.stop()


async def check_missing_program_is_reported(machine: Machine) -> None:
    with pytest.raises(WorkloadFault, match="no program gnugo of the package gnugo"):
        await machine.agent.run("program", LACKING, deadline_s=60)
    steps = [{"argv": ["sh", "-c", "echo works"]}]
    worked = await machine.agent.run("program", {"steps": steps}, deadline_s=60)
    assert worked.value["output"] == "works\n"


async def guest(context: Context, image: Path) -> Machine:
    kind, name = installed().platforms["qemu"], f"tare-test-{os.getpid()}-lacking"
    options, shape = kind.options.model_validate({}), Shape(1, 192 << 20)
    own = replace(context, cache=default_cache(), kernel="cloud", needs=frozenset({"toolbox"}))
    prepared = await kind.prepare(own, options, shape, False)
    files = ToolboxFiles(image, file_digest(image), image.parent)
    workdir = context.ledger.path.parent / name
    spec = MachineSpec(name, shape, (), workdir, False, toolbox=files)
    machine = await kind.start(own, options, prepared, spec)
    await machine.ready(120)
    return machine


@needs_shell
@pytest.mark.guest
@pytest.mark.slow
@pytest.mark.boots
async def test_a_guest_with_a_faulty_toolbox_reports_it_and_continues(
    context: Context, tree: Path, tmp_path: Path, agent_program: Path
) -> None:
    image = tmp_path / IMAGE
    tools = await real_toolbox(agent_program)
    await make_image(context.host, tools.tree, tree, image)
    machine = await guest(context, image)
    try:
        await check_missing_program_is_reported(machine)
    finally:
        await machine.stop()
    # A truncated image is refused, although its label names a toolbox.
    with image.open("r+b") as file:
        file.truncate(8192)
    machine = await guest(context, image)
    try:
        with pytest.raises(
            WorkloadFault, match=r"the toolbox (on .* cannot be mounted|is damaged)"
        ):
            await machine.agent.run("program", LACKING, deadline_s=60)
    finally:
        await machine.stop()
