"""Limits other than the proxy, and what is reported instead of a loss."""

from __future__ import annotations

from typing import Any

import pytest

from tare.workloads.network.proxy.account import account_of
from tare.workloads.network.proxy.limits import limits, unended
from tare.workloads.network.proxy.parameters import ProxyParameters
from tare.workloads.network.proxy.summary import summed
from workloads.proxy_accounts import account, stage, stat, task, under_xen
from workloads.proxy_accounts import proxied_result as result
from workloads.workload_kinds import PROXIED

WORKLOAD = PROXIED["proxy"]


def words(account: dict[str, Any]) -> list[str]:
    """Return the limits of a cell whose direct path is fast enough."""
    return limits([account], account_of(account), 1000.0, 100.0)


def test_under_xen_the_clients_cpus_are_the_computers() -> None:
    account = under_xen(host=1.9)
    account["accounts"]["host"]["tasks"] += [task(20, "tare-agent", 6.5, tid=22)]
    (why,) = limits([account], account_of(account), 1000.0, 100.0)
    assert why == "client and origin used 95 % of their CPU time"


def test_a_limit_is_named_and_no_loss_is_computed_from_it() -> None:
    assert limits([result()], account_of(result()), 1000.0, 100.0) == []
    values = WORKLOAD.observe(WORKLOAD.parameters(), summed(result()))
    assert values["requests"] == 100.0
    assert "requests-at-least" not in values
    slow = summed(result(direct=140.0))
    values = WORKLOAD.observe(WORKLOAD.parameters(), slow)
    assert values["requests-at-least"] == 100.0
    assert not {"requests", "bandwidth"} & set(values)
    assert values["cpu-per-request"] == pytest.approx(0.004)
    facts = WORKLOAD.facts(WORKLOAD.parameters(), slow)
    (why,) = facts["proxy"]["limits"]
    assert "1.40 times" in why
    assert facts["host_cost"] == {}
    assert WORKLOAD.facts(WORKLOAD.parameters(), summed(result()))["host_cost"][
        "cpu_s"
    ] == pytest.approx(4)


def test_ends_that_are_the_limit_without_a_proxy_are_reported() -> None:
    account = result()
    account["stages"]["straight-4"]["requests_per_s"] = 130.0
    values = WORKLOAD.observe(WORKLOAD.parameters(), summed(account))
    assert values["straight"] == 130.0
    assert "requests" not in values
    (why,) = summed(account)["limits"]
    assert "with nothing between them, 1.30 times" in why
    # A switch that is slower than both ends is not their fault, but hides the proxy as well.
    account["stages"]["straight-4"]["requests_per_s"] = 1000.0
    account["stages"]["direct-4"]["requests_per_s"] = 120.0
    (why,) = summed(account)["limits"]
    assert why.startswith("the direct path makes 120")


def test_a_client_and_an_origin_that_share_a_cpu_are_a_limit_together() -> None:
    account = result()
    account["accounts"]["host"]["tasks"] += [task(20, "tare-agent", 6.5, tid=22)]
    (why,) = limits([account], account_of(account), 1000.0, 100.0)
    assert why == "client and origin used 95 % of their CPU time"
    account["outside"] = {"client": [0, 2], "origin": [3]}
    assert limits([account], account_of(account), 1000.0, 100.0) == []


def test_a_client_whose_cpus_others_filled_is_a_limit_too() -> None:
    accounts = result()
    accounts["accounts"]["host"]["after"]["/proc/stat"] = stat(
        {"user": 300, "system": 650, "idle": 50}, {"user": 100, "system": 250, "idle": 650}
    )
    # In addition to 3 s of theirs, in 10 s of one CPU.
    accounts["accounts"]["host"]["tasks"] += [task(10, "haproxy", 6.5, name="vhost-10", tid=13)]
    (why,) = words(accounts)
    assert why.startswith("client and origin used 30 % of their CPU time, and other work the rest")
    assert "95 %" in why
    # What is on another host has none of these CPUs.
    accounts |= {"elsewhere": ["client", "origin"], "own_kernel": ["client", "origin"]}
    accounts["accounts"] |= dict.fromkeys(
        ("client", "origin"), account(10.0, stat({}), stat({}), [])
    )
    assert words(accounts) == []


@pytest.mark.parametrize(
    ("machine", "outside", "why"),
    [
        ([1], {"client": [0], "origin": [0]}, ""),
        ([0, 1], {"client": [0], "origin": [1]}, "client and origin may run on the machine’s own"),
        ([1], {"client": [0], "origin": [1]}, "origin may run on the machine’s own CPUs: leave"),
        ([1], {"client": [], "origin": [0]}, "client may run on the machine’s own CPUs: leave"),
        ([], {"client": [0], "origin": [0]}, "write `subject: {cpus: pinned}`"),
    ],
)
def test_client_and_origin_on_the_machines_own_cpus_are_a_limit(
    machine: list[int], outside: dict[str, list[int]], why: str
) -> None:
    found = words(result(cpus=machine, outside=outside))
    assert len(found) == bool(why)
    assert not why or why in found[0]
    if why and machine:
        assert "`--set shape.vcpus=1`" in found[0]


def test_ends_on_another_host_use_no_local_cpu_and_are_accounted_by_their_own_kernel() -> None:
    accounts = result(outside={"client": [], "origin": [0]}, elsewhere=["client"])
    accounts["own_kernel"] = ["client"]
    rested, busy = ({"user": ticks, "idle": 1000 - ticks} for ticks in (800, 950))
    accounts["accounts"]["client"] = account(10.0, stat({}), stat(rested), [])
    assert words(accounts) == []
    accounts["accounts"]["client"] = account(10.0, stat({}), stat(busy), [])
    assert words(accounts) == ["the client’s own computer was busy 95 %"]


@pytest.mark.parametrize(
    ("host_on", "host", "outside", "why"),
    [
        # Its kernel has all four vCPUs on one CPU, which everything shares.
        ([0], 0.95, {"client": [0], "origin": [1]}, "0.95 of its 1 CPUs"),
        ([0], 0.7, {"client": [0], "origin": [1]}, ""),
        ([0, 2], 1.3, {"client": [0], "origin": [1]}, "1.30 of its 2 CPUs"),
        # One is left to netback.
        ([0, 2], 1.3, {"client": [0], "origin": [0]}, ""),
        ([0, 1, 2, 3], 0.2, {"client": [0], "origin": [0]}, "off them (`dom0-cpus`)"),
        ([], 1.3, {"client": [0], "origin": [1]}, ""),
    ],
)
def test_under_xen_client_and_origin_have_to_be_apart_from_what_dom0_does_for_the_machine(
    host_on: list[int], host: float, outside: dict[str, list[int]], why: str
) -> None:
    account = under_xen(host_on=host_on, host=host)
    account["outside"] = outside
    found = words(account)
    assert len(found) == bool(why)
    assert not why or why in found[0]


def test_a_rate_that_still_rose_at_the_most_that_was_allowed_is_at_least_so_much() -> None:
    assert unended({4: 100.0, 8: 150.0}, 16) == []
    assert unended({4: 100.0, 8: 102.0}, 8) == []
    (why,) = unended({4: 100.0, 8: 150.0}, 8)
    assert "at 8 requests at once: raise `most-connections`" in why
    account = result()
    account["stages"] |= {"proxied-8": stage(150.0), "direct-8": stage(2000.0)}
    asked = ProxyParameters(most_connections=8)
    found = summed(account, asked)
    assert found["limits"] == [why]
    assert found["warnings"] == [f"direct: {why}"]
    values = WORKLOAD.observe(asked, found)
    assert "requests-at-least" in values
    assert "requests" not in values
    more = summed(account, ProxyParameters(most_connections=64))
    assert (more["limits"], more["warnings"]) == ([], [])


def test_the_ends_workload_says_where_its_search_ended() -> None:
    asked = ProxyParameters(most_connections=4)
    ends = WORKLOAD.ends(asked)
    assert "at 4 requests at once" in ends.through.summed(result())["limits"][0]


@pytest.mark.parametrize(("offered", "overloaded"), [(80.0, False), (95.0, True)])
def test_an_offered_load_above_capacity_is_reported_as_overload(
    offered: float, overloaded: bool
) -> None:
    found = summed(result(), ProxyParameters(offered=offered))
    assert found["offered"] == {"per_s": offered, "overloaded": overloaded}
    warnings = [each for each in found["warnings"] if "requests/s were offered" in each]
    assert bool(warnings) == overloaded
    assert summed(result(), ProxyParameters())["offered"] == {}
