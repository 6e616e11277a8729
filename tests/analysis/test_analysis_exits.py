"""Planted causes of an added time are found, and what nobody measured stays unexplained."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tare.analysis import load_run
from tare.analysis.data.rundata import RunData
from tare.analysis.effects.compare import compare
from tare.analysis.topics.exit_reasons import ARM64, SVM, VMX, XEN_PV, reason_of
from tare.analysis.topics.exits import (
    DELAY,
    OFF,
    POLLING,
    WAITING,
    Decomposition,
    _read,
    arm_exits,
    decompositions,
)
from tare.events import (
    BlockFinished,
    BlockStarted,
    CellFinished,
    CellStarted,
    EventLog,
    Observed,
    PlatformChecked,
    RunFinished,
    RunStarted,
)
from tare.report.page.data import ReportData
from tare.report.sections.exits import ExitReasons, sentence_of

BLOCKS = 8
WALL = 5.0
UNIT = 1e-3
"""Seconds of a unit of work on the bare machine."""
INTR, CPUID, HLT, IOIO = 0x60, 0x72, 0x78, 0x7B
WITHIN = 0.03


def cell_of(
    exits: Mapping[int, tuple[int, float]],
    *,
    recorded: float = 1.0,
    vcpus: int = 1,
    **cost: float,
) -> dict[str, Any]:
    """Return a cell's facts: exits by reason, with count and seconds of the whole cell."""
    return {
        "host_cost": {"wall_s": WALL, **cost},
        "probes": {
            "exits": {
                "by": "tracepoints",
                "vcpus": vcpus,
                "seconds": WALL * 1.2,
                "recorded_s": WALL * 1.2 * recorded,
                "dropped": 0,
                "trace_cost": 0.01,
                "counters": {"exits": sum(count for count, _ in exits.values())},
                "exits": [
                    {
                        "vcpu": 0,
                        "isa": "svm",
                        "reason": reason,
                        "count": round(count * recorded),
                        "seconds": seconds * recorded,
                    }
                    for reason, (count, seconds) in exits.items()
                ],
            }
        },
    }


def run_of(folder: Path, unit_s: float, kvm: Mapping[str, Any], bare: Mapping[str, Any]) -> RunData:
    folder.mkdir()
    study = {
        "study": "exits",
        "title": "Synthetic data, not measured",
        "baseline": "bare",
        "blocks": {"least": BLOCKS, "most": BLOCKS},
        "margin": 0.02,
        "confidence": 0.95,
        "arms": {"bare": {"platform": "bare"}, "kvm": {"platform": "qemu"}},
        "scenarios": {"alone": {}},
        "workloads": {"sort": {"workload": "numeric-sort"}},
    }
    sides = {"bare": (UNIT, bare), "kvm": (unit_s, kvm)}
    with EventLog(folder / "events.jsonl") as log:
        log.append(
            RunStarted(
                run="invented-1", study=study, study_path="", study_sha256="0" * 64, seed=1,
                host={"cpus": 4}, versions={},
            )
        )  # fmt: skip
        for arm in sides:
            log.append(PlatformChecked(arm=arm, platform=arm, options={}, usable=True))
        for block, (arm, (unit, facts)) in itertools.product(range(1, BLOCKS + 1), sides.items()):
            if arm == "bare":
                log.append(BlockStarted(block=block, order=()))
            cell = f"b{block:03d}/{arm}/alone/sort"
            log.append(
                CellStarted(
                    cell=cell, block=block, arm=arm, scenario="alone", workload="sort",
                    parameters={},
                )
            )  # fmt: skip
            wobble = 1 + 0.001 * (block % 3)
            log.append(
                Observed(
                    cell=cell, metric="rate", unit="1/s", better="higher", headline=True,
                    value=wobble / unit,
                )
            )  # fmt: skip
            log.append(CellFinished(cell=cell, status="ok", facts=dict(facts)))
            if arm == "kvm":
                log.append(BlockFinished(block=block))
        log.append(RunFinished(status="complete", wall_s=1.0))
    return load_run(folder)


def decomposed(run: RunData) -> Decomposition:
    found = arm_exits([run])
    made, refused = decompositions([run], compare([run]).effects, found)
    assert refused == ()
    (one,) = made
    return one


def shares(found: Decomposition) -> dict[str, float]:
    parts = {bucket.name: found.share(bucket.seconds) for bucket in found.buckets}
    return {**parts, "unexplained": found.share(found.unexplained_s)}


BARE: Mapping[str, Any] = {"host_cost": {"wall_s": WALL, "cpu_s": WALL, "thread_run_delay_s": 0.0}}


@pytest.mark.parametrize("recorded", [1.0, 0.25])
def test_an_emulated_device_that_is_queried_is_found(tmp_path: Path, recorded: float) -> None:
    # A fifth of the vCPU's time is port accesses, so that a unit takes 1.25 times as long.
    kvm = cell_of(
        {IOIO: (50_000, 0.2 * WALL), HLT: (10, 0.9)}, recorded=recorded,
        cpu_s=WALL, vcpu_cpu_s=WALL, vcpu_run_delay_s=0.0,
    )  # fmt: skip
    found = decomposed(run_of(tmp_path / "run", 1.25 * UNIT, kvm, BARE))
    assert found.added_s == pytest.approx(0.25 * UNIT, rel=0.01)
    assert shares(found)["exits IOIO"] == pytest.approx(1, abs=WITHIN)
    assert shares(found)["unexplained"] == pytest.approx(0, abs=WITHIN)
    assert found.decided


@pytest.mark.parametrize("recorded", [1.0, 0.25])
def test_the_switch_to_the_host_is_part_of_an_exit(tmp_path: Path, recorded: float) -> None:
    # An exit takes a fifth of the vCPU's time: a half in the host, a half to get there and back.
    # Recording takes 0.2 us of each half, while it is on.
    count, recording = 50_000, 0.4e-6
    natural = 0.1 * WALL / count
    kvm = cell_of(
        {IOIO: (count, count * (natural + recording / 2))}, recorded=recorded,
        cpu_s=WALL, vcpu_cpu_s=WALL, vcpu_run_delay_s=0.0,
    )  # fmt: skip
    facts = kvm["probes"]["exits"]
    facts |= {"switch_s": natural + recording / 2, "cost_per_exit_s": recording}
    # The cell takes longer by what recording takes.
    unit = (1.25 + 1.25 * recorded * count * recording / WALL) * UNIT
    found = decomposed(run_of(tmp_path / "run", unit, kvm, BARE))
    assert shares(found)["exits IOIO"] == pytest.approx(1, abs=WITHIN)
    assert shares(found)["unexplained"] == pytest.approx(0, abs=WITHIN)


def test_a_hog_on_the_vcpus_cpu_is_run_delay_and_counts_once(tmp_path: Path) -> None:
    # It takes half of the time, all of it inside of exits for an interrupt.
    kvm = cell_of(
        {INTR: (5_000, 0.52 * WALL)},
        cpu_s=0.5 * WALL, vcpu_cpu_s=0.5 * WALL, vcpu_run_delay_s=0.5 * WALL,
    )  # fmt: skip
    parts = shares(decomposed(run_of(tmp_path / "run", 2.04 * UNIT, kvm, BARE)))
    assert parts[DELAY] == pytest.approx(0.98, abs=WITHIN)
    assert parts["exits INTR"] == pytest.approx(0.04, abs=WITHIN)
    assert parts["unexplained"] == pytest.approx(0, abs=WITHIN)


def test_a_wait_beyond_the_time_of_interrupts_is_within_other_exits(tmp_path: Path) -> None:
    # The vCPU waits for half of the time: a tenth in interrupts, the rest in port accesses and HLT.
    kvm = cell_of(
        {INTR: (500, 0.1 * WALL), IOIO: (5_000, 0.3 * WALL), HLT: (900, 0.3 * WALL)},
        cpu_s=0.4 * WALL, vcpu_cpu_s=0.4 * WALL, vcpu_run_delay_s=0.5 * WALL,
    )  # fmt: skip
    parts = shares(decomposed(run_of(tmp_path / "run", 2.5 * UNIT, kvm, BARE)))
    assert parts[DELAY] == pytest.approx(1.25 / 1.5, abs=WITHIN)
    assert parts["exits INTR"] == pytest.approx(0, abs=WITHIN)
    assert parts["exits IOIO"] == pytest.approx(0.25 / 1.5, abs=WITHIN)


def test_a_throttled_iothread_is_waiting_next_to_the_time_that_it_works(tmp_path: Path) -> None:
    # The bare machine waits for its disk for a fifth of the time.
    bare = {"host_cost": {"wall_s": WALL, "cpu_s": 0.8 * WALL, "thread_run_delay_s": 0.0}}
    kvm = cell_of(
        {HLT: (9_000, 0.6 * WALL)},
        cpu_s=0.5 * WALL, vcpu_cpu_s=0.4 * WALL, vcpu_run_delay_s=0.0,
    )  # fmt: skip
    kvm["probes"]["exits"]["helpers"] = [
        {"name": "qemu-system-x86", "ran_s": 0.01 * WALL, "waited_s": 0.0},
        {"name": "IO disk", "ran_s": 0.1 * WALL, "waited_s": 0.45 * WALL},
    ]
    found = decomposed(run_of(tmp_path / "run", 2 * UNIT, kvm, bare))
    assert shares(found)[WAITING] == pytest.approx(1, abs=WITHIN)
    assert found.host_threads_s == pytest.approx(0.2 * UNIT, rel=0.01)
    first, second = found.helpers
    assert (first.name, second.name) == ("IO disk", "qemu-system-x86")
    assert first.waited_s == pytest.approx(0.9 * UNIT, rel=0.01)
    assert "the host’s thread IO disk, which works for the machine, waited" in sentence_of(found)
    calm = replace(found, helpers=(replace(first, waited_s=0.1 * UNIT),))
    assert "IO disk" not in sentence_of(calm)


@pytest.mark.parametrize("vcpus", [1, 2])
def test_halt_polling_is_a_part_of_its_own(tmp_path: Path, vcpus: int) -> None:
    # The vCPUs are idle for 0.4 of the time; in a quarter of that the kernel polls, on the CPU.
    kvm = cell_of(
        {HLT: (9_000, 0.4 * vcpus * WALL)}, vcpus=vcpus,
        cpu_s=0.7 * vcpus * WALL, vcpu_cpu_s=0.7 * vcpus * WALL, vcpu_run_delay_s=0.0,
    )  # fmt: skip
    kvm["probes"]["exits"]["polled_s"] = 0.1 * vcpus * WALL
    bare = {"host_cost": {"wall_s": WALL, "cpu_s": vcpus * WALL, "thread_run_delay_s": 0.0}}
    parts = shares(decomposed(run_of(tmp_path / "run", UNIT / 0.6, kvm, bare)))
    if vcpus == 1:
        assert parts[POLLING] == pytest.approx(0.1 / 0.4, abs=WITHIN)
        assert parts[WAITING] == pytest.approx(0.3 / 0.4, abs=WITHIN)
    else:
        # What the vCPUs ran longer for a unit of work is all polling.
        assert parts[POLLING] == pytest.approx(1, abs=WITHIN)
    assert parts["unexplained"] == pytest.approx(0, abs=WITHIN)


def test_unmeasured_time_stays_unexplained(tmp_path: Path) -> None:
    kvm = cell_of({CPUID: (1_000, 0.02 * WALL)}, cpu_s=WALL, vcpu_cpu_s=WALL, vcpu_run_delay_s=0.0)
    found = decomposed(run_of(tmp_path / "run", 1.5 * UNIT, kvm, BARE))
    parts = shares(found)
    assert sum(parts.values()) == pytest.approx(1)
    assert parts["exits CPUID"] == pytest.approx(0.06, abs=WITHIN)
    assert parts["unexplained"] == pytest.approx(0.94, abs=WITHIN)


def test_where_the_baselines_run_delay_is_unknown_it_is_not_separated_from_idle_time(
    tmp_path: Path,
) -> None:
    bare = {"host_cost": {"wall_s": WALL, "cpu_s": WALL}}
    kvm = cell_of({}, cpu_s=0.5 * WALL, vcpu_cpu_s=0.5 * WALL, vcpu_run_delay_s=0.5 * WALL)
    parts = shares(decomposed(run_of(tmp_path / "run", 2 * UNIT, kvm, bare)))
    assert parts[OFF] == pytest.approx(1, abs=WITHIN)
    assert DELAY not in parts
    assert WAITING not in parts


def test_the_time_of_several_vcpus_is_decomposed_where_it_is_known(tmp_path: Path) -> None:
    # Two vCPUs work, a tenth of the time of each is port accesses and a twentieth is run delay.
    kvm = cell_of(
        {IOIO: (50_000, 0.2 * WALL), INTR: (500, 0.1 * WALL), HLT: (10, 0.1)}, vcpus=2,
        cpu_s=2 * WALL, vcpu_cpu_s=1.9 * WALL, vcpu_run_delay_s=0.1 * WALL,
    )  # fmt: skip
    bare = {"host_cost": {"wall_s": WALL, "cpu_s": 2 * WALL, "thread_run_delay_s": 0.0}}
    unit = UNIT / 0.85
    found = decomposed(run_of(tmp_path / "run", unit, kvm, bare))
    # A unit takes 1 / 0.85 times as long, on both vCPUs.
    assert found.vcpus == 2
    assert found.added_s == pytest.approx(2 * (unit - UNIT), rel=0.01)
    parts = shares(found)
    assert parts["exits IOIO"] == pytest.approx(0.1 / 0.15, abs=WITHIN)
    assert parts[DELAY] == pytest.approx(0.05 / 0.15, abs=WITHIN)
    assert parts["unexplained"] == pytest.approx(0, abs=WITHIN)
    assert WAITING not in parts
    assert found.host_threads_s == pytest.approx(0.1 * unit, rel=0.01)


def test_vcpus_without_work_do_not_dilute_the_cause(tmp_path: Path) -> None:
    # One of four vCPUs works; a fifth of its time is CPUID.
    kvm = cell_of(
        {CPUID: (9_000, 0.2 * WALL), HLT: (50, 3 * WALL)}, vcpus=4,
        cpu_s=WALL, vcpu_cpu_s=WALL, vcpu_run_delay_s=0.0,
    )  # fmt: skip
    found = decomposed(run_of(tmp_path / "run", 1.25 * UNIT, kvm, BARE))
    assert found.added_s == pytest.approx(0.25 * UNIT, rel=0.01)
    assert shares(found)["exits CPUID"] == pytest.approx(1, abs=WITHIN)


def test_several_vcpus_without_a_known_time_are_not_decomposed(tmp_path: Path) -> None:
    run = run_of(tmp_path / "run", 2 * UNIT, cell_of({CPUID: (1, 0.1)}, vcpus=2), BARE)
    made, refused = decompositions([run], compare([run]).effects, arm_exits([run]))
    assert made == ()
    (sentence,) = refused
    assert "2 vCPUs" in sentence


def test_the_exits_of_a_baseline_that_is_a_machine_are_subtracted(tmp_path: Path) -> None:
    # Both execute CPUID for a tenth of the baseline's unit; the arm accesses ports in addition.
    base, kvm = (
        cell_of(exits, cpu_s=WALL, vcpu_cpu_s=WALL, vcpu_run_delay_s=0.0)
        for exits in (
            {CPUID: (9_000, 0.1 * WALL)},
            {CPUID: (9_000, 0.08 * WALL), IOIO: (50_000, 0.2 * WALL)},
        )
    )
    parts = shares(decomposed(run_of(tmp_path / "run", 1.25 * UNIT, kvm, base)))
    assert parts["exits IOIO"] == pytest.approx(1, abs=WITHIN)
    assert parts["exits CPUID"] == pytest.approx(0, abs=WITHIN)


def xen(exits: Mapping[int, tuple[int, float]], delay_s: float, waited_s: float) -> dict[str, Any]:
    """Return a cell of a PVH or HVM guest: the trace has its waits, ``xl list`` its CPU time."""
    off = delay_s + waited_s
    facts = cell_of(exits, cpu_s=WALL - off, vcpu_cpu_s=WALL - off, dom0_cpu_s=0.3)
    recorded = facts["probes"]["exits"]
    recorded |= {"by": "xentrace", "recorded_s": WALL, "seconds": WALL}
    recorded |= {"run_delay_s": delay_s, "waited_s": waited_s}
    return facts


def test_on_xen_the_trace_of_exits_shows_the_run_delay_too(tmp_path: Path) -> None:
    # A tenth of the time is waits for the CPU, a tenth CPUID: a unit takes 1.25 times as long.
    facts = xen({CPUID: (9_000, 0.1 * WALL)}, 0.1 * WALL, 0.0)
    parts = shares(decomposed(run_of(tmp_path / "run", 1.25 * UNIT, facts, BARE)))
    assert parts["exits CPUID"] == pytest.approx(0.5, abs=WITHIN)
    assert parts[DELAY] == pytest.approx(0.5, abs=WITHIN)
    assert parts[WAITING] == pytest.approx(0, abs=WITHIN)
    assert parts["unexplained"] == pytest.approx(0, abs=WITHIN)


def test_on_xen_the_wait_for_a_device_model_counts_once_within_its_exit(tmp_path: Path) -> None:
    facts = xen({IOIO: (9_000, 0.2 * WALL)}, 0.0, 0.15 * WALL)
    parts = shares(decomposed(run_of(tmp_path / "run", 1.25 * UNIT, facts, BARE)))
    assert parts["exits IOIO"] == pytest.approx(1, abs=WITHIN)
    assert parts[WAITING] == pytest.approx(0, abs=WITHIN)


def test_a_run_whose_time_counts_instructions_is_not_decomposed(tmp_path: Path) -> None:
    kvm = cell_of({CPUID: (1, 0.1)}, cpu_s=WALL, vcpu_cpu_s=WALL, vcpu_run_delay_s=0.0)
    run = run_of(tmp_path / "run", 2 * UNIT, kvm, BARE)
    study = {**run.study, "host": {"kind": "lab"}, "lab": {"deterministic": True}}
    counted = replace(run, study=study)
    made, refused = decompositions([counted], compare([run]).effects, arm_exits([counted]))
    assert made == ()
    assert "counts instructions" in refused[0]


def test_hypercalls_of_pv_guests_have_no_time_and_are_unexplained(tmp_path: Path) -> None:
    facts = xen({}, 0.2 * WALL, 0.0)
    facts["probes"]["exits"]["exits"] = [
        {"vcpu": 0, "isa": "xen-pv", "reason": 29, "count": 500, "seconds": 0.0}
    ]
    run = run_of(tmp_path / "run", 1.6 * UNIT, facts, BARE)
    (found,) = arm_exits([run])
    assert found.reasons[0].reason.name == "hypercall_sched_op"
    assert found.reasons[0].each_s is None
    assert found.reasons[0].per_s == pytest.approx(100)
    whole = decomposed(run)
    assert whole.untimed
    parts = shares(whole)
    assert parts[DELAY] == pytest.approx(0.32 / 0.6, abs=WITHIN)
    assert parts["unexplained"] == pytest.approx(0.28 / 0.6, abs=WITHIN)
    shown = ExitReasons().data(ReportData([run], compare([run])))
    assert shown is not None
    assert any(
        "In kvm hypercalls and traps are part of what is unexplained" in line for line in shown.lead
    )


def test_exits_are_counted_per_second_and_per_unit_of_work(tmp_path: Path) -> None:
    run = run_of(tmp_path / "run", UNIT, cell_of({CPUID: (6_000, 0.6)}), BARE)
    (found,) = arm_exits([run])
    (reason,) = found.reasons
    assert reason.reason.name == "CPUID"
    assert reason.per_s == pytest.approx(1_000)
    assert reason.each_s == pytest.approx(1e-4)
    assert reason.per_unit == pytest.approx(1, rel=0.01)
    assert (found.agreement, found.trace_cost, found.work) == (1.0, 0.01, "rate")


def test_the_page_shows_exits_and_says_where_the_added_time_went(tmp_path: Path) -> None:
    kvm = cell_of({IOIO: (50_000, 0.2 * WALL)}, cpu_s=WALL, vcpu_cpu_s=WALL, vcpu_run_delay_s=0.0)
    run = run_of(tmp_path / "run", 1.25 * UNIT, kvm, BARE)
    shown = ExitReasons().data(ReportData([run], compare([run])))
    assert shown is not None
    assert shown.lead[0].replace("\N{NO-BREAK SPACE}", " ").startswith("100 % of the 2")
    assert "is exits IOIO" in shown.lead[0]
    assert {figure.name for figure, _ in shown.figures} == {"exit-reasons", "added-time"}
    assert [table.name for table in shown.tables] == ["exit-reasons", "added-time"]


def test_a_machine_whose_exits_were_not_recorded_says_why(tmp_path: Path) -> None:
    facts = {"probes": {"exits": {"missing": "KVM does not run the machine"}}}
    run = run_of(tmp_path / "run", 2 * UNIT, facts, BARE)
    shown = ExitReasons().data(ReportData([run], compare([run])))
    assert shown is not None
    assert shown.lead == (
        "In kvm exits were not recorded by reason: KVM does not run the machine.",
    )


def test_counts_without_time_are_shown_as_such(tmp_path: Path) -> None:
    facts = cell_of({})
    facts["probes"]["exits"] = {
        "by": "counters", "reason": "no histograms", "vcpus": 1, "seconds": 5.0,
        "counters": {"exits": 5_000},
    }  # fmt: skip
    run = run_of(tmp_path / "run", 2 * UNIT, facts, BARE)
    shown = ExitReasons().data(ReportData([run], compare([run])))
    assert shown is not None
    assert "no histograms" in shown.lead[0]
    assert "without their time" in shown.lead[1]


def test_a_run_without_the_probe_has_no_section(tmp_path: Path) -> None:
    run = run_of(tmp_path / "run", 2 * UNIT, {}, BARE)
    assert ExitReasons().data(ReportData([run], compare([run]))) is None


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner),
    max_leaves=8,
)


@pytest.mark.fuzz
@given(JSON | st.dictionaries(st.sampled_from(["vcpus", "seconds", "exits", "counters"]), JSON))
def test_no_facts_of_others_end_the_reading(facts: object) -> None:
    assert _read(facts)["seconds"] >= 0


@pytest.mark.parametrize(
    ("isa", "table"), [("vmx", VMX), ("svm", SVM), ("arm64", ARM64), ("xen-pv", XEN_PV)]
)
def test_each_reason_has_a_name_and_one_sentence(isa: str, table: Mapping[int, Any]) -> None:
    for code, reason in table.items():
        assert reason_of(isa, code) == reason
        assert " " not in reason.name
        assert reason.sentence.endswith(".")
        assert reason.sentence.count(". ") == 0
    names = [reason.name for reason in table.values()]
    assert len(names) == len(set(names))


def test_unknown_reasons_keep_their_number() -> None:
    assert reason_of("svm", 0x7FFF).name == "0x7fff"
    assert reason_of("riscv", 3).name == "0x3"
    assert reason_of("vmx", 0x80000021).name == "INVALID_STATE"
