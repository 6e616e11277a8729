"""Results of gates for people and programs, and the command that prints them."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import jsonschema  # type: ignore[import-untyped]
import pytest
from junitparser import Failure, JUnitXml, Skipped
from markdown_it import MarkdownIt
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from analysis.analysis_simulate import SimulatedMetric, SimulatedRun, events_of, write_run
from run.run_driving import tare
from tare.analysis import compare_runs, load_run
from tare.analysis.runs.gates import Checked, check, parse_gate
from tare.report.compare.gates import FORMATS
from tare.run.lifecycle.known_runs import KnownRun, keep_run

GATES = ("switch latency < +3 %", "switch latency < +10 %", "switch latency < +25 %")


def folder(place: Path, seed: int, vm: float, blocks: int = 12) -> Path:
    arms = {"bare": "bare", "bare-again": "bare", "vm": "qemu"}
    truth = {"bare": 1e-6, "bare-again": 1e-6, "vm": vm * 1e-6}
    metric = SimulatedMetric("latency", truth, workload="switch", spreads=(0.03, 0.0))
    simulated = SimulatedRun([metric], arms=arms, blocks=blocks, seed=seed, run=f"r{seed}")
    return write_run(place, events_of(simulated))


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, Path]:
    place = tmp_path_factory.mktemp("runs")
    return folder(place / "a", 1, 1.2), folder(place / "b", 2, 1.32), folder(place / "c", 3, 1.2)


@pytest.fixture(scope="module")
def checked(runs: tuple[Path, Path, Path]) -> tuple[Checked, ...]:
    before, after = (compare_runs(load_run(run)) for run in runs[:2])
    found = check(before, after, [parse_gate(gate) for gate in GATES])
    assert [one.outcome for one in found] == ["fails", "open", "holds"]
    return found


def test_people_read_the_outcome_of_each_and_of_all(checked: tuple[Checked, ...]) -> None:
    text = FORMATS["text"](checked).splitlines()
    assert [line.split(":")[0] for line in text[:3]] == ["✗ fails", "? open", "✓ holds"]
    assert text[3].startswith("fails (3 gates, one family")
    table = FORMATS["markdown"](checked).splitlines()
    assert table[0].startswith("**Gates: fails**")
    assert [line.count("|") for line in table[2:]] == [5] * 5


def test_junit_counts_failures_and_what_is_open(checked: tuple[Checked, ...]) -> None:
    suite = ElementTree.fromstring(FORMATS["junit"](checked))
    counts = [suite.get(name) for name in ("tests", "failures", "skipped", "errors")]
    assert counts == ["3", "1", "1", "0"]
    inside = [[child.tag for child in case] for case in suite]
    assert inside == [["failure"], ["skipped"], []]


def test_json_holds_estimates_with_their_ends(checked: tuple[Checked, ...]) -> None:
    bmf = json.loads(FORMATS["bmf"](checked))
    ((name, measures),) = bmf.items()
    assert "switch latency of vm" in name
    for measure in measures.values():
        assert measure["lower_value"] < measure["value"] < measure["upper_value"]
    for entry in json.loads(FORMATS["github"](checked)):
        assert set(entry) == {"name", "unit", "value", "range", "extra"}
        assert entry["value"] == pytest.approx(1.32, rel=0.05)


def test_openmetrics_text_has_one_sample_a_line(checked: tuple[Checked, ...]) -> None:
    lines = FORMATS["openmetrics"](checked).splitlines()
    assert lines[-1] == "# EOF"
    samples = [line for line in lines if not line.startswith("#")]
    assert len(samples) == 5 * 3
    pattern = r'tare_\w+\{(\w+="([^"\\]|\\.)*",?)+\} [-+0-9.eInf]+'
    assert all(re.fullmatch(pattern, line) for line in samples)
    assert [line.rsplit(" ", 1)[1] for line in samples[-3:]] == ["1.0", "3.0", "0.0"]


def test_parsers_of_other_programs_read_each_output_format(checked: tuple[Checked, ...]) -> None:
    """JUnit, OpenMetrics and Markdown by the parsers of those who read them."""
    suite = JUnitXml.fromstring(FORMATS["junit"](checked).encode())
    assert (suite.tests, suite.failures, suite.skipped, suite.errors) == (3, 1, 1, 0)
    outcomes = [[type(r) for r in case.result] for cases in suite for case in cases]
    assert outcomes == [[Failure], [Skipped], []]
    families = {f.name: f for f in text_string_to_metric_families(FORMATS["openmetrics"](checked))}
    assert [sample.value for sample in families["tare_gate"].samples] == [1, 3, 0]
    assert families["tare_gate"].samples[0].labels["gate"] == GATES[0]
    assert families["tare_change"].samples[0].value == checked[0].change.change
    hostile = [replace(one, gate=replace(one.gate, text='a\\"b\n| < `c`')) for one in checked[:1]]
    (named, *_) = text_string_to_metric_families(FORMATS["openmetrics"](hostile))
    assert '"' in named.samples[0].labels["gate"]
    assert JUnitXml.fromstring(FORMATS["junit"](hostile).encode()).tests == 1
    for results, rows in ((checked, 3), (hostile, 1)):
        tokens = MarkdownIt("commonmark").enable("table").parse(FORMATS["markdown"](results))
        kinds = [token.type for token in tokens]
        assert kinds.count("table_open") == 1 and kinds.count("tr_open") == rows + 1
        assert kinds.count("td_open") == 4 * rows
        codes = [
            c.content for token in tokens for c in token.children or () if c.type == "code_inline"
        ]
        assert codes == ([*GATES] if rows == 3 else ["a\\\"b | < 'c'"]), "as written, not escaped"


def test_json_has_the_forms_that_its_readers_ask_for(checked: tuple[Checked, ...]) -> None:
    """Bencher's metric format, and the custom format of github-action-benchmark."""
    number = {"type": "number"}
    metric = {
        "type": "object",
        "required": ["value"],
        "additionalProperties": False,
        "properties": dict.fromkeys(("value", "lower_value", "upper_value"), number),
    }
    measures = {"type": "object", "minProperties": 1, "additionalProperties": metric}
    bencher = {"type": "object", "minProperties": 1, "additionalProperties": measures}
    jsonschema.validate(json.loads(FORMATS["bmf"](checked)), bencher)
    text = {"type": "string"}
    action = {
        "type": "array",
        "minItems": 1,
        "items": {
            "type": "object",
            "required": ["name", "unit", "value"],
            "additionalProperties": False,
            "properties": {
                "name": text,
                "unit": text,
                "value": number,
                "range": text,
                "extra": text,
            },
        },
    }
    jsonschema.validate(json.loads(FORMATS["github"](checked)), action)


@pytest.mark.parametrize(
    ("gate", "status"), [*zip(GATES, (1, 3, 0), strict=True), ("switch latency < 2 us", 0)]
)
def test_the_exit_status_is_the_outcome(
    runs: tuple[Path, Path, Path], gate: str, status: int
) -> None:
    done = tare("compare", *runs[:2], "--gate", gate)
    assert done.returncode == status, done.stderr
    assert gate in done.stdout


def test_runs_are_compared_by_effects_and_many_by_what_they_say_together(
    runs: tuple[Path, Path, Path], tmp_path: Path
) -> None:
    two = tare("compare", *runs[:2])
    assert two.returncode == 0, two.stderr
    assert "After ÷ before" in two.stdout and "vm" in two.stdout
    # 1.2 against 1.32 of the baseline's; the other run is as the first one.
    assert [line.split("|")[-2].strip() for line in two.stdout.splitlines() if "| vm" in line] == [
        "worse"
    ]
    three = tare("compare", *runs)
    assert three.returncode == 0, three.stderr
    assert "Between runs" in three.stdout
    gates = tmp_path / "gates.yaml"
    gates.write_text("- switch latency < +3 %\n- {gate: switch latency < +3 %, floor: 1}\n")
    out = tmp_path / "gates.xml"
    done = tare("compare", *runs[:2], "--gates", gates, "--format", "junit", "--out", out)
    assert done.returncode == 1, done.stderr
    assert ElementTree.parse(out).getroot().get("tests") == "2"


def test_output_without_gates_goes_to_the_file_that_out_names(
    runs: tuple[Path, Path, Path], tmp_path: Path
) -> None:
    out = tmp_path / "told.txt"
    for arguments in ((runs[0],), (runs[0], "--pairs"), runs[:2], runs):
        shown = tare("compare", *arguments)
        done = tare("compare", *arguments, "--out", out)
        assert done.returncode == 0, done.stderr
        assert out.read_text() == shown.stdout
        assert done.stdout == f"wrote {out}\n"
    for there in (tmp_path, tmp_path / "none" / "told.txt"):
        refused = tare("compare", runs[0], "--out", there)
        assert refused.returncode == 2 and "--out" in refused.stderr, refused.stderr


def test_gates_use_how_far_runs_of_one_set_up_differ(
    runs: tuple[Path, Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By an assumption, by repeated runs that are named, and by the history of the host."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    again = [folder(tmp_path / str(seed), seed, 1.2) for seed in (11, 12, 13)]
    gate = ("compare", *runs[:2], "--gate", "switch latency < +25 %")
    assert "an assumed 1 % (1 SD of an effect from run to run)" in tare(*gate).stdout
    chosen = tare(*gate, "--run-variation", "0.5 %")
    assert "assuming that runs of one set-up differ by 0.5 % (1 SD)" in chosen.stdout
    named = tare(*gate, *(part for run in again for part in ("--repeat-run", run)))
    assert "variation between 4 runs of one set-up (named with --repeat-run)" in named.stdout
    for path, seed in zip(again, (11, 12, 13), strict=True):
        keep_run(KnownRun(f"r{seed}", "simulated", ("local",), seed, "complete", path))
    known = tare(*gate)
    assert "variation between 4 runs of one set-up (from this host's history)" in known.stdout
    assert tare(*gate, "--run-variation", "much").returncode == 2
    assert tare("compare", *runs[:2], "--run-variation", "1 %").returncode == 2
    assert tare(*gate, "--repeat-run", runs[0]).returncode == 2


def test_wrong_input_is_reported_with_status_two(runs: tuple[Path, Path, Path]) -> None:
    for arguments in (
        (runs[0], "--gate", GATES[0]),
        (*runs[:2], "--gate", "switch latency"),
        (*runs[:2], "--gate", "switch rate < 3 %"),
        (runs[0], "--baseline", "nobody"),
        (runs[0], runs[0]),
        (*runs[:2], "--format", "junit"),
    ):
        done = tare("compare", *arguments)
        assert done.returncode == 2, (arguments, done.stdout, done.stderr)
    other = tare("compare", runs[0], "--baseline", "vm")
    assert other.returncode == 0, other.stderr
    assert "bare" in other.stdout
