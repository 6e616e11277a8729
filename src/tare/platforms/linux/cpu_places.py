"""Where on a host's CPUs threads are to run, as options say it."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator


def _cpus(chosen: str | tuple[int, ...]) -> str | tuple[int, ...]:
    if not chosen or (not isinstance(chosen, str) and min(chosen) < 0):
        raise ValueError("must be `any`, `same`, `other` or a list of CPU numbers, like [0, 1]")
    return chosen


EmulatorCpus = Annotated[Literal["any", "same", "other"] | tuple[int, ...], AfterValidator(_cpus)]
"""Anywhere, on the CPUs of the pinned vCPUs, on all others, or on listed ones."""


def cpus_in_words(chosen: str | tuple[int, ...]) -> str:
    """Return a place as reports say it: ``other CPUs``, ``CPUs 0, 1``."""
    if isinstance(chosen, str):
        return {"same": "the same CPUs", "other": "other CPUs"}.get(chosen, "any CPU")
    return f"CPUs {', '.join(map(str, chosen))}"
