"""The pages that explain the code say what the code says."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import subprocess
import tomllib
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from scripts import architecture as drawing
from tare.report.sections.contract import SECTIONS
from tare.run.catalog import build_catalog
from tare.study.reading.hosts_file import KnownHosts
from tare.study.reading.load import parse_study
from tare.testing.conformance import PlatformCases

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
EXTENDING = DOCS / "how-to" / "extending.md"
ARCHITECTURE = DOCS / "explanation" / "architecture.md"
FENCED = re.compile(r"^```yaml[^\n]*\n(.*?)^```$", re.MULTILINE | re.DOTALL)
BLOCK = re.compile(r"^```\w+ (\S+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def lines_of(text: str) -> list[str]:
    return [line for line in text.splitlines() if line.strip()]


def test_code_in_the_page_for_extensions_equals_the_examples() -> None:
    shown: dict[str, list[str]] = defaultdict(list)
    for name, text in BLOCK.findall(EXTENDING.read_text(encoding="utf-8")):
        shown[name] += lines_of(text)
    listed = subprocess.run(
        ["git", "ls-files", "."], cwd=ROOT / "examples", capture_output=True, text=True, check=True
    ).stdout.split()
    assert sorted(shown) == sorted(listed)
    for name in listed:
        assert shown[name] == lines_of((ROOT / "examples" / name).read_text()), name


def test_the_page_on_extensions_lists_every_case_and_every_overridable_name() -> None:
    page = EXTENDING.read_text(encoding="utf-8")
    listed = re.findall(r"^\| `(test_\w+)` \| (.*) \|$", page, re.MULTILINE)
    cases = {name: case for name, case in vars(PlatformCases).items() if name.startswith("test_")}
    assert listed == [(name, inspect.getdoc(case)) for name, case in cases.items()]
    for name in inspect.get_annotations(PlatformCases):
        assert f"| `{name}` |" in page
    for name in ("context", "elsewhere", "cpus", "kill"):
        assert f" `{name}` |" in page
        assert name in vars(PlatformCases)


def test_generated_drawings_match_the_code() -> None:
    page, rooms = ARCHITECTURE.read_text(encoding="utf-8"), drawing.imports_of_rooms()
    assert drawing.with_parts(page, rooms) == page, "run `make architecture`"
    assert drawing.picture(rooms) == drawing.PICTURE.read_text(encoding="utf-8")


@pytest.mark.parametrize("page", [EXTENDING, ARCHITECTURE], ids=lambda page: page.stem)
def test_names_in_the_pages_exist(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    modules = set(re.findall(r"`(tare(?:\.[a-z_]+)+)`", text)) - {
        "tare.platforms",
        "tare.probes",
        "tare.sections",
        "tare.workloads",
    }
    assert modules
    for name in sorted(modules):
        importlib.import_module(name)
    for link in re.findall(r"\]\(([^)#:]+)(?:#\w+)?\)", text):
        assert (page.parent / link).exists(), link


HOPS = re.compile(r"^\| \d+ \| [^|]+ \| [^|]+ \| (.+) \|$", re.MULTILINE)
PATHS = ARCHITECTURE.read_text(encoding="utf-8").partition("## Three paths through the code\n")[2]
PATHS_BY_TITLE = {
    each.partition("\n")[0]: each for each in PATHS.partition("\n## ")[0].split("\n### ")[1:4]
}


def is_defined(file: Path, name: str) -> bool:
    """Return whether a file defines a name; that of a class's member is ``Class.member``."""
    text = file.read_text(encoding="utf-8")
    if file.suffix != ".py":
        return re.search(rf"\bfn {name}\b", text) is not None
    scope: Sequence[ast.stmt] = ast.parse(text).body
    for each in name.split("."):
        found = [one for one in scope if each in names_of(one)]
        if not found:
            return False
        scope = found[0].body if isinstance(found[0], ast.ClassDef) else []
    return True


def names_of(statement: ast.stmt) -> list[str]:
    """Return the names that a statement defines."""
    match statement:
        case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
            return [statement.name]
        case ast.Assign():
            return [each.id for each in statement.targets if isinstance(each, ast.Name)]
        case ast.AnnAssign(target=ast.Name() as target):
            return [target.id]
    return []


@pytest.mark.parametrize("title", PATHS_BY_TITLE)
def test_the_hops_of_a_path_through_the_code_are_in_the_code(title: str) -> None:
    path, files = PATHS_BY_TITLE[title], set()
    for hop in HOPS.findall(path):
        for step in hop.split("<br>"):
            where, *names = re.findall(r"`([^`]+)`", step)
            known = [ROOT / where, ROOT / "src" / f"{where.replace('.', '/')}.py"]
            file = next((each for each in known if each.is_file()), None)
            assert file is not None, where
            files.add(file)
            assert not [name for name in names if not is_defined(file, name)], step
    count = re.search(r"^\d+ files before, (\d+) after\.$", path, re.MULTILINE)
    assert count is not None
    assert int(count[1]) == len(files)


STUDIES = [
    pytest.param(text, id=f"{page.stem}-{number}")
    for page in (ROOT / "README.md", *sorted((ROOT / "docs").glob("**/*.md")))
    if page != EXTENDING  # Its study names what is made there.
    for number, text in enumerate(FENCED.findall(page.read_text(encoding="utf-8")), 1)
    if re.search(r"^study: ", text, re.MULTILINE)
]


@pytest.mark.parametrize("text", STUDIES)
def test_a_study_that_a_page_shows_can_be_used(text: str) -> None:
    assert parse_study(
        text.encode(), "shown", build_catalog(), hosts=KnownHosts(Path("hosts"))
    ).arms


def test_pages_show_studies() -> None:
    assert len(STUDIES) >= 8


@pytest.mark.parametrize(
    ("name", "where"), [("my-vm", "tutorials/my-vm"), ("disk-aio", "explanation/disk")]
)
def test_a_study_that_a_page_shows_is_shown_as_it_is(name: str, where: str) -> None:
    page = (ROOT / "docs" / f"{where}.md").read_text(encoding="utf-8")
    study = (ROOT / "studies" / f"{name}.yaml").read_text(encoding="utf-8")
    assert f"```yaml studies/{name}.yaml\n{study}```" in page


def test_the_table_of_dependencies_is_what_the_package_asks_for() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    asked: dict[str, set[str]] = defaultdict(set)
    groups = {"base": project["dependencies"], **project["optional-dependencies"]}
    for group, requirements in groups.items():
        for each in map(Requirement, requirements):
            asked[each.name].add(group)
    page = ARCHITECTURE.read_text(encoding="utf-8").partition("## What Tare depends on\n")[2]
    rows = re.findall(r"^\| `([^`]+)` \| ([^|]+) \| [^|]+\. \|$", page.partition("\n## ")[0], re.M)
    shown = {name: set(re.findall(r"[a-z]+", by)) for name, by in rows}
    assert len(shown) == len(rows)
    assert shown == asked


def test_papers_are_named_by_their_citation_keys() -> None:
    """Numbers and nicknames of papers mean nothing to readers of this repository."""
    names = r"\bseed[ _]?0[0-9]{2}|(as|in|of) the seeds?['’]s|the seeds (took|copied)"
    asked = ["git", "grep", "-niE", names]
    found = subprocess.run(asked, cwd=ROOT, capture_output=True, text=True, check=False).stdout
    assert [line for line in found.splitlines() if not line.startswith("tests/test_docs.py:")] == []


FOREIGN = {
    "UIDS-GIDS.md",
    "api.md",
    "config-linux.md",
    "config.md",
    "jailer.md",
    "prod-host-setup.md",
    "seccomp.md",
    "vsock.md",
}
"""Pages of specifications, named next to whose they are."""


def test_every_page_that_a_file_names_is_in_the_repository() -> None:
    places = ["agent/src", "benchmarks", "docs", "examples", "scripts", "src", "studies"]
    asked = [
        "git",
        "grep",
        "-hoE",
        r"\b[A-Za-z][A-Za-z_-]*\.md\b",
        "--",
        *places,
        "*.md",
        "Makefile",
    ]
    found = subprocess.run(asked, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    listed = subprocess.run(
        ["git", "ls-files", "*.md"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    assert set(found.split()) - {Path(name).name for name in listed.split()} - FOREIGN == set()


PAGES = [
    ROOT / name
    for name in subprocess.run(
        ["git", "ls-files", "*.md", ":!CHANGELOG.md"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    if (ROOT / name).is_file()
]
LINK = re.compile(r"\]\(([^)\s#]*)(?:#([^)\s]*))?\)")


def anchors_of(page: Path) -> set[str]:
    """Return the anchors that GitHub and the site give to a page's headings."""
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.M | re.S)
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    plain = [re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading) for heading in headings]
    return {re.sub(r"[^\w\- ]", "", each.strip().lower()).replace(" ", "-") for each in plain}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_of_a_page_leads_somewhere(page: Path) -> None:
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.M | re.S)
    for target, anchor in LINK.findall(text):
        if re.match(r"\w+:", target):
            continue
        leads = page.parent / target if target else page
        assert leads.exists(), target
        if anchor:
            assert anchor in anchors_of(leads), f"{target}#{anchor}"


def test_the_index_lists_every_page() -> None:
    index = (DOCS / "index.md").read_text(encoding="utf-8")
    listed = {str(DOCS / target) for target, _ in LINK.findall(index)}
    assert listed == {str(page) for page in DOCS.glob("*/*.md")}


def test_the_guide_to_the_report_names_every_section_in_order() -> None:
    guide = (DOCS / "how-to" / "report.md").read_text(encoding="utf-8")
    table = guide.partition("\n## The sections\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| ([^|]+?) \|", table, re.MULTILINE)
    named = [name for row in rows[1:] for name in row.split("; ")]
    assert named == [entry.load().title for entry in SECTIONS]


def test_the_readme_is_a_page_and_a_half() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert len(readme.splitlines()) <= 110
    assert len(re.sub(r"\]\([^)]*\)", "]", readme).split()) <= 900
    for section in ("Two commands", "Five questions", "How certain the results are"):
        assert f"\n## {section}\n" in readme
    questions = readme.partition("## Five questions")[2].partition("\n## ")[0]
    assert len(re.findall(r"^\| .*\? \| `tare .*` \| \[", questions, re.MULTILINE)) == 5
    assert "no figure of KVM or Xen on real hardware has been confirmed" in readme
