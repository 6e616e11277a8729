"""Deadlines of tests that only find what hangs: longer where other work keeps the CPUs busy."""

from __future__ import annotations

import os

MOST = 4.0
"""The largest factor: what hangs is found on a busy computer, too."""


def patient(limit_s: float) -> float:
    """Return how long to wait for what takes at most ``limit_s`` on an idle computer.

    A process gets its share of the CPUs: as many times less as more processes want to run.
    """
    wanted = os.getloadavg()[0] / len(os.sched_getaffinity(0))
    return limit_s * min(max(wanted, 1.0), MOST)
