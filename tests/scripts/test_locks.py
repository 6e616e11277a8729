"""What set-up and CI install is named to the byte; what the package asks for stays open."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
ASKED = {
    "runtime": PROJECT["dependencies"],
    "dev": PROJECT["dependencies"] + PROJECT["optional-dependencies"]["dev"],
    "libvirt": PROJECT["optional-dependencies"]["libvirt"],
}
LOCKS = sorted((ROOT / "locks").glob("*.txt"))
PYTHONS = ("3.11", "3.12", "3.13")


def locked(path: Path) -> list[tuple[Requirement, list[str]]]:
    """A lock's entries: what each names, and its hashes."""
    found = []
    for entry in re.split(r"\n(?=\S)", path.read_text().strip()):
        words, *hashes = re.split(r"\s*\\\n\s*--hash=", entry)
        found.append((Requirement(words), hashes))
    return found


@pytest.mark.parametrize("path", LOCKS, ids=lambda path: path.stem)
def test_every_entry_is_one_version_with_its_hashes(path: Path) -> None:
    entries = locked(path)
    assert entries
    for requirement, hashes in entries:
        assert re.fullmatch(r"==[^*]+", str(requirement.specifier)), requirement
        assert hashes and all(re.fullmatch(r"sha256:[0-9a-f]{64}", each) for each in hashes)


@pytest.mark.parametrize("path", LOCKS, ids=lambda path: path.stem)
def test_no_lock_says_where_to_fetch_from(path: Path) -> None:
    text = path.read_text()
    assert "://" not in text and "index-url" not in text and "find-links" not in text


@pytest.mark.parametrize("python", PYTHONS)
@pytest.mark.parametrize("name", ASKED)
def test_a_lock_has_what_the_package_asks_for(name: str, python: str) -> None:
    here = {"python_version": python, "python_full_version": f"{python}.0"}
    found = {
        canonicalize_name(entry.name): str(entry.specifier).removeprefix("==")
        for entry, _ in locked(ROOT / "locks" / f"{name}.txt")
        if entry.marker is None or entry.marker.evaluate(here)
    }
    for asked in map(Requirement, ASKED[name]):
        version = found.get(canonicalize_name(asked.name))
        assert version is not None and version in asked.specifier, f"{asked}: {version}"


def test_the_package_itself_sets_no_upper_bounds() -> None:
    for asked in map(Requirement, ASKED["dev"] + ASKED["libvirt"]):
        assert all(part.operator == ">=" for part in asked.specifier), asked


def test_set_up_installs_by_the_locks_alone() -> None:
    lines = (ROOT / "scripts" / "setup").read_text().replace("\\\n", " ").splitlines()
    installs = [line for line in lines if re.search(r"pip\"? install", line)]
    assert installs
    for line in installs:
        assert "--require-hashes" in line or "--no-deps --no-build-isolation" in " ".join(
            line.split()
        ), line


@pytest.mark.parametrize("path", ["Makefile", "scripts/setup", ".ci/run", "pyproject.toml"])
def test_cargo_builds_what_is_locked_and_nothing_newer(path: str) -> None:
    text = (ROOT / path).read_text().replace("\\\n", " ")
    builds = re.findall(r"cargo[\"}]*\s(?:build|test|clippy|install|run)\b.*", text)
    assert all("--locked" in each for each in builds), builds
    assert builds or path in (".ci/run", "pyproject.toml")
