"""Whether a machine's clock ran as fast as its host's while something was measured."""

from __future__ import annotations

from dataclasses import dataclass


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


@dataclass(frozen=True)
class ClockTrust:
    """How far the machine's clock drifted from the host's.

    Args:
        drift_ppm: Parts per million by which the machine's clock ran fast (negative: slow).
        uncertainty_ppm: How wrong ``drift_ppm`` can be, because the readings took time.
        trusted: Whether the true drift can lie within the limit.
    """

    drift_ppm: float
    uncertainty_ppm: float
    trusted: bool

    def __str__(self) -> str:
        return f"it drifted by {self.drift_ppm:+.0f} ± {self.uncertainty_ppm:.0f} ppm"


def judge(first: ClockReading, last: ClockReading, limit_ppm: float) -> ClockTrust:
    """Compare how much time passed in the machine and on the host between two readings.

    The machine's reading happened somewhere between the two of the host; the middle is taken, and
    half the distance is the uncertainty (Cristian's algorithm, 1989).

    Args:
        first: The reading before.
        last: The reading after.
        limit_ppm: The largest drift, in parts per million, that is still trusted.

    Raises:
        ValueError: The second reading does not come after the first.
    """
    host_ns = (
        last.host_before_ns + last.host_after_ns - first.host_before_ns - first.host_after_ns
    ) / 2
    if host_ns <= 0:
        raise ValueError("the second clock reading must come after the first")
    slack_ns = (
        last.host_after_ns - last.host_before_ns + first.host_after_ns - first.host_before_ns
    ) / 2
    drift_ppm = ((last.guest_ns - first.guest_ns) / host_ns - 1) * 1e6
    uncertainty_ppm = slack_ns / host_ns * 1e6
    return ClockTrust(drift_ppm, uncertainty_ppm, abs(drift_ppm) - uncertainty_ppm <= limit_ppm)
