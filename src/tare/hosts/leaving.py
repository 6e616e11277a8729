"""Tare is to end now: whoever waits for a host that may never answer is told to wait no longer.

A signal is for the whole process, and hosts are reached at many depths: by a run, by a lab, by a
machine that is a host of its own. So they are noted in one place, and told from there.
"""

from __future__ import annotations

from typing import Protocol
from weakref import WeakSet


class Leaves(Protocol):
    """What can be told that Tare is to end now."""

    def leave(self) -> None:
        """Give up soon whatever does not answer; what answers is still cleared."""
        ...


_NOTED: WeakSet[Leaves] = WeakSet()


def note(each: Leaves) -> None:
    """Have ``each`` told by :func:`leave`, as long as anybody else knows of it."""
    _NOTED.add(each)


def leave() -> None:
    """Tell all that were noted so far."""
    for each in list(_NOTED):
        each.leave()
