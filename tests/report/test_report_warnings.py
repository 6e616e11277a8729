"""Warnings of a page: a line each that ends where a clause does, and what to do."""

from __future__ import annotations

import inspect
import re
from dataclasses import replace
from pathlib import Path

import pytest

from analysis.analysis_simulate import SimulatedMetric, SimulatedRun, events_of, write_run
from tare.analysis import compare_runs, load_run
from tare.events import CellFinished, Check, Preflight, RunStarted
from tare.report.page import warnings
from tare.report.page.verdicts import answer_lines
from tare.report.page.warnings import LINE, Warned, ending_lines, warnings_of
from tare.report.sections.contract import SECTIONS

ARMS = {"bare": "bare", "a": "qemu", "b": "qemu"}
METRIC = SimulatedMetric("time", {"bare": 1.0, "a": 1.0, "b": 1.0}, "w")


def warned(
    folder: Path, emulated: tuple[str, ...] = (), blocks: int = 8, failed: int = 0
) -> list[Warned]:
    run = SimulatedRun([METRIC], arms=ARMS, emulated=frozenset(emulated), blocks=blocks)
    events = events_of(run)
    for place, event in enumerate(events):
        if failed and isinstance(event, CellFinished) and "/a/" in event.cell:
            events[place] = event.model_copy(update={"status": "failed", "reason": "it broke"})
            failed -= 1
    return list(warnings_of(compare_runs(load_run(write_run(folder, events)))))


def test_sections_that_warnings_refer_to_exist() -> None:
    named = set(re.findall("“([^”]+)”", inspect.getsource(warnings)))
    assert len(named) >= 3
    assert named <= {entry.load().title for entry in SECTIONS}


@pytest.mark.parametrize("pattern", [pattern for pattern, _ in warnings.ACTIONS])
def test_notes_that_an_action_belongs_to_exist(pattern: str) -> None:
    notes = {
        "Only 3 blocks: 6 are the least for a verdict, so all is preliminary.",
        "A smoke run of 1 block: it shows whether everything works, and gives no verdict.",
        "No arm shares a block with the baseline, bare: nothing can be compared.",
        "The study has no A/A pair, so nothing says how far identical arms differ here.",
        "The run has 1 failed cell of 24; what it observed does not count.",
        "memory-bandwidth measured cache bandwidth (arrays 25.56 MiB, last-level cache 260 MiB), "
        "and reports call it that: only arrays of at least 4 times the last-level cache measure "
        "memory.",
        "The environment changed during the run, at block 2: bare: kernel 6.1 to 6.2.",
        "The error level of 5 % is for each arm: if 3 arms all equal the baseline, up to 15 % of "
        "studies call at least one of them worse or better.",
    }
    assert sum(bool(re.match(pattern, note)) for note in notes) == 1


def test_notes_of_a_run_say_what_to_do(tmp_path: Path) -> None:
    found = {each.line: each.action for each in warned(tmp_path, blocks=3, failed=1)}
    few = next(line for line in found if line.startswith("Only 3 blocks"))
    assert "--blocks 6" in found[few]
    lost = "The run has 1 failed cell of 9; what it observed does not count."
    assert "“What failed, was withheld or skipped”" in found[lost]
    assert any("twin-of" in action for action in found.values())


@pytest.mark.parametrize(
    ("emulated", "words"), [(("a",), "Emulated: a. Its costs"), (("a", "b"), "a and b. Their")]
)
def test_one_emulated_arm_is_singular(
    tmp_path: Path, emulated: tuple[str, ...], words: str
) -> None:
    assert any(words in each.line for each in warned(tmp_path, emulated))


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("short: it stays.", "short: it stays."),
        (f"a ran Linux 6.1, and b 6.2: {'x ' * 60}", "a ran Linux 6.1, and b 6.2."),
        (f"One. Two; {'x ' * 60}", "One. Two."),
        ("x" * 200, "x" * (LINE - 1) + "…"),
    ],
)
def test_a_line_ends_with_a_clause(text: str, line: str) -> None:
    assert warnings._one_line(text) == line
    assert len(line) <= LINE


@pytest.mark.parametrize("width", [None, 40, 100])
def test_a_run_ends_with_what_makes_its_answer_worthless(tmp_path: Path, width: int | None) -> None:
    twin = SimulatedMetric("time", {"bare": 1.0, "again": 1.5, "a": 1.0, "b": 1.0}, "w")
    arms = {"bare": "bare", "again": "bare", "a": "qemu", "b": "qemu"}
    run = SimulatedRun([twin], arms=arms, emulated=frozenset())
    events = events_of(run)
    started = events[0]
    assert isinstance(started, RunStarted)
    study = {**started.study, "aa": ("bare", "again")}
    events[0] = started.model_copy(update={"study": study})
    failed = compare_runs(load_run(write_run(tmp_path / "failed", events)))
    lines = ending_lines(failed, 12, width)
    assert lines[0].startswith("Warning: The A/A pair failed"), lines
    assert any(line.startswith("Cost compared with bare") for line in lines)
    assert len(lines) <= 12
    fine = compare_runs(
        load_run(write_run(tmp_path / "fine", events_of(replace(run, metrics=[METRIC], arms=ARMS))))
    )
    assert ending_lines(fine, 12, width) == answer_lines(fine, 12, width)


@pytest.mark.parametrize("name", ["load", "priority"])
def test_a_run_ends_with_why_its_host_was_not_fit(tmp_path: Path, name: str) -> None:
    run = SimulatedRun([METRIC], arms=ARMS, emulated=frozenset())
    bad = Preflight(checks=(Check(name=name, level="bad", found="too much"),))
    events = [bad if isinstance(event, Preflight) else event for event in events_of(run)]
    found = compare_runs(load_run(write_run(tmp_path, events)))
    assert ending_lines(found, 12)[0] == f"Warning: The host was not fit for measuring ({name})."
    (unfit,) = [each for each in warnings_of(found) if "not fit" in each.line]
    # A bare machine with another priority than the others is not compared with them.
    assert unfit.worthless == (name == "priority")
