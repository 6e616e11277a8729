"""Loads that count in several rounds: each figure is the mean over them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tare.workloads import WORKLOADS
from tare.workloads.network.proxy.account import HOST, INSIDE, account_of, merge_accounts, shares
from tare.workloads.network.proxy.limits import limits
from tare.workloads.network.proxy.load_search import FULL, OFFERED, PROBE, stage_in_round
from tare.workloads.network.proxy.parameters import ProxyParameters
from tare.workloads.network.proxy.summary import summed
from workloads.proxy_accounts import proxied_result, stage, stat

WORKLOAD = WORKLOADS["proxy"]
OFFERING = ProxyParameters(offered=7.0)
ROUND = ("accounts", "owners", "cost")

Rates = st.lists(st.floats(10, 1e4), min_size=1, max_size=5)


def in_rounds(rates: Sequence[float]) -> dict[str, Any]:
    """Return the result of rounds with these rates; the CPUs do the same in each round."""
    found = proxied_result(rates[0])
    parts = [proxied_result(rate) for rate in rates]
    for nth, rate in enumerate(rates, start=1):
        found["stages"] |= {
            stage_in_round(name, nth): stage(rate) for name in (FULL, OFFERED, PROBE)
        }
    return {
        **found,
        **{name: parts[-1][name] for name in ROUND},
        "rounds": [{name: part[name] for name in ROUND} for part in parts],
    }


@given(Rates)
def test_each_figure_is_the_mean_over_the_rounds(rates: list[float]) -> None:
    values = WORKLOAD.observe(OFFERING, summed(in_rounds(rates)))
    mean = sum(rates) / len(rates)
    for name in ("connections", "response-offered-median", "response-offered-p99", "probe-p99"):
        assert values[name] == pytest.approx(mean), name
    # The machine's 4 s in each round of 10 s, by all that was answered.
    assert values["cpu-per-request"] == pytest.approx(0.4 / mean)
    assert values["packets-in"] == pytest.approx(100)


@given(Rates)
def test_time_of_all_rounds_is_reported_by_owner(rates: list[float]) -> None:
    single = account_of(proxied_result())
    found = merge_accounts([account_of(proxied_result(rate)) for rate in rates], rates)
    for where in (HOST, INSIDE):
        assert shares(found, where) == pytest.approx(shares(single, where))
    assert found.owned == pytest.approx(single.owned)


def test_a_thread_of_one_round_counts_half_over_two_rounds() -> None:
    first, second = account_of(proxied_result()), proxied_result()
    second["accounts"]["host"]["tasks"][-1][2] = "compiler"
    found = shares(merge_accounts([first, account_of(second)], [100.0, 100.0]), HOST)
    assert found["process editor"] == found["process compiler"] == pytest.approx(0.075)
    assert sum(found.values()) == pytest.approx(1)


def test_kernel_counters_cover_all_rounds() -> None:
    found = in_rounds([100.0, 100.0])
    header = "TcpExt: ListenOverflows\nTcpExt: {}\n"
    for part, (before, after) in zip(found["rounds"], ((1, 3), (5, 6)), strict=True):
        part["accounts"]["machine"]["before"]["/proc/net/netstat"] = header.format(before)
        part["accounts"]["machine"]["after"]["/proc/net/netstat"] = header.format(after)
    faults = summed(found)["faults"]
    assert [each["count"] for each in faults if each["what"] == "ListenOverflows"] == [5]


def test_cpus_that_others_filled_in_an_earlier_round_are_a_limit_too() -> None:
    quiet, full = proxied_result(), proxied_result()
    idle = {"user": 100, "system": 250, "idle": 650}
    full["accounts"]["host"]["after"]["/proc/stat"] = stat({"system": 1000}, idle)
    assert limits([quiet, quiet], account_of(quiet), 1000.0, 100.0) == []
    assert limits([quiet, full], account_of(quiet), 1000.0, 100.0) == []
    # Ten rounds; in the last one the CPUs were idle for 40 %.
    (why,) = limits([*[full] * 9, quiet], account_of(quiet), 1000.0, 100.0)
    assert "other work the rest of the 96 %" in why


def test_rounds_without_a_load_or_without_an_account_are_refused() -> None:
    found = in_rounds([100.0, 100.0])
    del found["stages"]["full.2"]
    with pytest.raises(ValueError, match="zip"):
        summed(found)
