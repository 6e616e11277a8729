"""ESXi's figures: whole intervals of 20 s, and nothing in between; and a machine's disturbances."""

from __future__ import annotations

import datetime
import sys
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tare.events.hypervisor import HypervisorFigure, HypervisorFigures
from tare.platforms.vendors.options import ANY
from tare.platforms.vsphere.figures import COUNTERS, RESOLUTION_S, intervals_within
from tare.platforms.vsphere.options import VsphereOptions
from tare.platforms.vsphere.platform import Vsphere
from tare.platforms.vsphere.vm import find_disturbances
from tare.run.probes.hypervisor_side import HypervisorSide

READY, COSTOP = 12, 399
WANTED = {
    READY: COUNTERS["cpu", "ready", "summation"],
    COSTOP: COUNTERS["cpu", "costop", "summation"],
}
T0 = 1_800_000_000.0


def answered(ends: list[float], ready: list[int], costop: list[int]) -> Any:
    """Return an answer as the API has it: times of the intervals' ends, and ms for each."""
    return SimpleNamespace(
        sampleInfo=[
            SimpleNamespace(
                timestamp=datetime.datetime.fromtimestamp(end, datetime.UTC), interval=RESOLUTION_S
            )
            for end in ends
        ],
        value=[
            SimpleNamespace(id=SimpleNamespace(counterId=READY), value=ready),
            SimpleNamespace(id=SimpleNamespace(counterId=COSTOP), value=costop),
        ],
    )


def test_values_are_in_seconds_per_second_with_their_resolution() -> None:
    counted = intervals_within(
        answered([T0 + 40, T0 + 20], [500, 250], [0, 3]), WANTED, T0, T0 + 40
    )
    assert counted is not None and (counted.resolution_s, counted.each) == (20, "interval")
    ready, costop = counted.figures
    assert (ready.name, costop.name, ready.unit) == ("cpu-ready", "cpu-costop", "s/s")
    assert ready.of == costop.of == (T0 + 20, T0 + 40)
    assert ready.values == (0.25 / 20, 0.5 / 20) and costop.values == (0.003 / 20, 0.0)
    assert ready.mean == pytest.approx(0.75 / 40)


def test_missing_values_are_not_shown() -> None:
    assert intervals_within(answered([T0 + 20], [-1], [-1]), WANTED, T0, T0 + 40) is None
    assert intervals_within(answered([], [], []), WANTED, T0, T0 + 40) is None
    counted = intervals_within(answered([T0 + 20, T0 + 40], [-1, 3], [7, -1]), WANTED, T0, T0 + 40)
    assert counted is not None
    assert [(each.name, each.of) for each in counted.figures] == [
        ("cpu-ready", (T0 + 40,)),
        ("cpu-costop", (T0 + 20,)),
    ]


@given(st.floats(0, 200), st.floats(0, 200), st.lists(st.integers(0, 20), max_size=12, unique=True))
def test_no_interval_reaches_beyond_the_cell(begun: float, lasted: float, at: list[int]) -> None:
    ends = [T0 + 20 * number for number in at]
    begun += T0
    counted = intervals_within(
        answered(ends, [1] * len(ends), [1] * len(ends)), WANTED, begun, begun + lasted
    )
    inside = [end for end in ends if begun <= end - RESOLUTION_S and end <= begun + lasted]
    for figure in counted.figures if counted is not None else ():
        assert figure.of == tuple(sorted(inside))
        assert all(value == 0.001 / RESOLUTION_S for value in figure.values)
    assert (counted is None) == (not inside)


def events(*kinds: str) -> Any:
    """Return a manager that reports events of these kinds."""
    moment = datetime.datetime.fromtimestamp(T0, datetime.UTC)
    found = [type(f"vim.event.{kind}", (), {"createdTime": moment})() for kind in kinds]
    return SimpleNamespace(QueryEvents=lambda _: found)


def look(*kinds: str, host: str = "h1", taken: str = "") -> tuple[str, ...]:
    """Return what disturbed a machine, if the API reports these facts."""
    kept = dict.fromkeys(("balloonedMemory", "swappedMemory", "compressedMemory"), 0)
    stats = kept | ({taken: 2048} if taken else {})
    runtime = SimpleNamespace(
        host=SimpleNamespace(_moId=host, name=host), consolidationNeeded=False
    )
    answer = [
        SimpleNamespace(name="runtime", val=runtime),
        SimpleNamespace(name="summary.quickStats", val=SimpleNamespace(**stats)),
    ]

    query = SimpleNamespace(FilterSpec=_anything, ObjectSpec=_anything, PropertySpec=_anything)
    types = SimpleNamespace(
        vim=SimpleNamespace(event=SimpleNamespace(EventFilterSpec=_Filter)),
        vmodl=SimpleNamespace(query=SimpleNamespace(PropertyCollector=query)),
    )
    client = SimpleNamespace(
        content=SimpleNamespace(
            eventManager=events(*kinds),
            propertyCollector=SimpleNamespace(
                RetrieveContents=lambda _: [SimpleNamespace(propSet=answer)]
            ),
        )
    )
    return tuple(find_disturbances(client, object(), types, "h1"))


def _anything(**_: Any) -> None:
    return None


class _Filter:
    ByEntity = staticmethod(_anything)

    def __init__(self, **_: Any) -> None:
        pass


def test_migrations_are_reported_and_ordinary_events_are_not() -> None:
    (one,) = look("VmPoweredOnEvent", "DrsVmMigratedEvent")
    assert one.startswith("DrsVmMigratedEvent at 20")
    assert look("VmPoweredOnEvent") == ()
    assert look(host="h2") == ("it runs on another host, h2",)


@pytest.mark.parametrize("what", ["balloonedMemory", "swappedMemory", "compressedMemory"])
async def test_memory_that_is_taken_withholds_every_cell_while_it_is(what: str) -> None:
    class Taken:
        async def disturbances(self) -> tuple[str, ...]:
            return look(taken=what)

        async def hypervisor_figures(self, begun: float, ended: float) -> HypervisorFigures:
            figure = HypervisorFigure("cpu-ready", "ready", "s/s", (begun,), (ended,))
            return HypervisorFigures("ESXi", 20, "interval", (figure,))

    machine: Any = Taken()
    moments = iter((5.0, 9.0))
    side = HypervisorSide(machine, lambda: next(moments))
    await side.open()
    await side.close()
    # Nothing changed since before the cell, and yet no cell is to be measured in this state.
    assert "MiB of its memory are" in side.doubt
    (shown,) = side.facts["hypervisor"]["figures"]
    assert (shown["values"], shown["of"]) == ([5.0], [9.0])


async def test_without_the_library_the_doctor_names_the_command_that_installs_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "pyVmomi", None)
    context: Any = None
    verdict = await Vsphere().check(context, VsphereOptions(address=ANY, datastore="D"))
    assert not verdict.usable
    assert verdict.hint == "pip install 'hypertare[vsphere]'"
    named = await Vsphere().check(context, VsphereOptions(address="esxi", datastore="D"))
    assert named.hint == "pip install 'hypertare[vsphere]'"
