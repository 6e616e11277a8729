"""The work of single CPUs and of groups of them, as shares of their time."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Column = NDArray[np.float64]
STATES: Mapping[str, tuple[str, ...]] = {
    "user": ("user", "nice"),
    "system": ("system", "irq", "softirq"),
    "iowait": ("iowait",),
    "steal": ("steal",),
}
"""The reported states, each combined from the kernel's (proc_stat(5)).

I/O wait is idle time during which a request is under way: no use of a CPU. A state is missing if
its counters are: agents leave out steal that no hypervisor reports, because it is not a zero."""
GUEST = ("guest", "guest_nice")
"""States whose time is already part of user and nice (proc_stat(5)), so it is not added again."""
_STATE = re.compile(r"(cpu\d*)\.(\w+)", re.ASCII)


@dataclass(frozen=True)
class Core:
    """One CPU over one cell: for each state of :data:`STATES`, its share in each interval."""

    number: int
    values: Mapping[str, tuple[float, ...]]


def grown(values: Column) -> Column:
    """Return a counter's growth between samples; one that ran backwards counts as no growth."""
    return np.maximum(np.diff(values), 0.0)


def shares(columns: Mapping[str, Column], cpu: str = "cpu") -> dict[str, Column]:
    """Return the share of each state in a CPU's time; those without counters are missing.

    Args:
        columns: Counters by name, with one value per sample.
        cpu: ``cpu`` for all together, ``cpu3`` for one.
    """
    return _shares(_columns_by_cpu(columns).get(cpu, {}))


def _columns_by_cpu(columns: Mapping[str, Column]) -> dict[str, dict[str, Column]]:
    found: dict[str, dict[str, Column]] = {}
    for name, values in columns.items():
        if (match := _STATE.fullmatch(name)) and match[2] not in GUEST:
            found.setdefault(match[1], {})[match[2]] = grown(values)
    return found


def _shares(states: Mapping[str, Column]) -> dict[str, Column]:
    if not states:
        return {}
    whole = sum(states.values(), start=np.float64(0))
    safe = np.where(whole > 0, whole, 1.0)
    nothing = np.zeros_like(safe)
    known = {
        state: [states[name] for name in parts if name in states] for state, parts in STATES.items()
    }
    return {state: sum(parts, start=nothing) / safe for state, parts in known.items() if parts}


def cores_of(columns: Mapping[str, Column], kept: NDArray[np.bool_]) -> tuple[Core, ...]:
    """Return the CPUs that have counters, by number.

    Args:
        columns: Counters by name, with one value per sample.
        kept: For each interval, whether it counts.
    """
    by_number = {
        int(cpu[3:]): states for cpu, states in _columns_by_cpu(columns).items() if cpu != "cpu"
    }
    return tuple(
        Core(
            number,
            {
                state: tuple(column[kept].tolist())
                for state, column in _shares(by_number[number]).items()
            },
        )
        for number in sorted(by_number)
    )


def mean_of_cores(cores: Iterable[Core]) -> dict[str, tuple[float, ...]]:
    """Return the mean of CPUs' shares, state by state; empty without CPUs.

    All CPUs have the same elapsed time, so this is the share of their total time.
    """
    chosen = list(cores)
    if not chosen:
        return {}
    return {
        state: tuple(np.mean([core.values[state] for core in chosen], axis=0).tolist())
        for state in STATES
        if all(state in core.values for core in chosen)
    }


def bound_cpus(placements: Iterable[Mapping[str, Any]]) -> frozenset[int]:
    """Return the CPUs that machines are bound to, from how each was placed."""
    return frozenset(cpu for placed in placements for cpu in _numbers(placed.get("cpus")))


def kept_cpus(placement: Mapping[str, Any]) -> frozenset[int]:
    """Return the CPUs that a machine on the host's kernel uses, even if it is not bound to any.

    It has at most as many as a guest has vCPUs, and another machine may use the same ones.
    """
    return frozenset(_numbers(placement.get("cpus")) or _numbers(placement.get("keeps_to")))


def split_by_binding(
    cores: Iterable[Core], bound: Collection[int]
) -> tuple[tuple[Core, ...], tuple[Core, ...]]:
    """Return the CPUs that machines are bound to, and the others."""
    known = tuple(cores)
    return (
        tuple(core for core in known if core.number in bound),
        tuple(core for core in known if core.number not in bound),
    )


def _numbers(listed: object) -> list[int]:
    numbers = listed if isinstance(listed, list) else []
    return [cpu for cpu in numbers if isinstance(cpu, int) and not isinstance(cpu, bool)]
