"""Whether a machine's clock ran as fast as its host's while something was measured."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

MOST_UNCERTAIN_PPM = 10_000.0
"""1 %: a fifth of the least margin that studies take for a difference that matters (5 %)."""

AS_TIGHT = 1.1
"""By which factor two readings may differ in width and be about as tight."""


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
        """How long the answer took: twice how wrong the reading can be."""
        return self.host_after_ns - self.host_before_ns


def as_tight_as_can_be(readings: Sequence[ClockReading]) -> bool:
    """Return whether the two tightest of some readings are about as tight."""
    widths = sorted(reading.width_ns for reading in readings)
    return len(widths) > 1 and widths[1] <= AS_TIGHT * widths[0]


@dataclass(frozen=True)
class ClockTrust:
    """How far the machine's clock drifted from the host's.

    Args:
        drift_ppm: Parts per million by which the machine's clock ran fast (negative: slow).
        uncertainty_ppm: How wrong ``drift_ppm`` can be, because the readings took time.
        plausible: Whether the true drift can lie within the limit.
        certain: Whether it is known well enough that a wrong clock would show.
    """

    drift_ppm: float
    uncertainty_ppm: float
    plausible: bool
    certain: bool

    @property
    def trusted(self) -> bool:
        """Whether the clock was seen to be right, and not only not seen to be wrong."""
        return self.plausible and self.certain

    def __str__(self) -> str:
        return f"it drifted by {self.drift_ppm:+.0f} ± {self.uncertainty_ppm:.0f} ppm"


def judge(
    first: ClockReading,
    last: ClockReading,
    limit_ppm: float,
    most_uncertain_ppm: float = MOST_UNCERTAIN_PPM,
) -> ClockTrust:
    """Compare how much time passed in the machine and on the host between two readings.

    The machine's reading happened somewhere between the two of the host; the middle is taken, and
    half the distance is the uncertainty (Cristian's algorithm, 1989).

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
