"""Retries of a host whose part failed, and when to give up."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from tare.fleet.faults import HostGone, HostTaken, PartFailed, PartRefused
from tare.units import format_duration


@dataclass(frozen=True)
class Pauses:
    """Seconds before each further try; a host that fails after the last one is given up.

    Args:
        failed_s: After failures that may recur at once.
        taken_s: If another run has locked the host: the rest of a killed worker's run cleans up
            within two minutes, and keeps its lock until then.
        gone_s: If its worker died; the wait for a new worker is added.
    """

    failed_s: Sequence[float] = (1.0, 5.0)
    taken_s: Sequence[float] = (2.0, 8.0, 20.0, 40.0, 50.0)
    gone_s: Sequence[float] = (0.0,) * 4


class Retries:
    """The consecutive failures of one host.

    Args:
        pauses: The pauses after each.
    """

    def __init__(self, pauses: Pauses) -> None:
        self._pauses = pauses
        self._failures: Counter[type] = Counter()

    def measured(self) -> None:
        """Record that the host has finished a cell, which resets its failures."""
        self._failures.clear()

    def pause_after(self, failed: PartFailed | HostGone) -> float | None:
        """Return the seconds until the host is tried again; None: give up.

        Args:
            failed: Its newest failure.
        """
        if isinstance(failed, PartRefused):
            return None
        every: dict[type, Sequence[float]] = {
            HostTaken: self._pauses.taken_s,
            PartFailed: self._pauses.failed_s,
            HostGone: self._pauses.gone_s,
        }
        kind, pauses = next(each for each in every.items() if isinstance(failed, each[0]))
        self._failures[kind] += 1
        number = self._failures[kind]
        return pauses[number - 1] if number <= len(pauses) else None


def failure_text(host: str, failed: PartFailed | HostGone, again_s: float | None) -> str:
    """Return a sentence for the user on a failure and the next step.

    Args:
        host: The host.
        failed: The failure.
        again_s: Seconds until the next try; None: there is none.
    """
    if isinstance(failed, HostGone):
        again = "" if again_s is None else "; its unfinished cells are measured again"
        return f"{failed}{again}"
    again = "" if again_s is None else f"; next try in {format_duration(again_s)}"
    return f"{host}: {failed}{again}"


def why_given_up(failed: PartFailed | HostGone) -> str:
    """Return why a host is left out after its last failure."""
    if isinstance(failed, HostGone):
        return "its worker died repeatedly, without a finished cell in between"
    return failed.message
