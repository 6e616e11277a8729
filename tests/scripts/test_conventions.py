"""The files by which contributors and services find their way say what the project does."""

from __future__ import annotations

import re
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from tare.references.published import known_references, load_reference

ROOT = Path(__file__).parents[2]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yaml"))
PAGES = ("CONTRIBUTING.md", "SECURITY.md")
VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]


def recipe(target: str) -> list[str]:
    """The commands of a target of the Makefile."""
    found = re.search(
        rf"^{target}:.*\n((?:\t.*\n)+)", (ROOT / "Makefile").read_text(), re.MULTILINE
    )
    assert found is not None
    return [line.strip() for line in found[1].splitlines()]


def test_pre_commit_runs_what_make_lint_runs() -> None:
    settings = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())
    hooks = [hook for repository in settings["repos"] for hook in repository["hooks"]]
    assert {repository["repo"] for repository in settings["repos"]} == {"local"}
    assert all(each["language"] == "system" and not each["pass_filenames"] for each in hooks)
    assert {"lint-python", "lint-agent"} <= set(recipe("lint")[-1].split())
    commands = recipe("lint-python") + recipe("lint-agent")
    assert [each["entry"] for each in hooks] == commands


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_a_workflow_pins_its_actions_and_calls_what_is_there(path: Path) -> None:
    workflow: dict[Any, Any] = yaml.safe_load(path.read_text())
    assert workflow["permissions"] == {"contents": "read"}
    steps = [step for job in workflow["jobs"].values() for step in job["steps"]]
    for used in (step["uses"] for step in steps if "uses" in step):
        assert re.fullmatch(r"[\w-]+/[\w-]+@[0-9a-f]{40}", used), used
    called = [step["run"] for step in steps if "run" in step]
    for command in called:
        if command.startswith("make "):
            assert recipe(command.split()[1])
    assert ".ci/run" in called or "make release" in called


def test_ci_and_release_are_workflows() -> None:
    assert [path.stem for path in WORKFLOWS] == ["ci", "release"]


@pytest.mark.parametrize("name", PAGES)
def test_every_link_file_and_target_of_a_page_is_there(name: str) -> None:
    text = (ROOT / name).read_text(encoding="utf-8")
    links = re.findall(r"\]\(([^)#:]+)(?:#([\w-]+))?\)", text)
    assert links
    for target, anchor in links:
        page = (ROOT / target).read_text(encoding="utf-8")
        headings = re.findall(r"^#+ (.+)$", page, re.MULTILINE)
        slugs = {re.sub(r"[^\w -]", "", each).lower().replace(" ", "-") for each in headings}
        assert not anchor or anchor in slugs, f"{target}#{anchor}"
    for target in re.findall(r"`make ([a-z]+)", text):
        assert recipe(target)
    for path in re.findall(r"(?<![\w/.])((?:tests|src|\.github)/[\w./]+)", text):
        assert (ROOT / path).exists(), path


def test_the_citation_has_the_version_and_every_paper() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert {"cff-version", "message", "title", "authors"} <= set(citation)
    assert citation["cff-version"] == "1.2.0"
    assert citation["version"] == VERSION
    papers = {each["notes"]: each for each in citation["references"]}
    assert set(papers) == set(known_references())
    for name, paper in papers.items():
        reference = load_reference(name)
        assert reference.title.startswith(paper["title"])
        authors = [
            each.get("name") or f"{each['given-names']} {each['family-names']}"
            for each in paper["authors"]
        ]
        assert authors == list(reference.authors)
        assert str(paper["year"]) in reference.published


def test_versions_agree() -> None:
    agent = tomllib.loads((ROOT / "agent" / "Cargo.toml").read_text())
    assert agent["package"]["version"] == VERSION
    assert f"\n## {VERSION}" in (ROOT / "CHANGELOG.md").read_text()


def test_no_generated_schema_is_in_the_repository() -> None:
    listed = subprocess.run(
        ["git", "ls-files", "*.schema.json"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert listed.stdout == ""
