"""The number of threads of a workload: a number, or as many as the machine has CPUs."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BeforeValidator, Field

MOST_THREADS = 1024


def _known(value: object) -> object:
    whole = isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= MOST_THREADS
    if not whole and value != "all":
        raise ValueError(f"must be a whole number from 1 to {MOST_THREADS}, or `all`")
    return value


Threads = Annotated[
    Annotated[int, Field(ge=1, le=MOST_THREADS)] | Literal["all"], BeforeValidator(_known)
]
"""A number of threads; ``all`` is one for each CPU of the machine."""

FROM_MACHINE = "threads"
"""The fact that replaces ``all``: the host provides it, so that it is equal in all arms."""


def threads_asked(threads: int | Literal["all"]) -> dict[str, int]:
    """Return the request's field with the number of threads; empty if the host provides it."""
    return {} if threads == "all" else {FROM_MACHINE: threads}
