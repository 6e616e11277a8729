"""Which files a selection of tests imports, and that no selected test is in another one."""

from __future__ import annotations

from pathlib import Path

import pytest

from selected_marks import marks_named_in, marks_required_by


@pytest.mark.parametrize(
    ("expression", "required"),
    [
        ("slow and boots and not acceptance", {"slow", "boots"}),
        ("slow and not boots and not acceptance", {"slow"}),
        ("not slow and not acceptance", set()),
        ("slow or boots", set()),
        ("not (slow and boots)", set()),
        ("fuzz", set()),
        ("", set()),
    ],
)
def test_only_a_certain_mark_is_required(expression: str, required: set[str]) -> None:
    assert marks_required_by(expression) == required


def test_marks_are_read_from_a_files_text(tmp_path: Path) -> None:
    file = tmp_path / "test_it.py"
    file.write_text("pytestmark = [pytest.mark.slow, pytest.mark.guest]\n")
    assert marks_named_in(file) == {"slow"}
