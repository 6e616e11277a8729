"""Who had the CPUs below a host's kernel: read from Xen's list, at both ends of a while."""

from __future__ import annotations

import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from tare.errors import MachineFault
from tare.hosts import LocalHost
from tare.platforms.contract import GivenOut
from tare.platforms.xen.given_out import given
from tare.platforms.xen.output import domains
from tare.run.below import given_out_meanwhile
from tare.run.between import processes_of

LISTED = """\
Name                      ID   Mem VCPUs\tState\tTime(s) UUID
Domain-0                   0  1024     1     r-----     61.5 00000000-0000-0000-0000-000000000000
tare-1-neighbour-1         2   192     1     -b----      4.0 12345678-1234-1234-1234-123456789abc
tare-1-subject             3   192     2     -b----      9.2 22345678-1234-1234-1234-123456789abc
other                      5   192     2     -b----      0.5 32345678-1234-1234-1234-123456789abc
"""


def test_the_machines_time_is_told_apart_from_dom0s_and_from_others() -> None:
    found = given(domains(LISTED), 3, "tare-1-", 4, (61,), (0, 1))
    others = {"neighbour-1": 4.0, "other": 0.5}
    assert found == GivenOut(3, 4, 9.2, 61.5, others, (61,), host_on=(0, 1))


@pytest.mark.parametrize(("own", "listed", "lacks"), [(4, LISTED, "4"), (3, LISTED[:72], "0")])
def test_a_domain_that_is_gone_is_named(own: int, listed: str, lacks: str) -> None:
    with pytest.raises(MachineFault, match=f"domain {lacks}$"):
        given(domains(listed), own, "tare-1-", 4, ())


class Guest:
    """A machine of which each look finds more; None: nothing is below its host's kernel."""

    def __init__(self, looks: list[GivenOut | None]) -> None:
        self._looks = looks
        self.looked: list[float] = []

    async def given_out(self) -> GivenOut | None:
        self.looked.append(time.monotonic())
        return self._looks.pop(0)


async def meanwhile(guest: Guest, window: tuple[float, float]) -> dict[str, Any]:
    return await given_out_meanwhile(guest, window)  # type: ignore[arg-type]


async def test_only_what_was_used_in_the_while_counts() -> None:
    guest = Guest(
        [
            GivenOut(3, 4, 1.0, 50.0, {"ended": 2.0}),
            GivenOut(3, 4, 2.0, 60.0, {"ended": 3.0, "other": 1.0}, (61,)),
            GivenOut(3, 4, 2.1, 60.3, {"other": 1.2}, (61, 62), (0, 1)),
        ]
    )
    began = time.monotonic()
    found = await meanwhile(guest, (0.1, 0.2))
    _, first, last = guest.looked
    assert first - began >= 0.1
    took_s = last - first
    assert took_s >= 0.19
    assert found["below"]["machine"] == pytest.approx(0.1 / took_s, rel=0.1)
    assert found["below"]["host"] == pytest.approx(0.3 / took_s, rel=0.1)
    # A domain that ended meanwhile took its time with it.
    assert found["below"]["others"] == {"other": pytest.approx(0.2 / took_s, rel=0.1)}
    assert (found["below"]["domain"], found["below"]["cpus"]) == (3, 4)
    assert found["below"]["host_on"] == [0, 1]
    assert found["threads"] == [61, 62]


async def test_where_nothing_is_below_the_hosts_kernel_nothing_is_waited_for() -> None:
    guest = Guest([None])
    began = time.monotonic()
    assert await meanwhile(guest, (5.0, 5.0)) == {}
    assert time.monotonic() - began < 1.0


async def test_tares_own_processes_on_another_host_are_found_by_their_program(
    tmp_path: Path, agent_program: Path
) -> None:
    program = tmp_path / "agent"
    shutil.copy(shutil.which("sleep") or "", program)
    host = LocalHost(agent_program)
    assert await processes_of(host, program) == ()
    # The keeper of sessions calls itself otherwise than its program.
    started = [
        subprocess.Popen([program, "60"]),
        subprocess.Popen(["exe", "60"], executable=program),
        subprocess.Popen(["sleep", "60"]),
    ]
    try:
        found = await processes_of(host, program)
        assert set(found) == {each.pid for each in started[:2]}
    finally:
        for each in started:
            each.kill()
            each.wait()
