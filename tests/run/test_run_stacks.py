"""The probe of stacks records on host and guest if gaps are traced, or reports why it cannot."""

from __future__ import annotations

import csv
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from run.run_driving import of_type, tare
from tare.agent.client import Outcome
from tare.agent.series import Series
from tare.errors import MachineFault
from tare.events.stacks import GUEST_SERIES, HOST_SERIES, SAME_KERNEL
from tare.hosts.trace.stacks import EVENTS, Stacks
from tare.hosts.trace.tracefs import NoTracing
from tare.probes import ProbedCell
from tare.run.catalog import build_catalog, probe_kinds
from tare.run.probes import stacks
from tare.run.probes.stacks import StacksKind, StacksProbe
from tare.study.reading.load import load_study

TEXT = (
    "  cp-5  [000] d.h.. 1.000001: local_timer_entry: vector=236\n"
    "  cp-5  [000] d.h.. 1.000002: <stack trace>\n => sysvec_apic_timer_interrupt\n => copy_page\n"
)


class Guest:
    """An agent that has the workload `stacks`, unless it lacks a requirement."""

    def __init__(self, refusal: str = "") -> None:
        self.refusal = refusal
        self.asked: list[dict[str, Any]] = []

    async def run(self, workload: str, params: dict[str, Any], *, deadline_s: float) -> Outcome:
        assert workload == "stacks"
        self.asked.append(params)
        if self.refusal:
            raise MachineFault(self.refusal)
        if params["action"] == "begin":
            return Outcome({"events": []})
        byte = np.frombuffer(TEXT.encode(), dtype="u1")
        return Outcome({"lost": 4}, series=(Series("text", {"byte": byte}),))


class Recorder:
    def __init__(self) -> None:
        self.cpus: list[int] = []
        self.abandoned = self.stopped = False

    async def cost_s(self) -> float:
        return 2e-6

    async def begin(self, cpus: Any) -> None:
        self.cpus = list(cpus)

    async def stop(self) -> None:
        self.stopped = True

    async def end(self) -> Stacks:
        assert self.stopped
        taken = Stacks()
        taken.take(TEXT * 3)
        return taken

    async def abandon(self) -> None:
        self.abandoned = True


async def nobody() -> tuple[int, ...]:
    return (7,)


def probe_of(
    guest: Guest, *, shares_clock: bool = False, traced: bool = True, below: object = None
) -> StacksProbe:
    machine = SimpleNamespace(
        agent=guest, shares_clock=shares_clock, measuring_threads=nobody, traced_below=lambda: below
    )
    host = SimpleNamespace(name="h", topology=lambda: SimpleNamespace(online=(0, 1, 2)))
    cell = SimpleNamespace(
        context=SimpleNamespace(host=host, ledger=None),
        machines={"subject": machine},
        may_ask=True,
        traced=traced,
    )
    return StacksProbe(cast(ProbedCell, cell), {})


@pytest.fixture
def recorder(monkeypatch: pytest.MonkeyPatch) -> Recorder:
    found = Recorder()

    @asynccontextmanager
    async def making(*_: Any, **__: Any) -> AsyncIterator[Recorder]:
        yield found

    async def cpus(*_: Any) -> tuple[int, ...]:
        return (1, 2, 9)

    monkeypatch.setattr(stacks, "stack_recorder", making)
    monkeypatch.setattr(stacks, "allowed_cpus", cpus)
    return found


async def observe(probe: StacksProbe) -> dict[str, Any]:
    await probe.open()
    await probe.begin()
    await probe.end(Outcome({"seconds": 0.001, "pinned": 0}))
    await probe.close()
    return dict(probe.facts)


async def test_both_kernels_are_recorded_with_what_it_cost_the_host(recorder: Recorder) -> None:
    guest = Guest()
    probe = probe_of(guest)
    facts = await observe(probe)
    assert recorder.cpus == [1, 2]
    begin, end = guest.asked
    assert begin["events"] == [list(each) for each in EVENTS.items()] and end == {"action": "end"}
    assert facts["host"]["stacks"] == 3
    assert facts["host"]["trace_cost"] == pytest.approx(3 * 2e-6 / (0.001 * 2))
    assert facts["guest"]["lost"] == 4 and facts["guest"]["cpu"] == 0
    assert facts["guest"]["symbols"] == ["sysvec_apic_timer_interrupt", "copy_page"]
    series = {each.name: each for role, each in probe.series if role == "subject"}
    assert set(series) == {HOST_SERIES, GUEST_SERIES}
    assert series[GUEST_SERIES].columns["time_ns"].tolist() == [1_000_002_000]


async def test_a_bare_machine_has_only_its_hosts_stacks(recorder: Recorder) -> None:
    guest = Guest()
    probe = probe_of(guest, shares_clock=True)
    facts = await observe(probe)
    assert facts["guest"] == {"missing": SAME_KERNEL} and not guest.asked
    assert [each.name for _, each in probe.series] == [HOST_SERIES]


async def test_a_side_that_cannot_record_says_why_and_the_other_does(
    recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    facts = await observe(probe_of(Guest("the machine is not one of Tare's own")))
    assert "not one of Tare's own" in facts["guest"]["missing"]
    assert facts["host"]["stacks"] == 3
    facts = await observe(probe_of(Guest(), below=object()))
    assert "dom0" in facts["host"]["missing"] and facts["guest"]["stacks"] == 1

    @asynccontextmanager
    async def refusing(*_: Any, **__: Any) -> AsyncIterator[Recorder]:
        raise NoTracing("tracing needs root")
        yield

    monkeypatch.setattr(stacks, "stack_recorder", refusing)
    facts = await observe(probe_of(Guest()))
    assert facts["host"] == {"missing": "tracing needs root"} and facts["guest"]["stacks"] == 1


async def test_a_cell_that_is_not_traced_has_no_gaps_to_explain(recorder: Recorder) -> None:
    with pytest.raises(NoTracing, match="host-trace: true"):
        await probe_of(Guest(), traced=False).open()


async def test_a_cell_that_fails_leaves_no_recording(recorder: Recorder) -> None:
    probe = probe_of(Guest())
    await probe.open()
    await probe.begin()
    await probe.abandon(1.0)
    assert recorder.abandoned and not probe.series


def test_a_study_asks_for_it_by_name_and_only_gaps_are_observed(tmp_path: Any) -> None:
    path = tmp_path / "s.yaml"
    path.write_text(
        "study: s\nbaseline: bare\nprobes: [stacks]\narms: {bare: {platform: bare}}\n"
        "workloads: {tick: {}}\n"
    )
    assert "stacks" in [kind.name for kind in probe_kinds(load_study(path, build_catalog()))]
    plain = SimpleNamespace(workload=SimpleNamespace(logs_gaps=False))
    assert StacksKind().probe(cast(ProbedCell, plain)) is None


@pytest.mark.slow
@pytest.mark.guest
@pytest.mark.skipif(os.geteuid() != 0, reason="tracing the kernel needs root")
def test_a_guest_and_its_host_show_the_same_gaps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    study = tmp_path / "stacks.yaml"
    study.write_text(
        "study: s\nbaseline: qemu\nblocks: {least: 1, most: 1}\nprobes: [stacks]\n"
        "arms: {qemu: {platform: qemu, accelerator: tcg}}\n"
        "scenarios: {contended: {subject: {cpus: pinned}, host-trace: true,"
        " neighbours: [{load: cpu-load, cpus: same}]}}\n"
        "workloads: {tick: {duration: 1s}}\n"
    )
    done = tare("run", study, "--out", tmp_path / "run")
    assert done.returncode == 0, done.stdout + done.stderr
    (cell,) = of_type(tmp_path / "run", "cell_finished")
    recorded = cell["facts"]["probes"]["stacks"]
    if "missing" in recorded["host"]:
        pytest.skip(recorded["host"]["missing"])
    (table,) = (tmp_path / "run").rglob("spikes-stacks.csv")
    rows = list(csv.DictReader(table.open()))
    assert {row["side"] for row in rows} == {"host", "guest"}
    # The guest's own tick interrupts its measuring thread; the host gave the CPU to the neighbour.
    assert any(row["comm"] == "tare-tick" and row["side"] == "guest" for row in rows)
    # The neighbour's thread is one of QEMU's too.
    assert any("TCG" in row["comm"] + row["what"] for row in rows if row["side"] == "host")
