"""The toolbox's parts: its inputs, its tree, and how damage to it is noticed."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tare.errors import InputError
from tare.images.cache import MANIFEST, key_of
from tare.images.packages import Package, described
from tare.images.toolbox import tree as trees
from tare.images.toolbox.check import snapshot, tree_problems
from tare.images.toolbox.inputs import INPUTS, game, hashes, scene, words
from tare.images.toolbox.raw_picture import bayer_scene, dng
from tare.images.toolbox.recipe import (
    FORMAT,
    KINDS,
    NOT_NEEDED,
    PACKAGES,
    PROGRAMS,
    VOLUME_UUID,
    recipe_digest,
)
from tare.images.toolbox.toolbox import toolboxes, verify_toolbox
from tare.workloads import WORKLOADS
from tare.workloads.applications.programs import PROGRAMS as APPLICATIONS


def tree_of(folder: Path) -> Path:
    tree = folder / "tree"
    (tree / "usr/bin").mkdir(parents=True)
    (tree / "usr/bin/tool").write_bytes(b"#!/bin/sh\n")
    (tree / "usr/bin/tool").chmod(0o4775)
    (tree / "usr/bin/data").write_bytes(b"data")
    (tree / "usr/bin/data").chmod(0o600)
    (tree / "bin").symlink_to("usr/bin")
    (tree / "usr/bin/alias").symlink_to("/usr/bin/tool")
    return tree


def test_every_program_comes_from_a_package_that_is_asked_for_or_follows() -> None:
    for kind in KINDS:
        asked = {name.partition(" ")[0] for name in PACKAGES[kind]}
        for program in PROGRAMS[kind].values():
            assert program.package in asked | {"nginx"}
            assert program.path.startswith("/")
    assert set(PROGRAMS["base"]) < set(PROGRAMS["build"])


@pytest.mark.parametrize("name", ["python3.11-minimal", "libperl5.36", "perl", "libfoo-perl"])
def test_files_needed_only_for_installation_are_left_out(name: str) -> None:
    assert NOT_NEEDED.fullmatch(name)


@pytest.mark.parametrize("name", ["libc6", "perl-base", "libpcre2-8-0", "openjdk-17-jre-headless"])
def test_files_that_programs_need_are_kept(name: str) -> None:
    assert not NOT_NEEDED.fullmatch(name)


def test_a_paragraph_of_apt_is_read() -> None:
    text = "Package: fio\nVersion: 3\nInstalled-Size: 7\nSHA256: ab\nDescription: a\n b: c\n"
    (fio,) = described(f"{text}\nPackage: fio\n")
    assert fio == Package("fio", "3", "ab", (), 7 << 10, ("fio", "3"))


@pytest.mark.parametrize(
    ("field", "source"),
    [("", ("fio", "3+b1")), ("Source: f\n", ("f", "3+b1")), ("Source: f (3)\n", ("f", "3"))],
)
def test_the_source_of_a_package_is_known_with_its_version(
    field: str, source: tuple[str, str]
) -> None:
    text = f"Package: fio\nVersion: 3+b1\n{field}SHA256: ab\n"
    (fio,) = described(text)
    assert fio.source == source


def test_a_package_depends_on_the_first_of_several_alternatives() -> None:
    text = (
        "Package: fio\nVersion: 1:3-1\nSHA256: ab\nPre-Depends: dpkg (>= 1.17.14)\n"
        "Depends: libaio1 (>= 0.3.93) | libaio2, python3:any,\n libc6 (>= 2.34)\n"
    )
    (fio,) = described(text)
    assert fio.depends == ("dpkg", "libaio1", "python3", "libc6")


@given(st.text(max_size=200))
def test_no_text_makes_the_reader_of_paragraphs_fail(text: str) -> None:
    list(described(text))


def test_numbers_and_words_are_the_same_everywhere() -> None:
    # Whatever computer draws them: integers only. The values were computed by hand once.
    assert hashes(2, 0).tolist() == [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4]
    assert len(words(50, 3)) == 50
    assert words(50, 3) == words(50, 3) != words(50, 4)


def test_inputs_are_what_they_are_taken_for() -> None:
    made = {name: make() for name, make in INPUTS.items()}
    assert made["audio.wav"][:4] == b"RIFF"
    assert struct.unpack_from("<I", made["audio.wav"], 40)[0] == len(made["audio.wav"]) - 44
    assert made["text.txt"].decode("ascii").split()
    assert made["page.html"].count(b"<li>") == 6000
    assert b"sphere" in scene()
    assert game().endswith(b"quit\n")


def test_a_raw_picture_has_its_tags_in_order() -> None:
    pixels = bayer_scene(64, 32)
    file = dng(pixels)
    assert file[:4] == b"II*\0"
    (directory,) = struct.unpack_from("<I", file, 4)
    (count,) = struct.unpack_from("<H", file, directory)
    numbers = [struct.unpack_from("<H", file, directory + 2 + 12 * n)[0] for n in range(count)]
    assert numbers == sorted(numbers)
    assert file[8 : 8 + pixels.nbytes] == pixels.tobytes()
    assert 50706 in numbers
    assert pixels.min() >= 0
    assert pixels.max() < 1 << 14


def test_a_tree_becomes_uniform_and_plain(tmp_path: Path) -> None:
    tree = tree_of(tmp_path)
    trees.make_uniform(tree)
    assert (tree / "usr/bin/tool").stat().st_mode & 0o7777 == 0o755
    assert (tree / "usr/bin/data").stat().st_mode & 0o7777 == 0o644
    assert all(path.lstat().st_mtime == 0 for path in tree.rglob("*"))


def test_links_are_followed_within_the_tree(tmp_path: Path) -> None:
    tree = tree_of(tmp_path)
    assert trees.resolve_inside(tree, "/bin/alias") == tree / "usr/bin/tool"
    assert trees.resolve_inside(tree, "/bin/../../../bin/data") == tree / "usr/bin/data"
    assert not trees.resolve_inside(tree, "/no/such").exists()


def test_a_missing_program_is_named_with_its_package(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no program bonnie\+\+ .* package bonnie\+\+"):
        trees.require_programs(tree_of(tmp_path), "base")


def test_settling_gives_what_an_installation_would(tmp_path: Path) -> None:
    tree = tree_of(tmp_path)
    (tree / "usr/lib/jvm/java-17-x/bin").mkdir(parents=True)
    (tree / "usr/lib/jvm/java-17-x/bin/java").write_bytes(b"")
    trees.settle(tree)
    trees.settle(tree)
    assert trees.resolve_inside(tree, "/usr/bin/java") == tree / "usr/lib/jvm/java-17-x/bin/java"
    assert not (tree / "usr/games").exists()
    assert trees.resolve_inside(tree, "/toolbox/etc/passwd").read_text().startswith("root:")
    assert (tree / "scratch").is_dir()


def test_a_program_that_a_release_has_moved_is_where_it_was(tmp_path: Path) -> None:
    tree = tree_of(tmp_path)
    (tree / "usr/bin/gnugo").write_bytes(b"of Debian 13")
    trees.settle(tree)
    assert trees.resolve_inside(tree, "/usr/games/gnugo") == tree / "usr/bin/gnugo"


@pytest.mark.parametrize("thorough", [False, True])
def test_damage_to_a_tree_is_noticed(tmp_path: Path, thorough: bool) -> None:
    tree, listing = tree_of(tmp_path), tmp_path / "tree.json"
    trees.make_uniform(tree)
    listing.write_text(json.dumps(snapshot(tree)))
    assert tree_problems(tree, listing, thorough=thorough) == []
    (tree / "usr/bin/data").write_bytes(b"DATA")
    (tree / "usr/bin/alias").unlink()
    (tree / "new").mkdir()
    problems = "\n".join(tree_problems(tree, listing, thorough=thorough))
    assert "data is not what was built" in problems
    assert "alias is missing" in problems
    assert "new does not belong there" in problems


def test_damage_that_keeps_size_and_time_is_found_by_reading_all(tmp_path: Path) -> None:
    import os

    tree, listing = tree_of(tmp_path), tmp_path / "tree.json"
    trees.make_uniform(tree)
    listing.write_text(json.dumps(snapshot(tree)))
    (tree / "usr/bin/data").write_bytes(b"DATA")
    os.utime(tree / "usr/bin/data", ns=(0, 0))
    assert tree_problems(tree, listing, thorough=False) == []
    assert len(tree_problems(tree, listing, thorough=True)) == 1


def test_folders_without_a_toolbox_are_not_listed(tmp_path: Path) -> None:
    broken = tmp_path / "toolbox" / "x"
    broken.mkdir(parents=True)
    (broken / MANIFEST).write_text("{}")
    assert toolboxes(tmp_path) == ()


def test_a_listed_toolbox_without_its_files_is_reported(tmp_path: Path) -> None:
    folder = tmp_path / "toolbox" / "key"
    folder.mkdir(parents=True)
    facts = {"kind": "base", "digest": "0" * 64, "packages": {"fio": "3"}, "notes": ["a note"]}
    (folder / MANIFEST).write_text(json.dumps({"files": {}, "facts": facts}))
    (box,) = toolboxes(tmp_path)
    assert box.packages == {"fio": "3"}
    assert len(verify_toolbox(box)) == 2


def test_the_identity_is_the_agents(agent_program: Path) -> None:
    source = Path(__file__).parents[2] / "agent/src/tools/toolbox.rs"
    text = source.read_text()
    start = text.index("const UUID: [u8; 16] = [")
    numbers = text[start : text.index("];", start)].partition("= [")[2]
    known = bytes(int(part.strip(), 0) for part in numbers.split(",") if part.strip())
    assert known.hex() == VOLUME_UUID.replace("-", "")
    assert len(recipe_digest()) == 64


def test_a_changed_application_rebuilds_the_toolbox() -> None:
    # A toolbox knows the checksum of what the applications wrote when it was built. Where one is
    # asked to do something else, raise FORMAT, or toolboxes of before would call it wrong.
    asked = {}
    for name in (*(program.name for program in APPLICATIONS), "openssl-aes", "scimark"):
        request = WORKLOADS[name].request(WORKLOADS[name].parameters())
        asked[name] = {part: request[part] for part in ("prepare", "steps", "clean", "checks")}
    known = {1: "577b33f6b6368583a80768da99a9b51cdd242f41542391fc8412d065457af677"}
    assert known.get(FORMAT) == key_of(asked)
