"""Steal that no hypervisor is known to report is never shown as zero, for hosts or machines."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tare.errors import InputError
from tare.hosts import Completed
from tare.run.cells.neighbours import wanted_as_guests_see
from tare.run.probes.host_trace import counts_steal

TIMING = {"accepted_ns": 0, "started_ns": 10**9, "ended_ns": 3 * 10**9}


class Proving:
    """A host whose agent proves so much."""

    def __init__(self, stdout: str | None) -> None:
        self._stdout = stdout

    async def run(self, argv: list[str], *, timeout_s: float) -> Completed:
        assert argv == ["/agent", "proof"] and timeout_s > 0
        if self._stdout is None:
            raise InputError("there is no such program")
        return Completed(0, self._stdout.encode(), b"")


@pytest.mark.parametrize(
    ("given_value", "is_reported"),
    [
        ({"tells_steal": True, "signatures": ["KVMKVMKVM"]}, True),
        ({"tells_steal": False, "signatures": ["Microsoft Hv"]}, False),
        ({"tells_steal": False, "signatures": ["TCGTCGTCGTCG"]}, False),
        # A bare machine, which has no steal.
        ({"tells_steal": None, "announced": False}, True),
        ({}, False),
        (None, False),
    ],
)
async def test_a_host_s_zero_is_a_count_only_where_one_counts(
    given_value: Any, is_reported: bool
) -> None:
    host: Any = Proving(json.dumps({"hypervisor": given_value}))
    assert await counts_steal(host, "/agent") is is_reported


@pytest.mark.parametrize("stdout", [None, "", "[]", "no JSON", "{}"])
async def test_agent_without_a_proof_counts_no_steal(stdout: str | None) -> None:
    host: Any = Proving(stdout)
    assert await counts_steal(host, "/agent") is False


def test_wanted_cpu_time_is_unknown_when_steal_is_unknown() -> None:
    # Hyper-V and TCG: the agent leaves it out. A bare machine says 0, and no more is known of it.
    assert wanted_as_guests_see(0.5, TIMING) is None
    assert wanted_as_guests_see(0.5, {**TIMING, "stolen_ns": 0}) is None
    assert wanted_as_guests_see(0.5, {**TIMING, "stolen_ns": 10**9}) == pytest.approx(1.0)
