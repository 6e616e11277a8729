"""Knobs that a platform lacks, and real-time machines that would leave the host no CPU."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tare.platforms.qemu.options import QemuOptions
from tare.run.catalog import build_catalog
from tare.study.model.knobs import lacking_knobs, starved_host
from tare.study.model.platform_options import PlatformOptions
from tare.study.model.study import Study
from tare.study.planning.host_cpus import HostCpus
from tare.study.planning.placement import NeighbourPlacement, Placement
from tare.study.planning.plan import ArmFacts, HostFacts, Plan, make_plan
from tare.study.reading.load import load_study
from tare.workloads import WORKLOADS

ABSENT = "no such hypervisor here"
STUDY = Path(__file__).parents[2] / "studies" / "knobs.yaml"
ALL = frozenset({"policy", "fifo", "nice", "weight", "cap", "slice"})


@dataclass(frozen=True)
class Wants:
    knobs: frozenset[str]

    @property
    def realtime(self) -> bool:
        return "fifo" in self.knobs


class Asked(PlatformOptions):
    subject: Wants | None = None
    neighbours: Wants | None = None

    @property
    def subject_scheduling(self) -> Wants | None:
        return self.subject

    @property
    def neighbours_scheduling(self) -> Wants | None:
        return self.neighbours


def wants(*knobs: str) -> Wants:
    return Wants(frozenset(knobs))


def options(subject: Wants | None = None, neighbours: Wants | None = None) -> Asked:
    return Asked(subject=subject, neighbours=neighbours)


def of_hypervisors(study: Study) -> set[str]:
    return {arm for arm in study.arms if arm.startswith(("kvm", "xen", "libvirt"))}


def skipped_by_arm(plan: Plan) -> dict[str, str]:
    """Return the skipped arms with the reason, except those that lack a hypervisor."""
    absent = {ABSENT, *plan.study.left_out.values()}
    return {skip.arm: skip.reason for skip in plan.skipped if skip.reason not in absent}


def planned(knobs: frozenset[str], cpus: int = 2, **reasons: str) -> Plan:
    study = load_study(STUDY, build_catalog())
    facts = ArmFacts(
        usable=True, max_vcpus=4, pinning=True, knobs=knobs, missing_knobs=reasons, boot_s=1.0
    )
    absent = replace(facts, usable=False, reason=ABSENT)
    every = {arm: absent if arm in of_hypervisors(study) else facts for arm in study.arms}
    return make_plan(study, 1, every, {"": HostFacts(HostCpus(tuple(range(cpus))))}, WORKLOADS)


def test_the_shipped_study_uses_every_knob_of_linux() -> None:
    plan = planned(ALL)
    assert {skip.arm for skip in plan.skipped} == {
        *of_hypervisors(plan.study),
        *plan.study.left_out,
    }
    assert skipped_by_arm(plan) == {}
    assert not plan.study.warnings
    assert plan.study.aa == ("bare", "bare-again")
    assert plan.most_s < 20 * 60
    xens = {name for name, arm in plan.study.arms.items() if arm.platform == "xen"}
    asked = {name: arm.options.subject_scheduling for name, arm in plan.study.arms.items()}
    used = {name: wanted.knobs if wanted else frozenset() for name, wanted in asked.items()}
    assert frozenset().union(*(used[name] for name in used.keys() - xens)) == ALL
    # The same holds for Xen's schedulers.
    of_xen = {"weight", "cap", "slice", "reservation"}
    assert frozenset().union(*(used[name] for name in xens)) == of_xen


def test_a_lacking_knob_is_skipped_with_its_reason() -> None:
    plan = planned(ALL - {"slice"}, slice="Linux 6.12 and newer take slices")
    skipped = skipped_by_arm(plan)
    assert set(skipped) == {
        "oci-slice-short",
        "oci-slice-long",
        "oci-slices",
        "qemu-slice-short",
        "qemu-slice-long",
        "qemu-slices",
    }
    for reason in skipped.values():
        assert "wants the scheduler knob slice" in reason
        assert "Linux 6.12" in reason
        assert "available: cap, fifo, nice, policy, weight" in reason


def test_real_time_machines_are_skipped_on_a_host_with_one_cpu() -> None:
    plan = planned(ALL, cpus=1)
    there = skipped_by_arm(plan)
    skipped = {(skip.arm, skip.scenario): skip.reason for skip in plan.skipped if skip.arm in there}
    assert set(skipped) == {
        (arm, scenario) for arm in ("oci-fifo", "qemu-fifo") for scenario in ("alone", "contended")
    }
    assert all("no CPU to the host itself, which has 1 CPU:" in why for why in skipped.values())


def test_platforms_without_such_options_lack_nothing() -> None:
    assert lacking_knobs(PlatformOptions(), frozenset(), {}) == ""
    assert starved_host(PlatformOptions(), Placement(), 4, HostCpus((0,))) == ""


def test_the_neighbours_knobs_count_too() -> None:
    lacking = lacking_knobs(options(wants("nice"), wants("fifo")), frozenset({"nice"}), {})
    assert lacking == "wants the scheduler knob fifo, which is not available here (available: nice)"


@pytest.mark.parametrize(
    ("subject", "neighbours", "vcpus", "starved"),
    [
        ((1,), [], 1, False),
        ((), [], 1, False),
        ((), [], 2, True),
        ((0, 1), [], 2, True),
        ((1,), [(1,)], 1, False),
        ((1,), [(0,)], 1, True),
        ((1,), [()], 1, True),
    ],
)
def test_two_cpus_bear_one_real_time_vcpu(
    subject: tuple[int, ...], neighbours: list[tuple[int, ...]], vcpus: int, starved: bool
) -> None:
    placement = Placement(
        subject, tuple(NeighbourPlacement("cpu-load", {}, cpus) for cpus in neighbours)
    )
    both = options(wants("fifo"), wants("fifo"))
    assert bool(starved_host(both, placement, vcpus, HostCpus((0, 1)))) == starved
    fair = options(wants("nice"), wants("policy"))
    assert starved_host(fair, placement, vcpus, HostCpus((0, 1))) == ""


@given(st.lists(st.integers(0, 7), unique=True, max_size=8), st.integers(1, 8), st.integers(1, 8))
def test_a_cpu_is_always_left_to_the_host(pinned: list[int], vcpus: int, count: int) -> None:
    cpus = HostCpus(tuple(range(count)))
    pinned = [cpu for cpu in pinned if cpu < count]
    reason = starved_host(options(wants("fifo")), Placement(tuple(pinned)), vcpus, cpus)
    used = min(len(pinned), vcpus) if pinned else vcpus
    assert bool(reason) == (used >= count)


@pytest.mark.parametrize(
    ("subject", "neighbours", "vcpus", "online", "lacking"),
    [
        ((0, 1), [], 2, (0, 1), True),
        ((0, 1), [], 1, (0, 1), False),
        ((1,), [], 1, (0, 1), False),
        ((), [], 2, (0, 1), False),
        ((0, 1), [], 2, (0, 1, 2), False),
        ((1,), [(0, 1)], 2, (0, 1), True),
    ],
)
def test_threads_apart_from_vcpus_need_a_cpu(
    subject: tuple[int, ...],
    neighbours: list[tuple[int, ...]],
    vcpus: int,
    online: tuple[int, ...],
    lacking: bool,
) -> None:
    placement = Placement(
        subject, tuple(NeighbourPlacement("cpu-load", {}, cpus) for cpus in neighbours)
    )
    apart = QemuOptions(emulator_cpus="other")
    reason = starved_host(apart, placement, vcpus, HostCpus(online))
    assert ("write `emulator-cpus: same`, or give the machine fewer vCPUs" in reason) == lacking
    assert starved_host(QemuOptions(), placement, vcpus, HostCpus(online)) == ""


def test_the_neighbours_of_an_arm_have_vcpus_of_their_own_number() -> None:
    apart = QemuOptions(iothread=True, iothread_cpus="other")
    wide = Placement((1,), (NeighbourPlacement("cpu-load", {}, (0, 1)),))
    assert "`iothread-cpus: other`" in starved_host(apart, wide, 1, HostCpus((0, 1)), 2)
    assert starved_host(apart, wide, 1, HostCpus((0, 1)), 1) == ""
