"""What an agent's answers are made into, once they are known to be of the right kinds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tare.agent.series import Series


@dataclass(frozen=True)
class Hello:
    """How an agent introduces itself.

    Args:
        agent: Its version.
        role: ``init`` (PID 1 of a machine of its own) or ``process``.
        proof: The environment proof.
        workloads: Names of the workloads it can carry out.
        boot: Stage to nanoseconds of the machine's CLOCK_MONOTONIC_RAW: where the boot's time went.
    """

    agent: str
    role: str
    proof: Mapping[str, Any]
    workloads: tuple[str, ...] = ()
    boot: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Outcome:
    """What a workload found.

    Args:
        value: The agent's result object.
        series: Binary series, in the order in which they came.
        timing: ``accepted_ns``, ``started_ns`` (all prepared, barrier passed) and ``ended_ns`` on
            the machine's CLOCK_MONOTONIC_RAW, and ``stolen_ns``, what a hypervisor took from its
            CPUs meanwhile, which is not there where none is known to tell; empty for what is no
            workload.
    """

    value: dict[str, Any]
    series: tuple[Series, ...] = ()
    timing: Mapping[str, int] = field(default_factory=dict)


def hello_of(message: Mapping[str, Any]) -> Hello:
    """Return how an agent introduces itself, from what :mod:`tare.agent.message` let through."""
    return Hello(
        agent=message.get("agent") or "",
        role=message.get("role") or "",
        proof=message.get("proof") or {},
        workloads=tuple(message.get("workloads") or ()),
        boot=message.get("boot") or {},
    )
