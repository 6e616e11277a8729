"""What differs between two runs comes first, in every form; and unfit hosts keep gates open."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from markdown_it import MarkdownIt
from rich.console import Console

from analysis.analysis_runs import run
from analysis.analysis_simulate import SimulatedMetric, SimulatedRun, events_of, write_run
from run.run_driving import tare
from tare.analysis.model import CheckResult, Comparison
from tare.analysis.runs.gates import check, parse_gate, worst
from tare.analysis.runs.run_differences import (
    environment_differences,
    settings_sha256,
    study_differences,
)
from tare.events import Check, Event, Preflight, RunStarted
from tare.report.compare.changes import RunPair, changes_page
from tare.report.compare.gates import FORMATS
from tare.report.compare.run_doubts import doubts_of
from tare.report.terminal.run_changes import render_changes, render_pooled

GATE = "switch latency < +10 %"
BUSY = CheckResult("load", "bad", "88 % of the CPUs' time is in use", "top", "")

Change = Callable[[dict[str, Any]], object]


def with_study(comparison: Comparison, change: Change, options: tuple[str, ...] = ()) -> Comparison:
    (one,) = comparison.runs
    study = copy.deepcopy(dict(one.study))
    change(study)
    return replace(comparison, runs=(replace(one, study=study, changes=options),))


def nicer(study: dict[str, Any]) -> None:
    study["arms"]["vm"]["scheduling"] = {"nice": -5}


OPTIONS = ("--set arms.vm.scheduling.nice=-5",)
LISTED = "arms.vm.scheduling.nice: (not set) → -5"


def test_runs_of_one_study_do_not_differ_in_it() -> None:
    before, after = run(1), run(2)
    assert study_differences(before.runs[0], after.runs[0]) == ()
    assert settings_sha256(before.runs[0]) == settings_sha256(after.runs[0])


@pytest.mark.parametrize(
    ("change", "listed"),
    [
        (nicer, LISTED),
        (lambda s: s["blocks"].update(least=9), "blocks.least: 12 → 9"),
        (lambda s: s.update(shape={"vcpus": 4}), "shape.vcpus: (not set) → 4"),
        (lambda s: s.update(cpus=[2, 3]), "cpus: (not set) → 2 3"),
        (lambda s: s.update(kernel="host"), "kernel: (not set) → host"),
        (lambda s: s["arms"].pop("vm"), "arms.vm.platform: qemu → (not set)"),
        (
            lambda s: s.update(workloads={"tick": {"points": [{"samples": 7}]}}),
            "workloads.tick.points.0.samples: (not set) → 7",
        ),
        (
            lambda s: s.update(scenarios={"a": {"neighbours": [{"load": "cpu-load"}]}}),
            "scenarios.a.neighbours.0.load: (not set) → cpu-load",
        ),
    ],
)
def test_each_setting_that_differs_is_listed_and_changes_the_digest(
    change: Change, listed: str
) -> None:
    before, after = run(1), with_study(run(2), change)
    caveats = " ".join(doubts_of(before, after))
    assert "What was measured differs: " in caveats and listed in caveats
    assert settings_sha256(before.runs[0]) != settings_sha256(after.runs[0])
    assert before.runs[0].study_sha256 == after.runs[0].study_sha256, "the file is the same"


def test_an_arm_of_one_run_only_is_one_difference_and_comes_last() -> None:
    def change(study: dict[str, Any]) -> None:
        study["arms"]["other"] = {
            "platform": "oci",
            "options": {"runtime": "runc", "rootless": True},
        }
        nicer(study)

    before, after = run(1).runs[0], with_study(run(2), change).runs[0]
    found = [(each.what, each.after) for each in study_differences(before, after)]
    assert found == [("arms.vm.scheduling.nice", "-5"), ("arms.other.platform", "oci")]


def test_words_and_what_an_older_version_does_not_know_change_nothing() -> None:
    def words(study: dict[str, Any]) -> None:
        study |= {"title": "Another", "description": "Words", "kernel": None, "aa": study["aa"]}
        study["scenarios"] = {}

    before, after = run(1), with_study(run(2), words)
    assert study_differences(before.runs[0], after.runs[0]) == ()
    assert settings_sha256(before.runs[0]) == settings_sha256(after.runs[0])


def test_differences_come_first_in_text() -> None:
    console = Console(file=StringIO(), width=200)
    render_changes(run(1), with_study(run(2), nicer, OPTIONS), console)
    lines = console.file.getvalue().splitlines()  # type: ignore[attr-defined]
    assert lines[0].startswith("Note: What was measured differs: ") and LISTED in lines[0]
    assert lines[1].startswith("Note: The runs were started with different options: (none) → --set")


def test_differences_between_three_runs_are_reported_too() -> None:
    console = Console(file=StringIO(), width=200)
    render_pooled([run(1), run(2), with_study(run(3), nicer)], console)
    first, *rest = console.file.getvalue().splitlines()  # type: ignore[attr-defined]
    assert first.startswith("Note: r3 against r1: What was measured differs: ") and LISTED in first
    assert not any(line.startswith("Note:") for line in rest)


def test_differences_come_first_on_the_page_without_equal_digests() -> None:
    before, after = run(1), with_study(run(2), nicer, OPTIONS)
    pair = RunPair({"bare": before}, {"bare": after}, "bare")
    page = changes_page(pair, (), Path("nowhere"))
    assert LISTED in page.differences[0]
    assert page.environment is not None
    assert [cell.text for cell in page.environment.rows[0]][:2] == ["command line", "options"]
    digests = {value for name, value in page.facts if "SHA-256" in name}
    assert len(digests) == 2


def test_differences_come_first_in_markdown_and_junit() -> None:
    before, after = run(1), with_study(run(2), nicer, OPTIONS)
    doubts = doubts_of(before, after)
    checked = check(before, after, [parse_gate(GATE)])
    markdown = FORMATS["markdown"](checked, doubts)
    assert LISTED in markdown.splitlines()[0]
    tokens = MarkdownIt("commonmark").enable("table").parse(markdown)
    assert tokens[0].type == "bullet_list_open"
    text = FORMATS["text"](checked, doubts).splitlines()
    assert text[0].startswith("Note: ") and LISTED in text[0]
    suite = ElementTree.fromstring(FORMATS["junit"](checked, doubts))
    assert suite[0].tag == "properties"
    values = [str(each.get("value")) for each in suite[0]]
    assert [LISTED in value for value in values[:2]] == [True, False]
    assert LISTED not in "".join(values[2:])
    assert LISTED in str(suite[-1].text)


def test_images_platforms_placement_and_versions_are_listed() -> None:
    (one,), (other,) = run(1).runs, run(2).runs
    platforms = tuple(
        replace(p, versions={"qemu": "10.0"}, options={"cpu": "host"}) if p.arm == "vm" else p
        for p in other.platforms
    )
    machines = tuple(
        replace(m, placement={"cpus": [3]}) if m.arm == "vm" else m for m in other.machines
    )
    other = replace(other, platforms=platforms, machines=machines, versions={"tare": "9"})
    found = {str(each) for each in environment_differences(one, other)}
    assert found == {
        "version tare: 0 → 9",
        "vm versions.qemu: (not set) → 10.0",
        "vm options.cpu: (not set) → host",
        "vm placement.cpus: (absent) → 3",
    }


# --- Unfit hosts


def unfit(comparison: Comparison) -> Comparison:
    (one,) = comparison.runs
    return replace(comparison, runs=(replace(one, checks=(*one.checks, BUSY)),))


@pytest.mark.parametrize("which", ["before", "after", "both"])
@pytest.mark.parametrize(("limit", "decided"), [("+10 %", "holds"), ("-10 %", "fails")])
def test_a_gate_on_an_unfit_run_is_open_unless_that_is_accepted(
    which: str, limit: str, decided: str
) -> None:
    before, after = run(1), run(2)
    gates = [parse_gate(f"switch latency < {limit}"), parse_gate("switch latency < 9 s")]
    assert [c.outcome for c in check(before, after, gates)] == [decided, "holds"]
    before = unfit(before) if which != "after" else before
    after = unfit(after) if which != "before" else after
    found = check(before, after, gates)
    assert {one.outcome for one in found} == {"open"} and worst(found) == "open"
    word = "second" if which == "after" else "first"
    for form in ("text", "markdown", "junit"):
        output = FORMATS[form](found)
        assert f"the host of the {word} run was not fit for measuring: load (88 %" in output
        assert "--accept-unfit" in output
    accepted = check(before, after, gates, accept_unfit=True)
    assert [one.outcome for one in accepted] == [decided, "holds"]
    assert any("was not fit for measuring" in doubt for doubt in doubts_of(before, after))


def test_a_warning_keeps_no_gate_open() -> None:
    before = unfit(run(1))
    (one,) = before.runs
    warned = replace(one, checks=(replace(BUSY, level="warn"),))
    found = check(replace(before, runs=(warned,)), run(2), [parse_gate(GATE)])
    assert worst(found) == "holds"


def test_where_time_counts_instructions_a_busy_host_keeps_no_gate_open() -> None:
    def lab(study: dict[str, Any]) -> None:
        study |= {"host": {"kind": "lab"}, "lab": {"deterministic": True}}

    before, after = (with_study(unfit(run(seed)), lab) for seed in (1, 2))
    assert worst(check(before, after, [parse_gate(GATE)])) == "holds"


def test_the_command_ends_with_three_and_a_resumed_run_stays_unfit(tmp_path: Path) -> None:
    metric = SimulatedMetric("latency", dict.fromkeys(("bare", "bare-again", "qemu-pv"), 1.0),
                             workload="switch")  # fmt: skip
    busy = Preflight(checks=(Check(name="load", level="bad", found="88 % in use"),))

    def events(name: str) -> list[Event]:
        found = events_of(SimulatedRun([metric], run=name, seed=len(name), blocks=12))
        return found if name == "a" else [found[0], busy, *found[1:]]

    folders = [write_run(tmp_path / name, events(name)) for name in ("a", "bb")]
    changed = [
        event.model_copy(update={"changes": ("--blocks 12",)})
        if isinstance(event, RunStarted)
        else event
        for event in events("ccc")
    ]
    folders.append(write_run(tmp_path / "c", changed))
    done = tare("compare", *folders[:2], "--gate", GATE)
    assert done.returncode == 3, done.stdout + done.stderr
    assert "the host of the second run was not fit for measuring: load (88 % in use)" in done.stdout
    done = tare("compare", folders[0], folders[2], "--gate", GATE, "--accept-unfit")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "started with different options: (none) → --blocks 12" in done.stdout
