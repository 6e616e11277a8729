"""Calibration before the first block, compared with other sources: on this computer, for real."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from analysis.analysis_simulate import SimulatedMetric, SimulatedRun, events_of, write_run
from run.run_driving import of_type, tare
from tare.analysis import compare_runs, load_run
from tare.events import Calibrated, Calibration, Preflight
from tare.hosts import Ledger, LocalHost
from tare.platforms.contract import Context
from tare.report import build_report
from tare.run.preflight.calibrating import RATE_WITHIN, calibrate, judged, kernels_rate

LOG = """\
[    0.000081] tsc: Detected 2445.430 MHz processor
[    1.618] tsc: Refined TSC clocksource calibration: 2445.411 MHz
"""


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    with Ledger(tmp_path / "ledger.jsonl") as opened:
        yield opened


def context_of(ledger: Ledger, agent: Path, tmp_path: Path) -> Context:
    return Context(LocalHost(agent), ledger, tmp_path / "cache", agent)


def distorted(agent: Path, folder: Path, name: str, factor: float) -> Path:
    """Return an agent that reports one figure wrongly."""
    program = folder / "agent"
    program.write_text(
        f"#!{sys.executable}\n"
        "import re, subprocess, sys\n"
        f"reported = subprocess.run([{str(agent)!r}, *sys.argv[1:]], stdout=subprocess.PIPE)\n"
        f"wrong = lambda found: found[1] + repr(float(found[2]) * {factor})\n"
        f"text = re.sub(r'(\"{name}\":)([0-9.e+-]+)', wrong, reported.stdout.decode())\n"
        "print(text)\n"
        "sys.exit(reported.returncode)\n"
    )
    program.chmod(0o755)
    return program


def by_name(found: Calibrated) -> dict[str, Calibration]:
    return {each.what: each for each in found.found}


async def test_this_computer_agrees_with_other_sources(
    ledger: Ledger, agent_program: Path, tmp_path: Path
) -> None:
    context = context_of(ledger, agent_program, tmp_path)
    result = await calibrate(context, "here")
    found = by_name(result)
    assert result.host == "here" and 0 < result.took_s < 60
    rate = found["counter's rate"]
    assert rate.level == "ok" and rate.own, rate
    stamp = found["reading the counter"]
    assert stamp.own and stamp.reference and 1e-10 < stamp.own < stamp.reference < 1e-4
    memory = found["adding two arrays"]
    assert memory.own and memory.reference and "NumPy" in memory.by
    # Other tests use the same bus, so that no verdict is asked for here.
    assert 0.1 < memory.own / memory.reference < 10
    disk = found["bytes to and from the disk"]
    assert disk.level == "ok" and ("not measured" in disk.found or "MB/s" in disk.found), disk
    assert ledger.open_entries() == ()


@pytest.mark.parametrize(
    ("name", "factor", "what"),
    [
        ("tsc_hz", 1.02, "counter's rate"),
        ("undisturbed_s", 1e3, "reading the counter"),
        ("best_bytes_per_s", 100, "adding two arrays"),
        ("bytes", 1e3, "bytes to and from the disk"),
    ],
)
async def test_wrong_figure_of_the_agent_is_reported(
    ledger: Ledger, agent_program: Path, tmp_path: Path, name: str, factor: float, what: str
) -> None:
    agent = distorted(agent_program, tmp_path, name, factor)
    found = by_name(await calibrate(context_of(ledger, agent, tmp_path)))[what]
    if "not measured" in found.found or found.reference is None:
        pytest.skip(f"nothing to hold it against here: {found.found}")
    assert found.level == "warn", found


async def test_missing_measurement_is_reported_and_others_continue(
    ledger: Ledger, tmp_path: Path
) -> None:
    broken = tmp_path / "agent"
    broken.write_text("#!/bin/sh\necho 'tare-agent: no such luck' >&2\nexit 1\n")
    broken.chmod(0o755)
    result = await calibrate(context_of(ledger, broken, tmp_path))
    assert [each.what for each in result.found][:2] == ["counter", "memory"]
    assert "not measured: no such luck" in result.found[0].found
    assert all(each.own is None for each in result.found)
    assert ledger.open_entries() == ()


@pytest.mark.parametrize(
    ("log", "rate", "within"),
    [(LOG, 2445.411e6, RATE_WITHIN), (LOG.splitlines()[0], 2445.430e6, RATE_WITHIN), ("", 0, 0.01)],
)
async def test_the_kernels_newest_word_on_the_counter_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, log: str, rate: float, within: float
) -> None:
    program = tmp_path / "dmesg"
    program.write_text(f"#!/bin/sh\ncat <<'END'\n{log}\nEND\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    found = await kernels_rate(LocalHost())
    if not log:
        bogomips = re.search(r"bogomips\s*:\s*(\S+)", Path("/proc/cpuinfo").read_text(), re.I)
        rate = float(bogomips[1]) * 0.5e6 if bogomips else 0.0
    assert found[0] == pytest.approx(rate) and found[2] == within


def test_only_a_differing_second_source_raises_a_doubt() -> None:
    assert judged("x", "Hz", 1.0, None, "", 0.1).level == "ok"
    assert judged("x", "Hz", 1.09, 1.0, "y", 0.1).level == "ok"
    assert judged("x", "Hz", 1.11, 1.0, "y", 0.1).level == "warn"
    assert judged("x", "Hz", 0.89, 1.0, "y", 0.1).level == "warn"


def test_calibration_is_in_the_report_and_in_the_output_of_verify(tmp_path: Path) -> None:
    metric = SimulatedMetric("latency", {"bare": 1e-6, "vm": 2e-6})
    events = events_of(
        SimulatedRun(metrics=(metric,), arms={"bare": "bare", "vm": "qemu"}, blocks=3)
    )
    at = next(place for place, event in enumerate(events) if isinstance(event, Preflight))
    older = judged("counter's rate", "Hz", 1e9, 1.5e9, "nobody", 0.1)
    newer = judged("counter's rate", "Hz", 2.445e9, 2.4e9, "the kernel's log", 0.01)
    for each in (newer, older):
        events.insert(at + 1, Calibrated(took_s=0.5, found=(each,)))
    folder = write_run(tmp_path / "run", events)
    data = load_run(folder)
    assert [one.found for one in data.calibrated] == [(newer,)]
    page = build_report((data,), compare_runs(data), tmp_path / "out").read_text()
    method = page[page.index('id="method"') :]
    assert "2.445 GHz" in method and "the kernel" in method and "nobody" not in method
    output = tare("verify", folder).stdout
    line = "! calibrated: counter's rate: 2.445 GHz, 2.400 GHz by the kernel's log"
    assert line in output, output


@pytest.mark.slow
@pytest.mark.boots
def test_a_run_begins_with_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    study = tmp_path / "short.yaml"
    study.write_text(
        "study: short\nbaseline: bare\nblocks: {least: 2, most: 2}\n"
        "arms: {bare: {platform: bare}}\nworkloads: {tick: {samples: 1000}}\n"
    )
    done = tare("run", study, "--out", tmp_path / "run")
    assert done.returncode == 0, done.stdout + done.stderr
    last = (tmp_path / "run" / "events.jsonl").read_text().splitlines()[-1]
    assert f"last hash: {json.loads(last)['chain']}\n" in done.stdout
    (event,) = of_type(tmp_path / "run", "calibrated")
    assert {each["what"] for each in event["found"]} > {"counter's rate", "adding two arrays"}
