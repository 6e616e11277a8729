"""The times of studies are listed in one place, and a plan's estimate agrees with them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import pytest

from study.shipped_studies import FOLDER, NAMES, shipped_plan
from tare.analysis.effects.verdict import LEVEL
from tare.analysis.statistics.maxt import least_blocks
from tare.study.reading.shipped import RENAMED, find_study

ROOT = FOLDER.parent
SECONDS = {"min": 60.0, "h": 3600.0}
FACTOR = 2.0
"""The factor by which a plan's estimate may be wrong: it does not know the computer."""
ROUNDED = 0.1
ROW = re.compile(
    r"^\| `(?P<name>[\w-]+)` \|.*\| (?P<count>\d+) (?P<unit>min|h) for "
    r"(?P<blocks>\d+) blocks(?P<planned>, as planned)? \|$",
    re.MULTILINE,
)
UNIT_OF_TIME = re.compile(r"\b(min|minutes?|hours?)\b")


@dataclass(frozen=True)
class Time:
    """The time that the page of studies lists: seconds for so many blocks, measured or planned."""

    seconds: float
    blocks: int
    planned: bool


def listed() -> dict[str, Time]:
    text = (ROOT / "docs" / "reference" / "studies.md").read_text(encoding="utf-8")
    return {
        found["name"]: Time(
            int(found["count"]) * SECONDS[found["unit"]],
            int(found["blocks"]),
            found["planned"] is not None,
        )
        for found in ROW.finditer(text)
    }


def test_the_page_of_studies_lists_the_time_of_each() -> None:
    assert sorted(listed()) == sorted(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_a_plans_estimate_agrees_with_the_listed_time(name: str) -> None:
    each = listed()[name]
    planned_s = shipped_plan(name).block_s * each.blocks
    if each.planned:
        assert planned_s == pytest.approx(each.seconds, rel=ROUNDED)
    else:
        assert each.seconds / FACTOR < planned_s < each.seconds * FACTOR


SHORT = sorted(path.stem for path in FOLDER.glob("*-short.yaml"))


@pytest.mark.parametrize("name", SHORT)
def test_a_short_study_reaches_verdicts_in_twenty_minutes_on_two_cpus(name: str) -> None:
    plan = shipped_plan(name, 2)
    assert plan.study.blocks.least >= least_blocks(LEVEL)
    assert plan.block_s * plan.study.blocks.most <= 20 * SECONDS["min"]


def test_studies_with_too_few_blocks_for_verdicts_are_named_smoke() -> None:
    few = {
        path.stem
        for path in FOLDER.glob("*.yaml")
        if shipped_plan(path.stem, 2).study.blocks.most < least_blocks(LEVEL)
    }
    assert few == {path.stem for path in FOLDER.glob("*-smoke.yaml")} | {"realtime-long"}


@pytest.mark.parametrize(("old", "new"), RENAMED.items())
def test_a_renamed_study_is_found_by_its_old_name(old: str, new: str) -> None:
    assert find_study(Path(old)) == find_study(Path(new))
    assert find_study(Path(old)).name == f"{new}.yaml"


@pytest.mark.parametrize("name", NAMES)
def test_a_studys_own_header_has_no_time(name: str) -> None:
    header = (FOLDER / f"{name}.yaml").read_text(encoding="utf-8").partition("\nstudy:")[0]
    assert not UNIT_OF_TIME.search(header)


def test_no_other_document_promises_the_time_of_a_study() -> None:
    runs = re.compile(rf"^tare run (?:studies/)?({'|'.join(NAMES)})(?:\.yaml)?\b")
    lines = [
        f"{document.name}: {line}"
        for document in sorted((ROOT / "docs").glob("**/*.md"))
        for line in document.read_text(encoding="utf-8").splitlines()
        if runs.search(line)
    ]
    assert len(lines) > 10
    assert [line for line in lines if re.search(r"\d+ (min|minutes?|h|hours?)\b", line)] == []
