"""How long studies take is told in one place, and a plan's estimate agrees with it."""

from __future__ import annotations

import re
from dataclasses import dataclass

import pytest

from study.shipped_studies import FOLDER, NAMES, shipped_plan

ROOT = FOLDER.parent
SECONDS = {"min": 60.0, "h": 3600.0}
FACTOR = 2.0
"""What a plan may be wrong by: it does not know the computer."""
ROUNDED = 0.1
TOLD = re.compile(
    r"^\| `(?P<name>[\w-]+)` \|.*\| (?P<count>\d+) (?P<unit>min|h) for "
    r"(?P<blocks>\d+) blocks(?P<planned>, as planned)? \|$",
    re.MULTILINE,
)
TIME = re.compile(r"\b(min|minutes?|hours?)\b")


@dataclass(frozen=True)
class Told:
    """What the README tells of a study: seconds for so many blocks, measured or only planned."""

    seconds: float
    blocks: int
    planned: bool


def told() -> dict[str, Told]:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    return {
        found["name"]: Told(
            int(found["count"]) * SECONDS[found["unit"]],
            int(found["blocks"]),
            found["planned"] is not None,
        )
        for found in TOLD.finditer(text)
    }


def test_the_readme_tells_of_every_study_how_long_it_takes() -> None:
    assert sorted(told()) == sorted(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_a_plans_estimate_agrees_with_what_is_told(name: str) -> None:
    each = told()[name]
    planned_s = shipped_plan(name).block_s * each.blocks
    if each.planned:
        assert planned_s == pytest.approx(each.seconds, rel=ROUNDED)
    else:
        assert each.seconds / FACTOR < planned_s < each.seconds * FACTOR


def test_the_load_balancers_short_form_takes_less_than_ten_minutes_on_two_cpus() -> None:
    plan = shipped_plan("load-balancer-short", 2)
    assert plan.block_s * plan.study.blocks.most < 10 * SECONDS["min"]


@pytest.mark.parametrize("name", NAMES)
def test_a_studys_own_header_tells_no_time(name: str) -> None:
    header = (FOLDER / f"{name}.yaml").read_text(encoding="utf-8").partition("\nstudy:")[0]
    assert not TIME.search(header)


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
