"""Judge whether a machine's clock ran at its host's rate during a measurement."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

MOST_UNCERTAIN_PPM = 10_000.0
"""1 %: a fifth of the smallest margin that studies use for a relevant difference (5 %)."""

WIDTH_AGREEMENT = 1.1
"""The most by which the widths of two equally tight readings differ, as a factor."""


@dataclass(frozen=True)
class ClockReading:
    """A machine's clock, read between two readings of the host's; all CLOCK_MONOTONIC_RAW, in ns.

    Args:
        guest_ns: The machine's clock.
        host_before_ns: The host's clock before the request left.
        host_after_ns: The host's clock after the answer came.
        tsc: The machine's cycle counter.
    """

    guest_ns: int
    host_before_ns: int
    host_after_ns: int
    tsc: int

    @property
    def width_ns(self) -> int:
        """The time of the exchange, in ns: twice the largest error of the reading."""
        return self.host_after_ns - self.host_before_ns


def agree_in_width(readings: Sequence[ClockReading]) -> bool:
    """Return whether the two tightest readings are about equally tight."""
    widths = sorted(reading.width_ns for reading in readings)
    return len(widths) > 1 and widths[1] <= WIDTH_AGREEMENT * widths[0]


@dataclass(frozen=True)
class ClockTrust:
    """How far the machine's clock drifted from the host's.

    Args:
        drift_ppm: Parts per million by which the machine's clock ran fast (negative: slow).
        uncertainty_ppm: The largest error of ``drift_ppm``, because the readings took time.
        plausible: Whether the true drift can be within the limit.
        certain: Whether the drift is known well enough to detect a wrong clock.
    """

    drift_ppm: float
    uncertainty_ppm: float
    plausible: bool
    certain: bool

    @property
    def trusted(self) -> bool:
        """Whether the readings show the clock to be right: its drift is small, and known well."""
        return self.plausible and self.certain

    def __str__(self) -> str:
        return f"it drifted by {self.drift_ppm:+.0f} ± {self.uncertainty_ppm:.0f} ppm"


def judge(
    first: ClockReading,
    last: ClockReading,
    limit_ppm: float,
    most_uncertain_ppm: float = MOST_UNCERTAIN_PPM,
) -> ClockTrust:
    """Compare the time that passed in the machine and on the host between two readings.

    The machine was read at an unknown moment between the two readings of the host: use the
    middle, with half the distance as uncertainty (Cristian's algorithm, 1989).

    Args:
        first: The reading before.
        last: The reading after.
        limit_ppm: The largest drift, in parts per million, that is still trusted.
        most_uncertain_ppm: The largest uncertainty with which a drift counts as known.

    Raises:
        ValueError: The second reading does not come after the first.
    """
    host_ns = (
        last.host_before_ns + last.host_after_ns - first.host_before_ns - first.host_after_ns
    ) / 2
    if host_ns <= 0:
        raise ValueError("the second clock reading must come after the first")
    slack_ns = (last.width_ns + first.width_ns) / 2
    drift_ppm = ((last.guest_ns - first.guest_ns) / host_ns - 1) * 1e6
    uncertainty_ppm = slack_ns / host_ns * 1e6
    return ClockTrust(
        drift_ppm,
        uncertainty_ppm,
        plausible=abs(drift_ppm) - uncertainty_ppm <= limit_ppm,
        certain=uncertainty_ppm <= most_uncertain_ppm,
    )
