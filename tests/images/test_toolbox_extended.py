"""A toolbox with packages and files of a study's own: laid over Tare's, which stays unchanged."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from images.toolbox_small import real_toolbox
from tare.errors import InputError
from tare.hosts import LocalHost
from tare.images.cache import default_cache
from tare.images.toolbox.check import snapshot, tree_problems
from tare.images.toolbox.extended import extended_toolbox, lay_over
from tare.images.toolbox.packages import unknown_packages
from tare.images.toolbox.recipe import ABOUT
from tare.images.toolbox.toolbox import LISTING, Toolbox, discard_toolbox, verify_toolbox
from tare.images.toolbox.tree import resolve_inside
from tare.run.lifecycle.session import agent_path
from tare.workloads.additions import Additions

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="entering a toolbox needs root")


@pytest.fixture
def program(tmp_path: Path) -> Path:
    path = tmp_path / "hello"
    path.write_text(f"#!/bin/sh\necho hello {tmp_path}\n")
    path.chmod(0o755)
    return path


@pytest.fixture
def built() -> Iterator[list[Toolbox]]:
    """Collect the toolboxes that a test builds, and remove them after it."""
    boxes: list[Toolbox] = []
    yield boxes
    for box in boxes:
        discard_toolbox(box)


async def extended(base: Toolbox, additions: Additions, messages: list[str]) -> Toolbox:
    agent = agent_path()
    return await extended_toolbox(
        LocalHost(agent), base, additions, agent=agent, cache=default_cache(), say=messages.append
    )


@pytest.mark.slow
@pytest.mark.boots
@needs_root
async def test_extended_toolbox_holds_packages_and_files_and_is_built_once(
    program: Path, built: list[Toolbox]
) -> None:
    base = await real_toolbox(agent_path())
    additions = Additions(frozenset({"zstd", "bzip2"}), {"/opt/mine/hello": program})
    messages: list[str] = []
    box = await extended(base, additions, messages)
    built.append(box)
    assert not box.cached
    assert box.key != base.key
    assert {**base.packages, "zstd": box.packages["zstd"]}.items() <= box.packages.items()
    for place in ("usr/bin/zstd", "usr/games/gnugo", "opt/mine/hello"):
        assert resolve_inside(box.tree, f"/{place}").stat().st_mode & 0o777 == 0o755, place
    about = json.loads((box.tree / ABOUT).read_bytes())
    assert about["key"] == box.key
    assert about["expected"] == json.loads((base.tree / ABOUT).read_bytes())["expected"]
    assert verify_toolbox(box) == ()
    # What both share is one file, and Tare's own toolbox is unchanged.
    assert (box.tree / "usr/bin/fio").samefile(base.tree / "usr/bin/fio")
    assert tree_problems(base.tree, base.tree.parent / LISTING, thorough=True) == []
    assert not (base.tree / "opt/mine").exists()

    quiet: list[str] = []
    again = await extended(base, additions, quiet)
    assert (again.cached, again.key, quiet) == (True, box.key, [])
    program.write_text("#!/bin/sh\necho changed\n")
    changed = await extended(base, additions, messages)
    built.append(changed)
    assert changed.key != box.key
    assert verify_toolbox(box) == ()


@needs_root
@pytest.mark.slow
@pytest.mark.boots
async def test_a_program_without_its_library_is_reported_before_anything_runs(
    tmp_path: Path,
) -> None:
    base = await real_toolbox(agent_path())
    # A program of the toolbox whose library's name is changed to one that nobody has.
    whole = (base.tree / "usr/bin/bzip2").read_bytes()
    broken = tmp_path / "broken"
    broken.write_bytes(whole.replace(b"libbz2.so.1.0", b"libnone.so.1.", 1))
    broken.chmod(0o755)
    with pytest.raises(InputError, match=r"/opt/broken.*libnone\.so(.|\n)*add the package"):
        await extended(base, Additions(files={"/opt/broken": broken}), [])


@needs_root
@pytest.mark.slow
@pytest.mark.boots
async def test_a_place_that_a_package_has_is_not_taken_from_it(program: Path) -> None:
    base = await real_toolbox(agent_path())
    for place, words in {
        "/bin/sh": "/bin is no folder there",
        "/usr/bin/fio": "a package has it already",
    }.items():
        with pytest.raises(InputError, match=words):
            await extended(base, Additions(files={place: program}), [])


async def test_packages_that_do_not_exist_are_named() -> None:
    host = LocalHost(agent_path())
    names = ["coreutils", "no-such-package-here", "bash", "nor-such-one"]
    assert await unknown_packages(host, names) == ("no-such-package-here", "nor-such-one")
    assert await unknown_packages(host, []) == ()


def test_files_are_replaced_and_never_written_through(tmp_path: Path) -> None:
    tree, more, other = tmp_path / "tree", tmp_path / "more", tmp_path / "other"
    for folder in (tree / "usr/bin", more / "usr/bin", more / "opt/new"):
        folder.mkdir(parents=True)
    for root in (tree, more):
        (root / "bin").symlink_to("usr/bin")
    (tree / "usr/bin/tool").write_text("old")
    os.link(tree / "usr/bin/tool", other)
    (more / "usr/bin/tool").write_text("new")
    (more / "usr/bin/link").symlink_to("tool")
    (more / "opt/new/data").write_text("data")
    lay_over(tree, more)
    assert other.read_text() == "old"
    assert set(snapshot(tree)) == {
        *("bin", "opt", "opt/new", "opt/new/data"),
        *("usr", "usr/bin", "usr/bin/link", "usr/bin/tool"),
    }
    assert (tree / "bin/link").read_text() == "new"


@pytest.mark.parametrize("folder_in", ["tree", "more"])
def test_a_file_where_the_other_has_a_folder_is_refused(tmp_path: Path, folder_in: str) -> None:
    for root in ("tree", "more"):
        (tmp_path / root).mkdir()
        if root == folder_in:
            (tmp_path / root / "x").mkdir()
        else:
            (tmp_path / root / "x").write_text("")
    with pytest.raises(InputError, match="in the toolbox, and a f"):
        lay_over(tmp_path / "tree", tmp_path / "more")
