"""The host's memory traffic of a cell, from files as the kernel's resctrl has them."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tare.agent.client import Outcome
from tare.hosts.local import LocalHost
from tare.probes import Probe
from tare.run.cells.placement import ReadyArm
from tare.run.probes.host_hardware import NONE, UNAVAILABLE, HostHardware, MemoryTraffic
from tare.workloads import WORKLOADS


def put(root: Path, group: str, domain: int, text: str) -> None:
    folder = root / group / "mon_data" / f"mon_L3_{domain:02}"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "mbm_total_bytes").write_text(text + "\n")


def over_a_cell(root: Path, *meanwhile: tuple[str, int, str]) -> Any:
    async def measured() -> Any:
        times = iter([10.0, 12.5])
        traffic = MemoryTraffic(LocalHost(), str(root), lambda: next(times))
        await traffic.begin()
        for group, domain, text in meanwhile:
            put(root, group, domain, text)
        await traffic.end(Outcome({}))
        return traffic.facts

    return asyncio.run(measured())


def test_all_sockets_and_groups_count_and_each_group_once(tmp_path: Path) -> None:
    put(tmp_path, "", 0, "1000")
    put(tmp_path, "", 1, "50")
    put(tmp_path, "realtime", 0, "7")
    # Those within a group are in its own counts.
    put(tmp_path, "mon_groups/part", 0, "900")
    put(tmp_path, "realtime/mon_groups/part", 0, "5")
    found = over_a_cell(
        tmp_path, ("", 0, "3000"), ("realtime", 0, "107"), ("mon_groups/part", 0, "1900")
    )
    assert found == {"host_memory": {"bytes": 2100, "seconds": 2.5}}


@pytest.mark.parametrize(
    "meanwhile",
    [("", 0, "Unavailable"), ("", 0, "999"), ("new", 0, "1"), ("", 1, "Error")],
)
def test_unavailable_count_is_not_a_number(tmp_path: Path, meanwhile: tuple[str, int, str]) -> None:
    put(tmp_path, "", 0, "1000")
    assert over_a_cell(tmp_path, meanwhile) == {"host_memory": {"missing": UNAVAILABLE}}


def test_a_host_without_such_counters_says_so(tmp_path: Path) -> None:
    assert over_a_cell(tmp_path / "nowhere") == {"host_memory": {"missing": NONE}}


@pytest.mark.parametrize(
    ("counters", "elsewhere", "probes"),
    [
        (True, False, [HostHardware, MemoryTraffic]),
        (False, False, []),
        (True, True, []),
    ],
)
def test_the_bus_is_observed_only_where_a_cell_asks_and_its_host_is_known(
    counters: bool, elsewhere: bool, probes: list[type[Probe]]
) -> None:
    platform = SimpleNamespace(stated=lambda _: SimpleNamespace(elsewhere=elsewhere))
    arm = ReadyArm("a", *cast(Any, (platform, None, None, None, None, False, None)))
    context = cast(Any, SimpleNamespace(host=LocalHost()))
    workload = WORKLOADS["memory-bandwidth"]
    found = arm.memory_probes(context, workload, {"counters": counters}, {}, ())
    assert [type(each) for each in found] == probes
