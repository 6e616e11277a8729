"""Plans for machines that another computer than the arm's host runs, as its hypervisor reports."""

from __future__ import annotations

from dataclasses import replace

import pytest

from study.study_catalog import ABLE, CATALOG, KINDS
from tare.errors import InputError
from tare.run.preflight.arm_facts import recorded, restored_facts
from tare.run.preflight.capacity import _require_memory_at
from tare.study.planning.host_cpus import Carrier, HostCpus, numbered
from tare.study.planning.plan import ArmFacts, HostFacts, Plan, make_plan
from tare.study.reading.load import parse_study

GIB = 1 << 30
STUDY = """
study: carried
baseline: bare
arms: {bare: {platform: bare}, vm: {platform: qemu}}
shape: {vcpus: 1, memory: 1GiB}
workloads: {tick: {}}
scenarios:
  full: {subject: {vcpus: all}, neighbours: [{load: cpu-load, count: fill}]}
  pinned: {subject: {cpus: pinned}}
"""
HERE = HostCpus((0, 1))
SMT = HostCpus(
    tuple(range(16)),
    siblings={cpu: (cpu // 2 * 2, cpu // 2 * 2 + 1) for cpu in range(16)},
    nodes={cpu: cpu // 8 for cpu in range(16)},
    memory={0: 16 * GIB, 1: 16 * GIB},
)
CARRIERS = {
    "more": Carrier("esx1", SMT, 32 * GIB, 20 * GIB, sockets=2),
    "fewer": Carrier("hv1", numbered(1), 2 * GIB),
    "cores": Carrier("pve", numbered(8, cores=4), 8 * GIB, sockets=1),
}


def facts(carrier: Carrier | None, **more: object) -> ArmFacts:
    return replace(ABLE, max_vcpus=64, carrier=carrier, **more)  # type: ignore[arg-type]


def planned(carrier: Carrier, text: str = STUDY) -> Plan:
    study = parse_study(text.encode(), "s.yaml", CATALOG)
    arms = {"bare": facts(None), "vm": facts(carrier)}
    return make_plan(study, 1, arms, {"": HostFacts(HERE)}, KINDS)


@pytest.mark.parametrize("name", CARRIERS)
def test_all_vcpus_and_neighbours_that_fill_are_counted_on_the_computer_that_runs_them(
    name: str,
) -> None:
    carrier = CARRIERS[name]
    whole = {b.arm: b for b in planned(carrier).batches if b.scenario == "full"}
    assert whole["bare"].vcpus == 2
    assert whole["vm"].vcpus == len(carrier.cpus.online)
    text = STUDY.replace("{vcpus: all}", "{cpus: any}")
    filled = {b.arm: b for b in planned(carrier, text).batches if b.scenario == "full"}
    assert len(filled["bare"].placement.neighbours) == 1
    assert len(filled["vm"].placement.neighbours) == max(1, len(carrier.cpus.online) - 1)


def test_pins_are_numbers_of_the_computer_that_runs_the_machine() -> None:
    pinned = {b.arm: b.placement for b in planned(CARRIERS["more"]).batches if b.arm == "vm"}
    placement = pinned["vm"]
    assert placement.subject == (15,)
    assert (placement.carrier, placement.subject_on_host) == ("esx1", ())
    (bare,) = (
        b for b in planned(CARRIERS["more"]).batches if (b.arm, b.scenario) == ("bare", "pinned")
    )
    assert bare.placement.subject == bare.placement.subject_on_host == (1,)


def test_a_hypervisor_of_the_host_itself_keeps_the_hosts_numbers() -> None:
    own = replace(CARRIERS["more"], is_host=True)
    assert all(not batch.placement.carrier for batch in planned(own).batches)


def test_a_plan_shows_what_runs_an_arms_machines() -> None:
    (note,) = (n for n in planned(CARRIERS["more"]).notes if "esx1" in n)
    assert note == (
        "CPUs of esx1, which runs vm: 16 CPUs on 8 cores in 2 sockets, 2 NUMA nodes, 32 GiB of "
        "memory (20 GiB free)"
    )


def test_unreported_sibling_is_not_reported_as_missing() -> None:
    text = STUDY.replace(
        "pinned: {subject: {cpus: pinned}}",
        "pinned: {subject: {cpus: pinned}, neighbours: [{load: cpu-load, cpus: sibling}]}",
    )
    (skip,) = (s for s in planned(CARRIERS["cores"], text).skipped if s.arm == "vm")
    assert skip.reason.endswith("which CPUs of this host share a core is not reported")
    batch = next(
        b
        for b in planned(CARRIERS["more"], text).batches
        if b.arm == "vm" and b.scenario == "pinned"
    )
    assert [each.cpus for each in batch.placement.neighbours] == [(14,)]


@pytest.mark.parametrize(
    ("carrier", "has"),
    [
        (Carrier("esx1", SMT, 12 * GIB), "esx1 has 12 GiB"),
        (Carrier("esx1", SMT, 64 * GIB, 12 * GIB), "esx1 has 64 GiB (12 GiB free)"),
    ],
)
def test_machines_that_do_not_fit_into_the_memory_there_are_refused(
    carrier: Carrier, has: str
) -> None:
    plan = planned(carrier, STUDY.replace("{vcpus: all}", "{cpus: any}"))
    (batch,) = (b for b in plan.batches if (b.arm, b.scenario) == ("vm", "full"))
    with pytest.raises(InputError, match="16 GiB of memory are wanted in 16 machines") as caught:
        _require_memory_at(plan.study, [batch], plan.carriers, carrier)
    assert caught.value.message.endswith(has)
    roomy = replace(carrier, memory=16 * GIB, free=16 * GIB)
    _require_memory_at(plan.study, [batch], {"vm": roomy}, roomy)


def test_carriers_are_restored_from_the_events_of_a_run() -> None:
    import json

    from tare.events import PlatformChecked

    known = facts(CARRIERS["more"])
    event = PlatformChecked.model_validate(
        {
            "arm": "vm",
            "platform": "qemu",
            "options": {},
            "usable": True,
            "reason": "",
            "hint": "",
            "emulated": False,
            "versions": {},
            "capabilities": {},
            "description": "",
            "facts": json.loads(json.dumps(recorded(known))),
        }
    )
    assert restored_facts({"vm": event}, {"vm": ABLE}) == {"vm": known}
