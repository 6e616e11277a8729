from __future__ import annotations

import pytest

from benchmarks import boot_time, harness_overhead
from benchmarks._runs import CarriedOut, Unmeasured, reasons
from tare.events import (
    CellFinished,
    CellStarted,
    Event,
    MachineReady,
    MachineStarting,
    Observed,
    Record,
    RunFinished,
    RunStarted,
    Skipped,
)

CELL = "b001/guest/alone/tick"


def run_of(*timed: tuple[float, Event], spawned: float = 99.0, ended: float = 120.0) -> CarriedOut:
    records = tuple(Record(seq=i, time=time, event=event) for i, (time, event) in enumerate(timed))
    return CarriedOut(spawned, ended, records)


STARTED = RunStarted(
    run="r", study={}, study_path="s", study_sha256="0", seed=1, host={}, versions={}
)
STARTING = MachineStarting(machine="m", block=1, arm="guest", scenario="alone", role="subject")
READY = MachineReady(machine="m", boot_s=1.5, proof={})
CELL_STARTED = CellStarted(
    cell=CELL, block=1, arm="guest", scenario="alone", workload="tick", parameters={}
)
OBSERVED = Observed(cell=CELL, metric="duration", unit="s", better="lower", value=1e-6)
FINISHED = RunFinished(status="complete", wall_s=10.0, booting_s=1.5, measuring_s=8.0)


def cell_finished(status: str = "ok") -> CellFinished:
    return CellFinished(
        cell=CELL, status="ok" if status == "ok" else "failed", reason="why", measured_s=8.0
    )


def whole(status: str = "ok") -> CarriedOut:
    return run_of(
        (100.0, STARTED),
        (100.1, STARTING),
        (101.65, READY),
        (101.7, CELL_STARTED),
        (109.8, OBSERVED),
        (109.85, OBSERVED),
        (109.9, cell_finished(status)),
        (110.0, FINISHED),
    )


def test_the_first_sample_is_bounded_by_the_first_observation() -> None:
    assert boot_time.first_sample_s(whole()) == pytest.approx(10.8)


def test_the_stages_add_up_to_the_first_sample() -> None:
    stages = boot_time.stages(whole())
    assert list(stages) == list(boot_time.STAGES)
    assert sum(stages.values()) == pytest.approx(boot_time.first_sample_s(whole()))


def test_a_run_without_samples_is_not_measured() -> None:
    run = run_of(
        (100.0, STARTED),
        (100.1, Skipped(arm="guest", reason="no QEMU")),
    )
    with pytest.raises(Unmeasured, match="no QEMU"):
        boot_time.first_sample_s(run)


def test_the_share_is_what_is_neither() -> None:
    assert harness_overhead.share(whole()) == pytest.approx(0.05)


def test_a_run_with_a_failed_cell_has_no_share() -> None:
    with pytest.raises(Unmeasured, match="failed: why"):
        harness_overhead.share(whole("failed"))
    assert reasons(whole("ok").records) == ()


def test_the_remainder_is_split_by_the_intervals_that_it_belongs_to() -> None:
    found = harness_overhead.remainder(whole().records)
    assert sum(found.values()) == pytest.approx(10.0 - 1.5 - 8.0)
    assert found["cell_started → observation in guest"] == pytest.approx(0.1)
    assert found["observation → cell_finished"] == pytest.approx(0.05)
    assert found["machine_starting → machine_ready"] == pytest.approx(0.05)
    assert list(found.values()) == sorted(found.values(), reverse=True)


def test_the_facts_name_the_parts_of_the_whole_command() -> None:
    facts = {fact.name: fact.value for fact in harness_overhead.facts_of(whole())}
    assert facts["before: from the command to the first event"] == pytest.approx(1.0)
    assert facts["share of the whole command that is neither"] == pytest.approx(11.5 / 21 * 100)


def test_a_study_is_cut_to_its_blocks_only() -> None:
    study = {"study": "quick", "blocks": {"least": 8, "most": 8, "precision": 0.1, "budget": "5m"}}
    assert harness_overhead.cut(study, 3) == {
        "study": "quick",
        "blocks": {"least": 3, "most": 3, "precision": 0.1},
    }
    assert study["blocks"] == {"least": 8, "most": 8, "precision": 0.1, "budget": "5m"}


def test_the_warm_up_has_the_same_arms_and_little_work() -> None:
    arms = {"bare": {"platform": "bare"}}
    scenarios = {"pinned": {"subject": {"cpus": "pinned"}}, "loaded": {}}
    study = {"study": "q", "arms": arms, "scenarios": scenarios, "workloads": {"idea": {}}}
    found = harness_overhead.warm_up(study)
    assert found["arms"] == arms
    assert list(found["scenarios"]) == ["pinned"]
    assert list(found["workloads"]) == ["tick"]


@pytest.mark.parametrize("comparison", sorted(boot_time.COMPARISONS))
def test_every_comparison_states_what_it_judges(comparison: str) -> None:
    from benchmarks._pairs import Pairs

    wanted = boot_time.COMPARISONS[comparison]
    fast = wanted.judge(Pairs("tare", "peer", (2.0, 2.1, 2.2), (2.1, 2.2, 2.3)))
    slow = wanted.judge(Pairs("tare", "peer", (9.0, 9.1, 9.2), (2.1, 2.2, 2.3)))
    assert fast.met
    assert not slow.met
    assert not wanted.unmeasured(Unmeasured("there is none")).met
