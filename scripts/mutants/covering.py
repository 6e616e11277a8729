"""Which tests run a line: only they can notice a mistake in it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

from coverage import CoverageData

OPTIONS = ("-q", "--no-header", "-p", "no:cacheprovider", "-m", "not slow and not acceptance")


_FAILED = re.compile(r"^(?:FAILED|ERROR) (tests/[^\s\[]+::[^\s\[]+)", re.MULTILINE)


class TestsFailed(Exception):
    """The tests fail without any mistake, so they can tell nothing."""


def run_tests(
    tree: Path, tests: Iterable[str], limit_s: float | None = None, covered: Path | None = None
) -> tuple[bool, str]:
    """Run tests in a tree of Tare.

    Args:
        tree: Its root.
        tests: Files, or tests by name.
        limit_s: When to give up, seconds; that is as if one had failed.
        covered: Where to write which test ran which line.

    Returns:
        Whether they passed, and what was printed.
    """
    paths = os.pathsep.join(str(tree / part) for part in ("src", "tests", ""))
    environment = {**os.environ, "PYTHONPATH": paths, "PYTHONDONTWRITEBYTECODE": "1"}
    watched: list[str] = []
    if covered is not None:
        settings = tree / ".coveragerc"
        settings.write_text(
            f"[run]\ndynamic_context = test_function\ndata_file = {covered}\nsource = src/tare\n"
        )
        watched = ["-m", "coverage", "run", f"--rcfile={settings}"]
    until = () if watched else ("-x",)
    command = [sys.executable, *watched, "-m", "pytest", *OPTIONS, *until, *tests]
    try:
        told = subprocess.run(
            command, cwd=tree, env=environment, capture_output=True, text=True,
            timeout=limit_s, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return False, f"took more than {limit_s:.0f} s"
    return told.returncode == 0, told.stdout + told.stderr


class Covering:
    """The tests of each line, as one run of all of them found."""

    def __init__(self, tree: Path, tests: Iterable[str], data: Path) -> None:
        passed, told = run_tests(tree, tests, covered=data)
        self.failed = () if passed else tuple(_FAILED.findall(told))
        """Tests that fail without any mistake: they can tell nothing, and are left out."""
        if not passed and not self.failed:
            raise TestsFailed(told[-4000:])
        self._data = CoverageData(str(data))
        self._data.read()
        self._tree = tree
        self._files = {path.stem: path for path in (tree / "tests").rglob("test_*.py")}

    def tests_of(self, path: Path, line: int) -> list[str]:
        """Return the tests that run a line, by pytest's names.

        Args:
            path: The file, as seen from the tree's root.
            line: From 1 on.
        """
        lines = self._data.contexts_by_lineno(str(self._tree / path))
        names = {self._named(each) for each in lines.get(line, ())}
        return sorted(names - {"", *self.failed})

    def _named(self, context: str) -> str:
        """Turn a function's full name into that of a test; empty for what is none."""
        module, _, function = context.rpartition(".")
        path = self._files.get(module.rpartition(".")[2])
        return f"{path.relative_to(self._tree)}::{function}" if path else ""
