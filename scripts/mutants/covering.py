"""Find the tests that run a line: only they can notice a mistake in it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterable
from itertools import chain
from pathlib import Path

from coverage import CoverageData

# One seed for all property tests: they must try the same with and without a mistake.
OPTIONS = (
    *("-q", "--no-header", "-p", "no:cacheprovider", "--hypothesis-seed=0"),
    *("-m", "not slow and not acceptance"),
)


_PLUGIN = "mutants_contexts"
_CONTEXTS = """\
import coverage
import pytest


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item):
    coverage.Coverage.current().switch_context(item.nodeid)
    try:
        return (yield)
    finally:
        coverage.Coverage.current().switch_context("")
"""
"""A plugin that records for each line the tests that run it. Coverage's own method uses the name of
the outermost function, which for a property test is a function of hypothesis."""
_FAILED = re.compile(r"^(?:FAILED|ERROR) (tests/[^\s\[]+::[^\s\[]+)", re.MULTILINE)


class TestsFailed(Exception):
    """The tests fail without any mistake, so they cannot detect one."""


def run_tests(
    tree: Path, tests: Iterable[str], limit_s: float | None = None, covered: Path | None = None
) -> tuple[bool, str]:
    """Run tests in a tree of Tare.

    Args:
        tree: Its root.
        tests: Files, or tests by name.
        limit_s: Time limit in seconds; exceeding it counts as a failure.
        covered: The file for the record of the tests that ran each line.

    Returns:
        Whether they passed, and their output.
    """
    paths = os.pathsep.join(str(tree / part) for part in ("src", "tests", ""))
    environment = {**os.environ, "PYTHONPATH": paths, "PYTHONDONTWRITEBYTECODE": "1"}
    watched: list[str] = []
    more = ["-x"]
    if covered is not None:
        settings = tree / ".coveragerc"
        settings.write_text(f"[run]\ndata_file = {covered}\nsource = src/tare\n")
        (tree / f"{_PLUGIN}.py").write_text(_CONTEXTS)
        watched = ["-m", "coverage", "run", f"--rcfile={settings}"]
        more = ["-p", _PLUGIN]
    command = [sys.executable, *watched, "-m", "pytest", *OPTIONS, *more, *tests]
    try:
        done = subprocess.run(
            command, cwd=tree, env=environment, capture_output=True, text=True,
            timeout=limit_s, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return False, f"took more than {limit_s:.0f} s"
    return done.returncode == 0, done.stdout + done.stderr


class Covering:
    """The tests that run each line, found by one run of all tests."""

    def __init__(self, tree: Path, tests: Iterable[str], data: Path) -> None:
        passed, output = run_tests(tree, tests, covered=data)
        self.failed = () if passed else tuple(_FAILED.findall(output))
        """Tests that fail without any mistake: they cannot detect one, and are left out."""
        if not passed and not self.failed:
            raise TestsFailed(output[-4000:])
        self._data = CoverageData(str(data))
        self._data.read()
        self._tree = tree

    def tests_of(self, path: Path, line: int) -> list[str]:
        """Return the tests that run a line, by pytest's names.

        A line that runs when its module is imported, such as a constant's, has no test of its own.
        For it, return all tests that run any line of the file.

        Args:
            path: The file, relative to the tree's root.
            line: The line, counted from 1.
        """
        lines = self._data.contexts_by_lineno(str(self._tree / path))
        return self._tests(lines.get(line, ())) or self._tests(chain(*lines.values()))

    def _tests(self, contexts: Iterable[str]) -> list[str]:
        return sorted({each.partition("[")[0] for each in contexts} - {"", *self.failed})
