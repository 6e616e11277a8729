"""Hyper-V's counts are reported unchanged; a cell that it disturbed is withheld."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

pytest.importorskip("pypsrp")
pytest.importorskip("psrpcore")

from platforms.hyperv_served import options_of, served
from platforms.hyperv_server import HypervServer
from platforms.vendor_served import spec_of, started
from tare.platforms.contract import Context
from tare.platforms.hyperv.command import PsObject, seconds_of
from tare.platforms.hyperv.figures import MOST, Reading, counters_of, waits
from tare.platforms.hyperv.options import HypervOptions
from tare.platforms.hyperv.platform import Hyperv
from tare.platforms.hyperv.vm import JITTER_S, differing, is_apart, other_devices, wanted_of
from tare.platforms.vendors.machine import VendorMachine
from tare.run.probes.hypervisor_side import HypervisorSide

server = served
counts = st.integers(0, MOST - 1)


@given(counts, st.integers(1, MOST - 1), st.integers(0, 1 << 50), st.integers(0, 1 << 40))
def test_the_mean_is_the_wait_per_dispatch(
    before: int, dispatches: int, waited: int, more: int
) -> None:
    first = Reading(10.0, 10.1, {0: (waited, before)})
    last = Reading(20.0, 20.1, {0: (waited + more, (before + dispatches) % MOST)})
    counted = waits([first, last], 10.2, 19.9)
    assert counted is not None
    (figure,) = counted.figures
    assert (figure.unit, figure.of, figure.weights) == ("s", (0,), (dispatches,))
    assert figure.mean == pytest.approx(more / dispatches * 1e-9)
    assert "never a maximum" in counted.source and counted.resolution_s == 10.1


def test_a_vcpu_that_was_dispatched_more_often_counts_for_more() -> None:
    first = Reading(0.0, 0.1, {0: (0, 0), 1: (0, 0)})
    last = Reading(9.0, 9.1, {0: (1000, 1), 1: (9000, 9), 2: (5, 5)})
    counted = waits([first, last], 1.0, 8.0)
    assert counted is not None
    (figure,) = counted.figures
    assert figure.of == (0, 1) and figure.mean == pytest.approx(1e-6)


@given(st.floats(0, 30), st.floats(0, 30))
def test_readings_enclose_the_measured_period(one: float, two: float) -> None:
    begun, ended = sorted((one, two))
    readings = [
        Reading(at, at + 0.5, {0: (int(at) * 100, int(at))}) for at in (5.0, 10.0, 15.0, 20.0)
    ]
    counted = waits(readings, begun, ended)
    if begun < 5.5 or ended > 20:
        assert counted is None
    else:
        assert counted is not None and counted.resolution_s >= ended - begun
        assert counted.figures[0].mean == pytest.approx(100e-9)


def test_counters_are_those_of_the_vm_alone() -> None:
    def row(name: str, waited: Any = 5, dispatched: Any = 1) -> PsObject:
        counted = {"CPUWaitTimePerDispatch": waited, "CPUWaitTimePerDispatch_Base": dispatched}
        return PsObject({"Name": name, **counted})

    rows = [row("tare-a:Hv VP 0"), row("tare-ab:Hv VP 1"), row("_Total"), row("tare-a:Hv VP 2", "")]
    assert counters_of("tare-a", rows) == {0: (5, 1)}


@pytest.mark.parametrize(
    ("span", "seconds"),
    [("PT1.5S", 1.5), ("P1DT2H3M4S", 93784.0), ("-PT1S", -1.0), ("P", None), ("1:02", None)],
)
def test_a_span_of_time_is_read_as_it_travels(span: str, seconds: float | None) -> None:
    assert seconds_of(span) == seconds


@given(st.integers(1, 64), st.floats(0.001, 4096), st.integers(1, 10_000))
def test_shares_are_whole_percent_of_all_processors(vcpus: int, cap: float, weight: int) -> None:
    options = HypervOptions.model_validate(
        {"address": "a", "scheduling": {"weight": weight, "cap": cap}}
    )
    processor = options.processor("subject", vcpus)
    assert processor["Count"] == vcpus and processor["RelativeWeight"] == weight
    assert (
        processor["Maximum"] == min(100, max(1, round(100 * cap / vcpus)))
        and processor["Reserve"] == 0
    )
    others = {"Count": vcpus, "RelativeWeight": 100, "Maximum": 100, "Reserve": 0}
    assert options.processor("neighbour-1", vcpus) == others


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"scheduling": {"nice": 1}}, "`nice` is not supported by Hyper-V"),
        ({"generation": 2, "devices": "emulated"}, "write `generation: 1`"),
        ({"secure_boot": True}, "write `generation: 2`"),
        ({"generation": 2, "image": "D:\\a.vhd"}, "convert it to a .vhdx"),
        ({"image": "\\\\nas\\a.iso"}, "double hop"),
        ({"image": "D:\\a.qcow2"}, "must be an `.iso`"),
        ({"folder": "tare"}, "must be a path on the host"),
    ],
)
def test_options_that_hyper_v_lacks_are_refused_in_the_study(
    more: dict[str, Any], words: str
) -> None:
    with pytest.raises(ValidationError, match=words):
        HypervOptions.model_validate({"address": "a", **more})


@given(st.floats(0, 1e6), st.floats(0, 60), st.floats(0, 60), st.floats(-1e4, 1e4))
def test_a_slow_answer_is_not_taken_for_another_start(
    begun: float, one: float, two: float, moved: float
) -> None:
    # Whatever answers take, both spans hold the moment at which it was started.
    assert not is_apart((begun - one, begun + two), (begun - two, begun + one))
    late = (begun + moved, begun + moved + one)
    assert is_apart((begun, begun + two), late) is (
        moved > two + JITTER_S or begun > late[1] + JITTER_S
    )


def test_a_vm_that_differs_from_the_request_is_reported(tmp_path: Path) -> None:
    options = HypervOptions.model_validate({"address": "a"})
    wanted = wanted_of(options, spec_of(tmp_path), "External")
    found = {name: str(value) for name, value in wanted.items()}
    assert differing(wanted, found) == ""
    for name in wanted:
        assert f"{name} was to be" in differing(wanted, {**found, name: "other"})
        assert "reports nothing" in differing(wanted, {**found, name: ""})


@pytest.mark.parametrize(
    ("devices", "driver", "differs"),
    [
        ("emulated", "hv_netvsc", True),
        ("emulated", "tulip", False),
        ("paravirtual", "tulip", True),
        ("paravirtual", "hv_netvsc", False),
    ],
)
def test_drivers_are_those_of_the_arm(devices: str, driver: str, differs: bool) -> None:
    assert bool(other_devices(devices, {"nics": [{"driver": driver}, {}]})) is differs


# With a host.

STATES: dict[str, dict[str, Any] | None] = {
    "BackingUpVirtualMachine": {"second": "BackingUpVirtualMachine"},
    "paused": {"state": "Paused"},
    "memory is dynamic": {"dynamic": True},
    "memory is 1 bytes": {"assigned": 1},
    "checkpoints were allowed": {"checkpoints": "Standard"},
    "replicated": {"replicated": "Replicating"},
    "restarted": {"started": -1e6},
    "checkpoint 00000000": {"snapshots": ["00000000-0000-0000-0000-000000000001"]},
    "left the host": None,
}


async def test_a_cell_that_was_disturbed_is_withheld(
    server: HypervServer, context: Context, tmp_path: Path
) -> None:
    machine = await started(Hyperv(), context, options_of(server), spec_of(tmp_path))
    (vm,) = server.host.vms.values()
    await machine._vm.applied()
    calm = HypervisorSide(machine)
    await calm.open()
    await calm.close()
    doubts = {what: await doubt_of(machine, server, vm, STATES[what]) for what in STATES}
    await machine.stop()
    assert calm.doubt == "" and all(what in doubt for what, doubt in doubts.items()), doubts
    (figure,) = calm.facts["hypervisor"]["figures"]
    # 500 dispatches between two looks, of 2 and of 3 microseconds.
    assert figure["weights"] == [500, 500] and figure["values"] == pytest.approx([2e-6, 3e-6])


async def doubt_of(
    machine: VendorMachine, server: HypervServer, vm: Any, change: dict[str, Any] | None
) -> str:
    """Measure while a VM changes, or is gone, and make it again what it was."""
    side, kept = HypervisorSide(machine), dict(vars(vm))
    await side.open()
    if change is None:
        del server.host.vms[vm.id]
    else:
        vars(vm).update(change)
    await side.close()
    vars(vm).update(kept)
    server.host.vms[vm.id] = vm
    return side.doubt
