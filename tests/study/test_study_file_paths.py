"""Files that a study names are found next to it, wherever the command is typed."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from pydantic import Field

from study.study_catalog import CATALOG, Options
from tare.errors import InputError
from tare.study.model.forms import StudyPath
from tare.study.model.study import Catalog, Study
from tare.study.reading.load import load_study, parse_study, restore_study, wrong_in_study
from tare.study.reading.yamltext import StudyError


class Named(Options):
    some_path: StudyPath
    the_number: int = 0


class Filed(Options):
    files: dict[str, StudyPath] = Field(default_factory=dict)
    named: dict[str, Named] = Field(default_factory=dict)


KNOWN = Catalog(CATALOG.platforms, {**CATALOG.workloads, "filed": Filed})
TEXT = """\
study: files
baseline: bare
arms: {bare: {platform: bare}}
workloads:
  filed:
    files: {/opt/my_data: ./data}
    named:
      a_b: {some-path: ./data, the-number: 3}
"""


def load(folder: Path, text: str = TEXT) -> Study:
    path = folder / "s.yaml"
    path.write_text(text)
    return load_study(path, KNOWN)


def test_paths_are_relative_to_the_study(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "data").write_text("")
    monkeypatch.chdir("/")
    study = load(tmp_path)
    assert study.workloads["filed"].points == (
        {
            "files": {"/opt/my_data": "./data"},
            "named": {"a_b": {"some_path": "./data", "the_number": 3}},
        },
    )
    assert study.folder == str(tmp_path)
    # What is stored can be read again where the file is no longer there.
    (tmp_path / "data").unlink()
    assert restore_study(json.loads(study.model_dump_json()), KNOWN) == study


def test_missing_file_is_reported_with_its_line(tmp_path: Path) -> None:
    with pytest.raises(StudyError) as caught:
        load(tmp_path)
    assert f"s.yaml:6:27: workloads.filed.files./opt/my_data: there is no file {tmp_path}/data" in (
        caught.value.message
    )


@pytest.mark.skipif(os.geteuid() == 0, reason="root can read everything")
def test_unreadable_file_is_reported(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("")
    (tmp_path / "data").chmod(0)
    with pytest.raises(InputError, match="cannot be read"):
        load(tmp_path)


def test_keys_within_names_of_ones_own_are_checked(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("")
    with pytest.raises(StudyError, match=r"s\.yaml:8:32: .*a_b\.the-nummer: unknown key; did you"):
        load(tmp_path, TEXT.replace("the-number", "the-nummer"))


def test_the_folder_is_nothing_that_a_study_says(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("")
    with pytest.raises(StudyError, match="folder: unknown key"):
        load(tmp_path, f"{TEXT}folder: /\n")


def test_without_a_folder_no_path_is_looked_at() -> None:
    study = parse_study(TEXT.encode(), "s.yaml", KNOWN)
    assert study.workloads["filed"].points[0]["files"] == {"/opt/my_data": "./data"}


def test_fault_found_later_is_reported_with_its_line(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("")
    load(tmp_path)
    error = wrong_in_study(
        tmp_path / "s.yaml",
        [
            (("workloads", "filed", "files", "/opt/my_data"), "is wrong"),
            (("workloads", "filed", "none", "such"), "is wrong too"),
        ],
        "mend it",
    )
    assert error.message.splitlines() == [
        f"{tmp_path}/s.yaml:5:3: workloads.filed.none.such: is wrong too",
        f"{tmp_path}/s.yaml:6:27: workloads.filed.files./opt/my_data: is wrong",
    ]
    assert error.hint == "mend it"


def test_fault_found_later_without_the_file_is_reported_by_key(tmp_path: Path) -> None:
    error = wrong_in_study(tmp_path / "s.yaml", [(("workloads", "filed"), "is wrong")], "mend it")
    assert error.message == f"{tmp_path}/s.yaml: workloads.filed: is wrong"
