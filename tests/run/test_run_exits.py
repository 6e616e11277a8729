"""The probe of exits samples if recording costs much, and observes the arms that name it."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tare.agent.client import Outcome
from tare.errors import InputError
from tare.hosts import LocalHost
from tare.hosts.trace.exits import ExitCount
from tare.hosts.trace.exits import Exits as Recorded
from tare.hosts.trace.threads import thread_times
from tare.images.modules import NEEDS
from tare.platforms.linux.toolbox import image_needs
from tare.probes import Probe, ProbedCell, ProbeKind
from tare.run.catalog import ProbeOfArms, build_catalog, probe_kinds, require_known_probes
from tare.run.probes import exits
from tare.run.probes.exits import (
    ExitCost,
    ExitsProbe,
    helper_threads,
    measure_exit_cost,
    share_to_record,
)
from tare.study.reading.load import load_study
from tare.workloads.cpu.exits import Exits
from tare.workloads.needs import needs_of

THREAD = 4711
STUDY = """
study: exits
baseline: bare
{more}
arms:
  bare: {{platform: bare}}
  kvm: {{platform: qemu, accelerator: kvm{arm}}}
workloads:
  exits: {{}}
"""


class Recorder:
    """Counts a given number of exits in each second of its recording."""

    def __init__(self, rate: float) -> None:
        self.rate = rate
        self.began = 0.0
        self.recorded = 0

    async def begin(self, threads: Any) -> None:
        self.began = asyncio.get_running_loop().time()

    async def end(self) -> Recorded:
        seconds = asyncio.get_running_loop().time() - self.began
        self.recorded += 1
        count = round(self.rate * seconds)
        return Recorded((ExitCount(THREAD, "svm", 0x72, count, 0.5 * seconds),), seconds)


class Counters:
    def __init__(self) -> None:
        self.exits = 100

    async def read(self) -> dict[str, int]:
        self.exits += 1000
        return {
            "exits": self.exits,
            "halt_poll_success_ns": self.exits * 1_000_000,
            "halt_poll_fail_ns": self.exits * 500_000,
        }


def probe_of(cost: float | str, *, may_ask: bool = True) -> ExitsProbe:
    machine = SimpleNamespace(name="tare-kvm")
    context = SimpleNamespace(host=None, ledger=None)
    cell = SimpleNamespace(
        context=context, machines={"subject": machine}, may_ask=may_ask, traced=False
    )
    known = cost if isinstance(cost, str) else ExitCost(cost, 2e-6)
    probe = ExitsProbe(cast(ProbedCell, cell), {"tare-kvm": known})
    probe._threads = (THREAD,)
    return probe


async def over(probe: ExitsProbe, rate: float | None, seconds: float) -> Any:
    probe._recorder = None if rate is None else cast(Any, Recorder(rate))
    probe._counters = cast(Any, Counters())
    await probe.begin()
    await asyncio.sleep(seconds)
    await probe.end(Outcome({}))
    await probe.close()
    return probe.facts


def test_a_guest_whose_registers_are_read_boots_with_the_module_for_them() -> None:
    reading = needs_of(Exits(), [{"cpuid": 1}, {"cpuid": 0, "msr_reads": 5}])
    context = cast(Any, SimpleNamespace(needs=reading))
    assert image_needs(context) == {"msr"} <= NEEDS.keys()
    assert needs_of(Exits(), [{"cpuid": 1}]) == set()


@pytest.fixture
def hypervisor(tmp_path: Path) -> Iterator[tuple[int, int]]:
    """A process that works, and one with the name of the thread that carries its packets."""
    busy = subprocess.Popen(["sh", "-c", "while :; do :; done"])
    program = tmp_path / f"vhost-{busy.pid}"
    shutil.copy(shutil.which("sleep") or "sleep", program)
    carrying = subprocess.Popen([str(program), "60"])
    yield busy.pid, carrying.pid
    for process in (busy, carrying):
        process.kill()
        process.wait()


async def test_threads_that_work_for_a_machine_are_listed_by_name_with_their_times(
    hypervisor: tuple[int, int],
) -> None:
    own, carrying = hypervisor
    vcpu = (1 << 22) + 1  # above all ids of threads

    async def threads() -> dict[int, str]:
        return {own: "qemu", vcpu: "CPU 0/KVM"}

    async def vcpus() -> tuple[int, ...]:
        return (vcpu,)

    machine = cast(Any, SimpleNamespace(threads=threads, vcpu_threads=vcpus))
    found = await helper_threads(LocalHost(), machine)
    assert found == {own: "qemu", carrying: "vhost"}
    await asyncio.sleep(0.2)
    times = await thread_times(LocalHost(), (*found, 1 << 22))
    assert times.keys() == found.keys()
    probe = probe_of(0.0)
    probe._helpers = found
    qemu, vhost = probe._by_name(times)
    assert (qemu["name"], vhost["name"]) == ("qemu", "vhost")
    assert qemu["ran_s"] > vhost["ran_s"]


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exits, "LOOK_S", 0.05)


@pytest.mark.parametrize(
    ("cost", "share"), [(0.0, 1.0), (0.02, 1.0), (0.04, 0.5), (0.2, 0.1), (50.0, 0.01)]
)
def test_recording_takes_at_most_two_percent(cost: float, share: float) -> None:
    assert share_to_record(cost) == pytest.approx(share)


async def test_the_switch_is_the_time_of_cpuid_that_is_not_recorded() -> None:
    # CPUID takes 3 us, and 5 us while it is recorded: 1.5 us of these are in the recorded time.
    class Guest:
        async def run(self, name: str, asked: dict[str, int], deadline_s: float) -> Outcome:
            each = 5e-6 if recorder.recording else 3e-6
            return Outcome({"seconds": {"cpuid": each * asked["cpuid"]}})

    class Known:
        recording = False

        async def begin(self, threads: tuple[int, ...]) -> None:
            self.recording = True

        async def end(self) -> Recorded:
            self.recording = False
            often = ExitCount(THREAD, "svm", 0x72, 2000, 2000 * 1.5e-6)
            return Recorded((ExitCount(THREAD, "svm", 0x78, 3, 1.0), often), 1.1)

    recorder = Known()
    cost = await measure_exit_cost(cast(Any, Guest()), cast(Any, recorder), (THREAD,))
    assert cost.recording_s == pytest.approx(2e-6)
    assert cost.switch_s == pytest.approx(3.5e-6)


async def test_all_is_recorded_where_it_costs_little() -> None:
    facts = await over(probe_of(1e-7), 10_000, 0.4)
    assert facts["switch_s"] == 2e-6
    assert facts["recorded_s"] == pytest.approx(facts["seconds"], rel=0.2)
    assert facts["trace_cost"] == pytest.approx(0.001, rel=0.2)
    assert facts["counters"] == {"exits": 1000}
    assert facts["polled_s"] == pytest.approx(1.5)
    (one,) = facts["exits"]
    assert (one["vcpu"], one["isa"], one["reason"]) == (0, "svm", 0x72)
    assert one["count"] / facts["recorded_s"] == pytest.approx(10_000, rel=0.01)


async def test_only_a_part_is_recorded_where_it_costs_much() -> None:
    facts = await over(probe_of(1e-5), 10_000, 1.6)
    # All of it would take a tenth of the time.
    assert facts["recorded_s"] < 0.4 * facts["seconds"]
    assert facts["exits"][0]["count"] / facts["recorded_s"] == pytest.approx(10_000, rel=0.01)
    assert facts["trace_cost"] < 0.04


@pytest.mark.parametrize(("cost", "may_ask"), [("there is no CPUID", True), (1e-5, False)])
async def test_all_is_recorded_where_the_host_is_left_alone_or_the_cost_is_unknown(
    cost: float | str, may_ask: bool
) -> None:
    facts = await over(probe_of(cost, may_ask=may_ask), 10_000, 0.4)
    assert facts["recorded_s"] == pytest.approx(facts["seconds"], rel=0.2 if may_ask else 0)
    if isinstance(cost, str):
        assert facts["cost_unknown"] == cost
        assert "trace_cost" not in facts
    else:
        assert facts["trace_cost"] == pytest.approx(0.1, rel=0.2)


async def test_where_tracing_is_not_possible_counters_are_read_and_the_reason_is_kept() -> None:
    probe = probe_of(1e-7)
    probe._reason = "no histograms"
    facts = await over(probe, None, 0.01)
    assert (facts["by"], facts["reason"]) == ("counters", "no histograms")
    assert facts["counters"] == {"exits": 1000}
    assert "exits" not in facts


async def test_where_time_counts_instructions_the_machine_is_not_asked_for_the_cost() -> None:
    probe = probe_of(0.0, may_ask=False)
    probe._costs.clear()
    machine = cast(Any, probe._machine)
    machine.traced_below = lambda: SimpleNamespace(ids=(1,), raw_counter=False)
    await probe.open()
    assert "counts instructions" in str(probe._costs["tare-kvm"])
    await probe.close()


class Kind(ProbeKind):
    name = "kind"

    def probe(self, cell: ProbedCell) -> Probe | None:
        return Probe()


def test_a_probe_observes_only_the_arms_that_ask_for_it() -> None:
    kind = ProbeOfArms(Kind(), frozenset({"kvm"}))

    def cell(arm: str) -> ProbedCell:
        return cast(ProbedCell, SimpleNamespace(cell=SimpleNamespace(arm=arm)))

    assert kind.probe(cell("bare")) is None
    assert kind.probe(cell("kvm")) is not None


def study_of(folder: Path, more: str = "", arm: str = "") -> tuple[Any, Path]:
    path = folder / "exits.yaml"
    path.write_text(STUDY.format(more=more, arm=arm))
    return load_study(path, build_catalog()), path


def test_a_study_names_its_probes_for_all_arms_or_for_one(tmp_path: Path) -> None:
    study, path = study_of(tmp_path)
    assert probe_kinds(study) == ()
    study, path = study_of(tmp_path, "probes: [exits]", ", probes: []")
    require_known_probes(study, path)
    assert (study.probes_of("bare"), study.probes_of("kvm")) == (("exits",), ())
    assert [kind.name for kind in probe_kinds(study)] == ["exits"]
    study, _ = study_of(tmp_path, "probes: [exits]", ", probes: []")
    study, _ = study_of(tmp_path, "", ", probes: [exits]")
    assert study.probes_of("kvm") == ("exits",)


def test_a_probe_that_does_not_exist_is_refused_with_the_nearest(tmp_path: Path) -> None:
    study, path = study_of(tmp_path, "probes: [exit]")
    with pytest.raises(InputError, match=r"exits\.yaml:4.*no probe 'exit'.*exits"):
        require_known_probes(study, path)
