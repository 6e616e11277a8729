"""Facts that the machines' kernels report: how often they tick, and how they preempt."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from tare.analysis.data.rundata import RunData
from tare.events.results import MachineResult

_NAMED = 4
"""The most arms that a sentence names."""


@dataclass(frozen=True)
class KernelFacts:
    """The kernel of an arm's subjects, as that kernel reports itself.

    Args:
        arm: The arm.
        emulated: Whether its host is emulated.
        release: The release, as ``uname -r`` shows it.
        tick_hz: Clock ticks per second (``HZ``), from the step of its coarse clock; None if the
            agent did not report it.
        preempt: The preemption model; ``rt`` is PREEMPT_RT.
        tickless: The CPUs on which the tick stops while one thread runs (``nohz_full``); empty:
            none.
        isolated: The CPUs that its scheduler leaves alone.
    """

    arm: str
    emulated: bool
    release: str
    tick_hz: float | None
    preempt: str
    tickless: str
    isolated: str


def kernels(runs: Iterable[RunData]) -> tuple[KernelFacts, ...]:
    """Return the kernels of all arms' subjects, each distinct one once, in the runs' order."""
    found: dict[KernelFacts, None] = {}
    for run in runs:
        order = {arm: place for place, arm in enumerate(run.arms)}
        known = [m for m in run.machines if m.role == "subject" and _proof_part(m, "kernel")]
        for machine in sorted(known, key=lambda m: order.get(m.arm, len(order))):
            found.setdefault(_facts(machine, machine.arm in run.emulated_arms))
    return tuple(found)


def tick_rates(runs: Iterable[RunData]) -> dict[str, float]:
    """Return the clock ticks per second of each arm whose kernels have one known rate."""
    rates: dict[str, set[float | None]] = {}
    for kernel in kernels(runs):
        rates.setdefault(kernel.arm, set()).add(kernel.tick_hz)
    return {arm: rate for arm, (rate, *others) in rates.items() if rate is not None and not others}


def different_kernels(run: RunData) -> tuple[str, ...]:
    """Return a sentence for each kernel that is not the baseline's, with the arms that ran it.

    A difference between such arms and the baseline may come from the kernels, so a reader has to
    know it before any effect.
    """
    releases: dict[str, dict[str, None]] = {}
    for machine in run.machines:
        if machine.role == "subject" and (
            release := _word(_proof_part(machine, "kernel").get("release"))
        ):
            releases.setdefault(machine.arm, {})[release] = None
    others: dict[tuple[str, str, str], list[str]] = {}
    for arm in run.arms:
        base = run.own_baselines.get(arm, run.baseline)
        if arm in releases and base in releases and releases[arm].keys() != releases[base].keys():
            pair = (", ".join(releases[arm]), base, ", ".join(releases[base]))
            others.setdefault(pair, []).append(arm)
    return tuple(
        f"{_named(arms)} ran Linux {own}, and {base} Linux {release}: part of the difference "
        "between them may come from the kernels."
        for (own, base, release), arms in others.items()
    )


def _named(arms: list[str]) -> str:
    if len(arms) > _NAMED:
        return f"{', '.join(arms[: _NAMED - 1])} and {len(arms) - _NAMED + 1} more arms"
    return " and ".join(filter(None, (", ".join(arms[:-1]), arms[-1])))


def _facts(machine: MachineResult, emulated: bool) -> KernelFacts:
    kernel, topology = _proof_part(machine, "kernel"), _proof_part(machine, "topology")
    rate = kernel.get("tick_hz")
    known = isinstance(rate, int | float) and not isinstance(rate, bool) and 0 < rate < 1e9
    return KernelFacts(
        machine.arm,
        emulated,
        _word(kernel.get("release")),
        float(rate) if known and rate is not None else None,
        _word(kernel.get("preempt")),
        _cpus(topology.get("tickless")),
        _cpus(topology.get("isolated")),
    )


def _proof_part(machine: MachineResult, part: str) -> Mapping[str, Any]:
    found = machine.proof.get(part)
    return found if isinstance(found, Mapping) else {}


def _word(value: object) -> str:
    return value if isinstance(value, str) else ""


def _cpus(value: object) -> str:
    # The kernel prints an empty mask as this.
    return "" if value == "(null)" else _word(value)
