"""A user's own program, measured for real in a study alone; and the messages for its faults."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from run.run_driving import assert_no_ledger_is_left, of_type, tare

ROOT = Path(__file__).parents[2]
STUDY = """\
study: mine
baseline: bare
blocks: {least: 1, most: 1}
arms:
  bare: {platform: bare}
ARMS
workloads:
  mine:
    workload: command
    argv: [/opt/mine/hello, "7"]
    expect: 100ms
    toolbox:
      packages: []
      files: {/opt/mine/hello: ./hello}
    metrics:
      speed: {unit: B/s, better: higher, regex: 'speed: ([0-9]+) MB/s', scale: 1e6}
      p99: {unit: s, better: lower, field: 'latency[0].p99', scale: 1e-6, kind: tail}
    check: {contains: hello}
  wrong:
    workload: command
    argv: [sh, -c, 'echo it went wrong']
    expect: 100ms
    check: {contains: hello}
"""
PROGRAM = """\
#!/bin/sh
echo hello: speed: $1 MB/s
echo '{"latency": [{"p99": 81}]}'
"""


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A state directory of the test's own, so that runs of the user are not in the way."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path


def written(home: Path, text: str = STUDY, arms: str = "") -> Path:
    (home / "hello").write_text(PROGRAM)
    (home / "hello").chmod(0o755)
    path = home / "mine.yaml"
    path.write_text(text.replace("ARMS\n", arms))
    return path


ARMS = [
    pytest.param("", id="bare"),
    pytest.param(
        "  other: {platform: oci}\n",
        id="oci",
        marks=[
            pytest.mark.container,
            pytest.mark.skipif(not shutil.which("runc"), reason="runc is not installed"),
        ],
    ),
    pytest.param("  other: {platform: qemu}\n", id="qemu", marks=pytest.mark.guest),
]


@pytest.mark.slow
@pytest.mark.boots
@pytest.mark.skipif(os.geteuid() != 0, reason="entering a toolbox needs root")
@pytest.mark.parametrize("arms", ARMS)
def test_figures_are_recorded_and_wrong_output_fails_the_cell(home: Path, arms: str) -> None:
    out = home / "out"
    done = tare("run", written(home, arms=arms), "--out", out)
    # Cells that fail are reported, and do not end a run.
    assert done.returncode in (0, 1), done.stdout + done.stderr
    assert of_type(out, "run_finished")[0]["status"] == "complete", done.stdout
    cells = 2 if arms else 1
    seen = [e for e in of_type(out, "observation") if e["metric"] in ("speed", "p99")]
    assert len(seen) == 2 * cells
    for event in seen:
        value = {"speed": 7e6, "p99": 81e-6}[event["metric"]]
        unit, kind = {"speed": ("B/s", "typical"), "p99": ("s", "tail")}[event["metric"]]
        assert (event["unit"], event["value"], event["kind"]) == (unit, pytest.approx(value), kind)
    metrics = {event["metric"] for event in of_type(out, "observation")}
    assert {"wall-time", "cpu-time", "user-time", "system-time", "max-rss"} <= metrics
    failed = [e for e in of_type(out, "cell_finished") if e["status"] == "failed"]
    assert len(failed) == cells
    for event in failed:
        assert "the output does not contain 'hello'" in event["reason"]
        assert "the last lines of the output: it went wrong" in event["reason"]
        (kept,) = [log for log in event["logs"] if log.startswith("outputs/")]
        assert (out / kept).read_text() == "it went wrong\n"
    assert_no_ledger_is_left(home)


WRONG = {
    "package": (
        "packages: []",
        "packages: [no-such-package]",
        ":12:",
        "no package no-such-package",
    ),
    "file": ("./hello", "./helo", ":13:", "there is no file"),
    "place": ("/opt/mine/hello: ./", "/etc/hello: ./", ":13:", "is not allowed for your files"),
    "pattern": ("([0-9]+)", "([0-9]+", ":15:", "not a regular expression: unclosed group"),
    "field": ("latency[0].p99", "latency[0]..p99", ":16:", "is not a field's path"),
    "unit": ("unit: s", "unit: furlong", ":16:", "must be 's', 'ms', 'us'"),
    "key": ("better: lower", "beter: lower", ":16:", "did you mean 'better'?"),
}


@pytest.mark.parametrize(
    ("command", "what"), [*(("plan", what) for what in WRONG), ("run", "package")]
)
def test_a_mistake_is_one_error_with_its_line(home: Path, command: str, what: str) -> None:
    old, new, line, words = WRONG[what]
    path = written(home, STUDY.replace(old, new))
    # Only a probe and a run ask apt; a plan starts nothing.
    more: list[str | Path] = ["--out", home / "out"] if command == "run" else ["--probe"]
    done = tare(command, path, *more)
    assert done.returncode == 2, done.stdout + done.stderr
    assert f"{path}{line}" in done.stderr
    assert words in done.stderr
    assert not (home / "out").exists()


def test_the_tutorial_shows_the_study_that_is_shipped() -> None:
    study = (ROOT / "studies/my-program.yaml").read_text()
    tutorial = ROOT / "docs" / "tutorials" / "my-program.md"
    assert f"```yaml\n{study}```\n" in tutorial.read_text()
