"""When a host whose part failed is tried again, and when it is given up."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from tare.fleet.faults import HostGone, HostTaken, PartFailed, PartRefused
from tare.units import format_duration


@dataclass(frozen=True)
class Pauses:
    """Seconds before each further try; a host that fails once more after the last is given up.

    Args:
        failed_s: After failures that may come again at once.
        taken_s: Where another run holds the host: what a killed worker leaves clears up within two
            minutes, and holds it until then.
        gone_s: Where its worker died; whether another stands for the host is waited for besides.
    """

    failed_s: Sequence[float] = (1.0, 5.0)
    taken_s: Sequence[float] = (2.0, 8.0, 20.0, 40.0, 50.0)
    gone_s: Sequence[float] = (0.0,) * 4


class Retries:
    """The failures of one host, in a row.

    Args:
        pauses: How long is waited after each.
    """

    def __init__(self, pauses: Pauses) -> None:
        self._pauses = pauses
        self._failures: Counter[type] = Counter()

    def measured(self) -> None:
        """Take note that the host has finished a cell: its failures are in a row no more."""
        self._failures.clear()

    def pause_after(self, failed: PartFailed | HostGone) -> float | None:
        """Return the seconds until the host is tried again; None: it is given up.

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


def told(host: str, failed: PartFailed | HostGone, again_s: float | None) -> str:
    """Return what a user reads about a failure, and what happens next.

    Args:
        host: Where it was.
        failed: The failure.
        again_s: Seconds until the next try; None: there is none.
    """
    if isinstance(failed, HostGone):
        again = "" if again_s is None else "; what it had not finished is measured again"
        return f"{failed}{again}"
    again = "" if again_s is None else f"; next try in {format_duration(again_s)}"
    return f"{host}: {failed}{again}"


def why_given_up(failed: PartFailed | HostGone) -> str:
    """Return why a host is left out after its last failure."""
    if isinstance(failed, HostGone):
        return "its worker died again and again, without a finished cell in between"
    return failed.message
