"""Options for the host CPUs on which threads run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Literal

from pydantic import AfterValidator


def _cpus(chosen: str | tuple[int, ...]) -> str | tuple[int, ...]:
    if not chosen or (not isinstance(chosen, str) and min(chosen) < 0):
        raise ValueError("must be `any`, `same`, `other` or a list of CPU numbers, like [0, 1]")
    return chosen


EmulatorCpus = Annotated[Literal["any", "same", "other"] | tuple[int, ...], AfterValidator(_cpus)]
"""Any CPUs, those of the pinned vCPUs, all others, or a list of CPU numbers."""


def cpus_in_words(chosen: str | tuple[int, ...]) -> str:
    """Return the reports' words for a choice of CPUs: ``other CPUs``, ``CPUs 0, 1``."""
    if isinstance(chosen, str):
        return {"same": "the same CPUs", "other": "other CPUs"}.get(chosen, "any CPU")
    return f"CPUs {', '.join(map(str, chosen))}"


def listed_cpus(**chosen: str | tuple[int, ...] | None) -> dict[str, tuple[int, ...]]:
    """Return the choices that are lists of CPUs, by the names of their options."""
    return {
        option.replace("_", "-"): cpus
        for option, cpus in chosen.items()
        if cpus and not isinstance(cpus, str)
    }


def other_cpus(**chosen: str | tuple[int, ...] | None) -> tuple[str, ...]:
    """Return the names of the options that ask for CPUs other than those of the pinned vCPUs."""
    return tuple(option.replace("_", "-") for option, cpus in chosen.items() if cpus == "other")


def lacking_cpus(
    named: Mapping[str, tuple[int, ...]], online: Sequence[int]
) -> tuple[str, str] | None:
    """Return which named CPUs a host lacks, and what to name instead; None if it has all.

    Args:
        named: The CPU numbers by the options that name them.
        online: The host's CPU numbers, ascending.
    """
    for option, cpus in named.items():
        if missing := sorted(set(cpus) - set(online)):
            gapless = len(online) > 2 and online[-1] - online[0] == len(online) - 1
            has = f"{online[0]} to {online[-1]}" if gapless else ", ".join(map(str, online))
            lacks = f"the host has no CPU {', '.join(map(str, missing))}"
            return f"`{option}`: {lacks}", f"name some of those it has: {has}"
    return None
