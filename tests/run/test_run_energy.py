"""The energy probe: counters of a powercap folder that is played, their step and their wrap."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import cast

import pytest

from tare.agent.client import Outcome
from tare.errors import TareError
from tare.hosts import Host
from tare.run.probes.energy import POWERCAP, READINGS, EnergyProbe, domains_of, moved

PACKAGE = f"{POWERCAP}/intel-rapl:0"
CORE = f"{POWERCAP}/intel-rapl:0:0"


class Played:
    """A host whose counters move by 100 µJ at every third reading."""

    def __init__(self, start: int, most: int, readable: bool = True, present: bool = True) -> None:
        self.value, self.most = start, most
        self.readable, self.present = readable, present
        self.readings = 0

    async def first_lines(self, patterns: Sequence[str]) -> dict[str, str]:
        if not self.present:
            return {}
        if patterns[0].endswith("/name"):
            return {f"{PACKAGE}/name": "package-0", f"{CORE}/name": "core"}
        lines = {f"{folder}/max_energy_range_uj": str(self.most) for folder in (PACKAGE, CORE)}
        if self.readable:
            lines |= {f"{folder}/energy_uj": str(self.value) for folder in (PACKAGE, CORE)}
        return lines

    async def read(self, path: str | Path) -> bytes:
        self.readings += 1
        if self.readings % 3 == 0:
            self.value = (self.value + 100) % self.most
        return f"{self.value}\n".encode()


def host(played: Played) -> Host:
    return cast("Host", played)


def measured(played: Played, used: int) -> EnergyProbe:
    async def cell() -> EnergyProbe:
        probe = EnergyProbe(host(played))
        await probe.open()
        await probe.begin()
        played.value = (played.value + used) % played.most
        await probe.end(Outcome({}))
        await probe.close()
        return probe

    return asyncio.run(cell())


def test_energy_has_its_resolution_and_uncertainty() -> None:
    facts = measured(Played(1_000, 1 << 40), 5_000_000).facts
    assert set(facts["domains"]) == {"package-0", "package-0/core"}
    package = facts["domains"]["package-0"]
    assert package["joules"] == pytest.approx(5.0, abs=3e-4)
    assert package["resolution_j"] == pytest.approx(1e-4)
    assert package["uncertainty_j"] == pytest.approx(2e-4)
    assert facts["seconds"] > 0


def test_a_counter_that_starts_again_loses_nothing() -> None:
    most = 262_143_328_850
    facts = measured(Played(most - 1_000_000, most), 3_000_000).facts
    assert facts["domains"]["package-0"]["joules"] == pytest.approx(3.0, abs=3e-4)
    assert moved(most - 5, 7, most) == 12


def test_a_counter_that_did_not_move_has_no_resolution() -> None:
    played = Played(0, 1 << 40)
    played.readings = -10 * READINGS

    async def still(path: str | Path) -> bytes:
        return f"{played.value}\n".encode()

    played.read = still  # type: ignore[method-assign]
    package = measured(played, 2_000_000).facts["domains"]["package-0"]
    assert package == {"joules": 2.0}


@pytest.mark.parametrize(
    ("played", "message"),
    [
        (Played(0, 1, present=False), "the host has no energy counter"),
        (Played(0, 1, readable=False), "cannot be read"),
    ],
)
def test_without_counters_nothing_is_recorded(played: Played, message: str) -> None:
    with pytest.raises(TareError, match=message):
        asyncio.run(domains_of(host(played)))
