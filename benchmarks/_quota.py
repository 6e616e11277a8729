"""The kernel's own account of a CPU quota, taken while it is in force."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from tare.hosts import Host
from tare.hosts.trace.threads import quota_files
from tare.platforms.linux.cgroups import cgroup_mounts

INTERVAL_S = 0.001
Sample = tuple[int, int]


class QuotaAccount:
    """Reads a control group's ``cpu.stat`` every millisecond, on a thread of its own."""

    def __init__(self) -> None:
        self._samples: list[Sample] = []
        self._over = threading.Event()
        self._thread: threading.Thread | None = None

    async def begin(self, host: Host, thread: int) -> None:
        """Begin to read the account of the group that ``thread`` is in."""
        mounts = await cgroup_mounts(host)
        files = await quota_files(host, thread, mounts.controllers.get("cpu", mounts.unified))
        self._thread = threading.Thread(target=self._read, args=(files[0],), daemon=True)
        self._thread.start()

    def end(self) -> tuple[tuple[int, int], ...]:
        """Return the beginning and end of each time that the group was stopped.

        Both in ns of CLOCK_MONOTONIC_RAW, known to about a millisecond; their difference is the
        kernel's own, exact.
        """
        self._over.set()
        if self._thread is not None:
            self._thread.join()
        return tuple(stops(self._samples))

    def _read(self, path: Path) -> None:
        with path.open() as account:
            while not self._over.wait(INTERVAL_S):
                account.seek(0)
                text = account.read()
                self._samples.append(
                    (time.clock_gettime_ns(time.CLOCK_MONOTONIC_RAW), stopped_ns(text))
                )


def stopped_ns(text: str) -> int:
    """Return for how many ns in total a group has been stopped, from its ``cpu.stat``.

    Source: ``throttled_time`` (ns, version 1) or ``throttled_usec`` (version 2), the kernel's
    Documentation/scheduler/sched-bwc.rst.
    """
    values = dict(line.split() for line in text.splitlines())
    if "throttled_usec" in values:
        return int(values["throttled_usec"]) * 1000
    return int(values.get("throttled_time", 0))


def stops(samples: Sequence[Sample]) -> Iterator[tuple[int, int]]:
    """Yield beginning and end of each stop: the account grows by its length when it ends.

    Args:
        samples: Time of reading and account, both in ns.
    """
    for (_, before), (now_ns, after) in itertools.pairwise(samples):
        if after > before:
            yield now_ns - (after - before), now_ns
