"""Marks by which `make test` selects tests, read without importing the tests."""

from __future__ import annotations

from pathlib import Path

IN_THE_FILE = ("slow", "boots")
"""Marks that a test's own file has to name, so that files without them need not be imported."""


def marks_named_in(path: Path) -> set[str]:
    """Return which of these marks the text of a file names."""
    text = path.read_text(encoding="utf-8")
    return {name for name in IN_THE_FILE if f"mark.{name}" in text}


def marks_required_by(expression: str) -> set[str]:
    """Return the marks without which no test is selected; none if that is not certain."""
    if "(" in expression or " or " in expression:
        return set()
    return set(expression.split(" and ")) & set(IN_THE_FILE)
