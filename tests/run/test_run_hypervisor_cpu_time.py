"""The CPU time below a host's kernel: read from Xen's list, at both ends of a period."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tare.errors import MachineFault, WorkloadFault
from tare.hosts import LocalHost
from tare.platforms.contract import CpuAccounting, HypervisorAccounting
from tare.platforms.xen.cpu_accounting import cpu_accounting
from tare.platforms.xen.output import domains
from tare.run.topologies.proxied_cell import cpu_shares_below
from tare.run.topologies.proxied_setup import processes_of

LISTED = """\
Name                      ID   Mem VCPUs\tState\tTime(s) UUID
Domain-0                   0  1024     1     r-----     61.5 00000000-0000-0000-0000-000000000000
tare-1-neighbour-1         2   192     1     -b----      4.0 12345678-1234-1234-1234-123456789abc
tare-1-subject             3   192     2     -b----      9.2 22345678-1234-1234-1234-123456789abc
other                      5   192     2     -b----      0.5 32345678-1234-1234-1234-123456789abc
"""


def test_time_of_the_machine_dom0_and_others_is_separated() -> None:
    found = cpu_accounting(domains(LISTED), 3, "tare-1-", 4)
    assert found == CpuAccounting(3, 4, 9.2, 61.5, {"neighbour-1": 4.0, "other": 0.5})


@pytest.mark.parametrize(("own", "listed", "lacks"), [(4, LISTED, "4"), (3, LISTED[:72], "0")])
def test_a_domain_that_is_gone_is_named(own: int, listed: str, lacks: str) -> None:
    with pytest.raises(MachineFault, match=f"domain {lacks}$"):
        cpu_accounting(domains(listed), own, "tare-1-", 4)


def looks(first: str, last: str, ended_s: float = 110.0) -> dict[str, Any]:
    return {"printed": [{"at_s": 100.0, "text": first}, {"at_s": ended_s, "text": last}]}


BELOW = HypervisorAccounting(
    argv=("xl", "list", "-v"),
    read=lambda listed: cpu_accounting(domains(listed), 3, "tare-1-", 4),
    host_on=(0, 1),
)
LATER = LISTED.replace("61.5", "69.5").replace(" 4.0", " 5.0").replace(" 9.2", "11.2")


def test_only_what_was_used_between_both_looks_counts() -> None:
    assert cpu_shares_below(BELOW, looks(LISTED, LATER)) == {
        "domain": 3,
        "cpus": 4,
        "machine": pytest.approx(0.2),
        "host": pytest.approx(0.8),
        "host_on": [0, 1],
        "others": {"neighbour-1": pytest.approx(0.1), "other": 0.0},
    }


def test_a_domain_that_ended_meanwhile_took_its_time_with_it() -> None:
    without = "".join(line for line in LATER.splitlines(True) if not line.startswith("other"))
    for first, last, other in ((LISTED, without, None), (without, LATER, 0.05)):
        assert cpu_shares_below(BELOW, looks(first, last))["others"].get("other") == other


@pytest.mark.parametrize(
    ("account", "says"),
    [
        ({}, "instead of two readings"),
        ({"printed": [{"at_s": 1.0, "text": LISTED}]}, "instead of two readings"),
        ({"printed": 7}, "cannot be read"),
        ({"printed": [{"text": LISTED}] * 2}, "cannot be read"),
        (looks(LISTED, LATER, ended_s=float("nan")), "cannot be read"),
        (looks(LISTED, LATER, ended_s=100.0), "have the same time"),
    ],
)
def test_account_without_a_period_is_refused(account: dict[str, Any], says: str) -> None:
    with pytest.raises(WorkloadFault, match=says):
        cpu_shares_below(BELOW, account)


def test_the_hosts_agent_asks_at_both_ends_of_what_it_accounts_for(agent_program: Path) -> None:
    asked = {"seconds": 0.2, "tasks": False, "command": ["echo", LISTED]}
    done = subprocess.run(
        [agent_program, "run", "account", json.dumps(asked)],
        capture_output=True,
        check=True,
    )
    output = json.loads(done.stdout)["value"]
    assert cpu_shares_below(BELOW, output)["others"].keys() == {
        "neighbour-1",
        "other",
    }


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
