"""The validated answers of an agent."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tare.agent.series import Series


@dataclass(frozen=True)
class Hello:
    """An agent's introduction.

    Args:
        agent: Its version.
        role: ``init`` (PID 1 of a machine of its own) or ``process``.
        proof: The environment proof.
        workloads: Names of the workloads it can run.
        boot: Stage of the boot to its end, in ns of the machine's CLOCK_MONOTONIC_RAW.
    """

    agent: str
    role: str
    proof: Mapping[str, Any]
    workloads: tuple[str, ...] = ()
    boot: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Outcome:
    """The result of a workload.

    Args:
        value: The agent's result object.
        series: Binary series, in order of arrival.
        timing: ``accepted_ns``, ``started_ns`` (all prepared, barrier passed) and ``ended_ns`` on
            the machine's CLOCK_MONOTONIC_RAW, and ``stolen_ns``, the steal time of its CPUs
            meanwhile, which is missing unless it is known to be reported. Empty for other
            requests.
    """

    value: dict[str, Any]
    series: tuple[Series, ...] = ()
    timing: Mapping[str, int] = field(default_factory=dict)


def hello_of(message: Mapping[str, Any]) -> Hello:
    """Return the introduction in a message that :mod:`tare.agent.message` has validated."""
    return Hello(
        agent=message.get("agent") or "",
        role=message.get("role") or "",
        proof=message.get("proof") or {},
        workloads=tuple(message.get("workloads") or ()),
        boot=message.get("boot") or {},
    )
