"""When a host whose part failed is tried again, and when it is given up."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tare.fleet.faults import HostTaken, PartFailed, PartRefused


@dataclass(frozen=True)
class Pauses:
    """Seconds before each further try; a host that fails once more after the last is given up.

    Args:
        failed_s: After failures that may come again at once.
        taken_s: Where another run holds the host: what a killed worker leaves clears up within two
            minutes, and holds it until then.
    """

    failed_s: Sequence[float] = (1.0, 5.0)
    taken_s: Sequence[float] = (2.0, 8.0, 20.0, 40.0, 50.0)


class Retries:
    """The failures of one host, in a row.

    Args:
        pauses: How long is waited after each.
    """

    def __init__(self, pauses: Pauses) -> None:
        self._pauses = pauses
        self._failures = 0

    def measured(self) -> None:
        """Take note that the host has finished a cell: its failures are in a row no more."""
        self._failures = 0

    def pause_after(self, failed: PartFailed) -> float | None:
        """Return the seconds until the host is tried again; None: it is given up.

        Args:
            failed: Its newest failure.
        """
        if isinstance(failed, PartRefused):
            return None
        taken = isinstance(failed, HostTaken)
        pauses = self._pauses.taken_s if taken else self._pauses.failed_s
        self._failures += 1
        return pauses[self._failures - 1] if self._failures <= len(pauses) else None
