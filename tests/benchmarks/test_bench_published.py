"""The table of published results: what is stale is called stale."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import __main__ as runner
from benchmarks import _published
from benchmarks._results import Goal, Result, finish
from benchmarks._source import ROOT, source_digest, sources_of

MODULE = '''"""A module."""


def double(value: int) -> int:
    """Return it twice."""
    return 2 * value
'''


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    (tmp_path / "src").mkdir()
    (tmp_path / "src/one.py").write_text(MODULE)
    (tmp_path / "src/two.rs").write_text("// what it does\nfn two() -> u8 {\n    2\n}\n")
    return tmp_path


@pytest.mark.parametrize(
    ("file", "before", "after"),
    [
        ("one.py", "Return it twice.", "Return the double."),
        ("one.py", "    return", "    # why\n    return"),
        ("one.py", "2 * value", "2  *  value"),
        ("two.rs", "// what it does", "// what it really does"),
        ("two.rs", "    2\n", "        2\n"),
    ],
)
def test_words_and_formatting_leave_the_digest_unchanged(
    tree: Path, file: str, before: str, after: str
) -> None:
    digest = source_digest(["src"], tree)
    path = tree / "src" / file
    changed = path.read_text().replace(before, after)
    assert changed != path.read_text()
    path.write_text(changed)
    assert source_digest(["src"], tree) == digest


@pytest.mark.parametrize(
    ("file", "before", "after"),
    [("one.py", "2 * value", "3 * value"), ("two.rs", "    2\n", "    3\n")],
)
def test_another_behaviour_changes_the_digest(
    tree: Path, file: str, before: str, after: str
) -> None:
    digest = source_digest(["src"], tree)
    path = tree / "src" / file
    path.write_text(path.read_text().replace(before, after))
    assert source_digest(["src"], tree) != digest


def test_a_source_that_is_missing_is_an_error(tree: Path) -> None:
    with pytest.raises(FileNotFoundError, match="SOURCES"):
        source_digest(["src", "gone"], tree)


@pytest.mark.parametrize("name", runner.names())
def test_the_stated_sources_of_every_benchmark_exist(name: str) -> None:
    assert [path for path in sources_of(name) if not (ROOT / path).exists()] == []


@pytest.fixture
def published(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """One result, measured on the source of now, published in a folder of its own."""
    machine = {"cpu_model": "A CPU", "cpus": 2, "memory_bytes": 2**30, "commit": "abc1234"}
    met = Goal("recording a sample", "a bare chain", 3.0, 1.5, "ns")
    missed = Goal("samples", "oslat", 1.0, None, "", "at least", "oslat is missing")
    finish(Result("tick_loop", (met, missed)), machine, tmp_path)
    folder = tmp_path / "published"
    _published.publish("tick_loop", tmp_path, folder)
    monkeypatch.setattr(_published, "PUBLISHED", folder)
    return folder


def test_a_result_of_this_source_is_current(published: Path) -> None:
    table = _published.table()
    assert (
        "| tick_loop | recording a sample | a bare chain | at most 3.00 ns | 1.50 ns | met |"
        in table
    )
    assert "| not measured | MISSED |" in table
    assert table.count("| current |") == 2
    assert table.count("A CPU") == 1


def test_a_stale_result_that_is_shown_as_current_is_a_fault(
    published: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"text\n{_published.BEGIN}\n{_published.END}\nmore\n")
    assert any("make docs" in fault for fault in _published.check(page))
    page.write_text(_published.fill(page.read_text()))
    assert _published.check(page) == []
    path = published / "tick_loop.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "source": "of before"}))
    faults = _published.check(page)
    assert sum("presented as current" in fault for fault in faults) == 2
    page.write_text(_published.fill(page.read_text()))
    assert _published.check(page) == []
    assert page.read_text().count("| stale |") == 2
    assert page.read_text().endswith("more\n")


def test_a_page_without_marks_is_refused() -> None:
    with pytest.raises(ValueError, match="lacks"):
        _published.fill("a page")


def test_the_short_run_names_benchmarks_that_exist() -> None:
    assert set(runner.SHORT) <= set(runner.names())
