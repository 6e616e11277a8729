"""Compiled templates are kept where that can be, and never needed."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jinja2 import DictLoader, Environment

from tare.report.page.rendering import Compiled


def rendered(folder: Path, template: str = "{{ 6 * n }}") -> str:
    environment = Environment(loader=DictLoader({"t": template}), bytecode_cache=Compiled(folder))
    return environment.get_template("t").render(n=7)


@pytest.fixture
def writing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "dont_write_bytecode", False)


@pytest.mark.usefixtures("writing")
def test_a_template_is_compiled_once_and_again_when_it_changes(tmp_path: Path) -> None:
    assert rendered(tmp_path) == "42"
    (kept,) = tmp_path.iterdir()
    before = kept.stat().st_mtime_ns, kept.read_bytes()
    assert rendered(tmp_path) == "42"
    assert (kept.stat().st_mtime_ns, kept.read_bytes()) == before
    assert rendered(tmp_path, "{{ n }}") == "7"
    assert kept.read_bytes() != before[1]


@pytest.mark.usefixtures("writing")
def test_without_a_folder_to_keep_it_in_a_template_is_compiled(tmp_path: Path) -> None:
    assert rendered(tmp_path / "gone") == "42"
    assert not (tmp_path / "gone").exists()


def test_nothing_is_kept_where_python_keeps_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    assert rendered(tmp_path) == "42"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.fuzz
@given(st.binary(max_size=40), st.integers(0, 60))
def test_a_damaged_compiled_template_is_compiled_again(
    tmp_path_factory: pytest.TempPathFactory, damage: bytes, keep: int
) -> None:
    folder = tmp_path_factory.mktemp("kept")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "dont_write_bytecode", False)
        rendered(folder)
        (kept,) = folder.iterdir()
        # The code itself is only read after an intact header, as in Python's own compiled modules.
        kept.write_bytes(kept.read_bytes()[: min(keep, 30)] + damage)
        assert rendered(folder) == "42"
