"""Before a real-time study, the noise of its hosts is measured, checked, recorded and shown."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from analysis.analysis_simulate import SimulatedMetric, SimulatedRun, events_of, write_run
from tare.analysis import compare_runs, load_run
from tare.errors import InputError
from tare.events import CpuNoise, EventLog, Fold, NoiseMeasured, Preflight
from tare.fleet.merging import Merger
from tare.hosts import Ledger, LocalHost
from tare.hosts.trace.noise import Noise
from tare.hosts.trace.tracefs import NoTracing
from tare.platforms.contract import TAKES_HOST, Context
from tare.registry import installed
from tare.report import build_report
from tare.run.catalog import build_catalog
from tare.run.hosts.contract import LocalRunHost
from tare.run.preflight import noise as gate
from tare.run.preflight.noise import noise_check, noise_of_hosts
from tare.study.model.study import Study
from tare.study.reading.load import load_study

QUIET = CpuNoise(cpu=0, watched_s=1.5, taken_s=30e-6, longest_s=20e-6, hardware=3)
SMI = CpuNoise(cpu=3, watched_s=1.5, taken_s=1.5e-3, longest_s=260e-6, hardware=9)
BUSY = CpuNoise(cpu=0, watched_s=1.5, taken_s=0.015, longest_s=1e-3, irqs=1500, threads=20)


def measured(*firmware: CpuNoise, **fields: Any) -> NoiseMeasured:
    fields = {"took_s": 4.0, "by": "osnoise", "limit_s": 1e-4, "system": (BUSY,), **fields}
    return NoiseMeasured(firmware=firmware, **fields)


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    with Ledger(tmp_path / "ledger.jsonl") as opened:
        yield opened


@pytest.fixture
def run_host(ledger: Ledger, tmp_path: Path) -> LocalRunHost:
    context = Context(LocalHost(), ledger, tmp_path / "cache", tmp_path / "agent")
    return LocalRunHost(context, installed().platforms, {})


@pytest.fixture
def study(tmp_path: Path) -> Callable[[str], Study]:
    def make(more: str) -> Study:
        path = tmp_path / "study.yaml"
        path.write_text(f"study: s\nbaseline: bare\narms: {{bare: {{platform: bare}}}}\n{more}\n")
        return load_study(path, build_catalog())

    return make


def of(run_host: LocalRunHost, study: Study) -> tuple[NoiseMeasured, ...]:
    return asyncio.run(noise_of_hosts({"": run_host}, installed().workloads, study))


def test_only_studies_with_real_time_workloads_measure_noise(
    run_host: LocalRunHost, study: Callable[[str], Study], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[Any, ...]] = []

    async def pretend(host: Any, ledger: Any, cpus: Any, seconds: float) -> Noise:
        asked.append((tuple(cpus), seconds))
        return Noise("osnoise", (QUIET,), (BUSY,))

    monkeypatch.setattr(gate, "measure_noise", pretend)
    assert of(run_host, study("workloads: {numeric-sort: {}}")) == ()
    assert of(run_host, study("workloads: {tick: {}}\nnoise: {duration: 0}")) == ()
    assert not asked
    (event,) = of(run_host, study("workloads: {tick: {}}\nnoise: {duration: 3s, limit: 40us}"))
    assert asked == [(run_host.context.host.topology().machines, 3.0)]
    assert event.firmware == (QUIET,) and event.system == (BUSY,)
    assert event.limit_s == pytest.approx(40e-6) and not event.missing


def test_a_host_that_cannot_measure_it_says_why_in_one_line_and_the_run_continues(
    run_host: LocalRunHost, study: Callable[[str], Study], monkeypatch: pytest.MonkeyPatch
) -> None:
    for error in (NoTracing("no tracers"), OSError("no tracers"), InputError("no tracers", "x")):

        async def refuse(*_: Any, error: Exception = error) -> Noise:
            raise error

        monkeypatch.setattr(gate, "measure_noise", refuse)
        (event,) = of(run_host, study("workloads: {tick: {}}"))
        assert event.missing == "no tracers"
        check = noise_check(event)
        assert (check.level, check.found) == ("warn", "not measured: no tracers")


def test_a_host_whose_time_counts_instructions_or_that_arms_replace_is_left_alone(
    run_host: LocalRunHost, study: Callable[[str], Study], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_host, "counts_instructions", True)
    (event,) = of(run_host, study("workloads: {tick: {}}"))
    assert "counts instructions" in event.missing
    monkeypatch.setattr(run_host, "boot_of", lambda *_: TAKES_HOST)
    assert of(run_host, study("workloads: {tick: {}}")) == ()


@pytest.mark.parametrize(
    ("event", "level", "says"),
    [
        (
            measured(QUIET),
            "ok",
            "firmware took 0.002 % of CPU 0, at most 20 us at once (CPU 0); everything but the "
            "measuring thread took 1 % of CPU 0, at most 1 ms at once (CPU 0)",
        ),
        (
            measured(QUIET, SMI),
            "bad",
            "firmware took 0.051 % of CPU 0,3, at most 260 us at once (CPU 3); everything but the "
            "measuring thread took 1 % of CPU 0, at most 1 ms at once (CPU 0); the study allows "
            "100 us",
        ),
        (
            measured(SMI, by="hwlat", virtual=True, emulated=True, system=()),
            "warn",
            "firmware or the hypervisor below took at least 0.1 % of CPU 3, at most 260 us at once "
            "(CPU 3); the study allows 100 us",
        ),
        (
            measured(by=""),
            "ok",
            "this kernel cannot measure firmware alone (hwlat, or osnoise with "
            "OSNOISE_IRQ_DISABLE); everything but the measuring thread took 1 % of CPU 0, at most "
            "1 ms at once (CPU 0)",
        ),
    ],
)
def test_firmware_above_the_studys_limit_makes_a_host_unfit(
    event: NoiseMeasured, level: str, says: str
) -> None:
    check = noise_check(event)
    assert (check.level, check.found.replace("µ", "u")) == (level, says)
    assert bool(check.hint) == (level != "ok")
    assert noise_check(event.model_copy(update={"host": "h1"})).name == "noise on h1"


def test_the_report_shows_it_by_cpu_and_the_host_as_unfit(tmp_path: Path) -> None:
    metric = SimulatedMetric("latency", {"bare": 1e-6, "vm": 2e-6})
    events = events_of(
        SimulatedRun(metrics=(metric,), arms={"bare": "bare", "vm": "qemu"}, blocks=3)
    )
    at = next(place for place, event in enumerate(events) if isinstance(event, Preflight))
    found = measured(QUIET, SMI)
    before = events[at]
    assert isinstance(before, Preflight)
    events[at] = Preflight(checks=(*before.checks, noise_check(found)))
    events.insert(at + 1, found)
    data = load_run(write_run(tmp_path / "run", events))
    assert data.noise == (found,)
    assert [check.name for check in data.unfit] == ["noise"]
    page = build_report((data,), compare_runs(data), tmp_path / "out").read_text()
    section = page[page.index('id="noise"') :].split("</section>")[0]
    assert "What firmware took from the hosts" in section and "Without a known cause" in section
    rows = (tmp_path / "out" / "tables" / "noise.csv").read_text().splitlines()
    assert len(rows) == 4 and rows[2].startswith(
        ",3,firmware,osnoise,false,1.5,0.0015,0.001,0.00026"
    )


def test_each_host_of_a_fleet_has_its_own(tmp_path: Path) -> None:
    quick = load_study(Path(__file__).parents[2] / "studies" / "quick.yaml", build_catalog())
    fold = Fold()
    with EventLog(tmp_path / "events.jsonl") as log:
        log.subscribe(fold.take)
        merger = Merger(log, fold, quick, 2, "replicate")
        for host, firmware in (("a", QUIET), ("b", SMI)):
            merger.part_of(host, "tcp://x").take(measured(firmware))
    assert {name: each.firmware for name, each in fold.noise.items()} == {
        "a": (QUIET,),
        "b": (SMI,),
    }
