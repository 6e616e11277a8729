"""Deadlines of tests that only detect hangs: longer if other work keeps the CPUs busy."""

from __future__ import annotations

import os

MOST = 4.0
"""The largest factor, so that hangs are detected on a busy computer, too."""


def patient(limit_s: float) -> float:
    """Return the seconds to wait for work that takes at most ``limit_s`` s on an idle computer.

    A process gets its share of the CPUs: as many times less as more processes want to run.
    """
    wanted = os.getloadavg()[0] / len(os.sched_getaffinity(0))
    return limit_s * min(max(wanted, 1.0), MOST)
