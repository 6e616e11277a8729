"""A SIGKILL is attributed to a lack of memory only where the kernel's log names the process."""

from __future__ import annotations

from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tare.hosts import Completed, Host, LocalHost
from tare.platforms.linux import oom

# From dmesg of Linux 6.1.
LOG = """\
[ 91.1] qemu-system-x86 invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0, oom_score_adj=0
[ 91.2] Out of memory: Killed process 4711 (qemu-system-x86) total-vm:1kB, anon-rss:1kB
[ 97.3] Memory cgroup out of memory: Killed process 4712 (stress) total-vm:1kB, anon-rss:1kB
[ 98.0] oom_reaper: reaped process 4711 (qemu-system-x86), now anon-rss:0kB
"""


def test_the_log_names_whom_it_took() -> None:
    assert oom.killed_in(LOG) == {4711, 4712}


@pytest.mark.fuzz
@given(st.text())
def test_any_log_text_is_tolerated(text: str) -> None:
    assert all(isinstance(pid, int) for pid in oom.killed_in(text))


class Asked:
    """A host whose count of kills and kernel log are given.

    Args:
        kills: The count in ``/proc/vmstat``.
        log: What dmesg prints; None if it may not be read.
    """

    def __init__(self, kills: int, log: str | None) -> None:
        self._kills = kills
        self._log = log

    async def read(self, path: str) -> bytes:
        assert path == oom.VMSTAT
        return f"nr_free_pages 1\noom_kill {self._kills}\n".encode()

    async def run(self, argv: list[str], *, timeout_s: float) -> Completed:
        assert argv == ["dmesg"]
        if self._log is None:
            return Completed(1, b"", b"dmesg: read kernel buffer failed: Operation not permitted")
        return Completed(0, self._log.encode(), b"")


@pytest.mark.parametrize(
    ("pid", "before", "log", "reason"),
    [
        (4711, 0, LOG, "the host ran out of memory, and its kernel killed QEMU (OOM killer)"),
        # Another process was killed: nothing links this one to it.
        (4713, 0, LOG, ""),
        # The count is of the whole host, and nobody names the process.
        (4711, 0, "", f"QEMU was killed by SIGKILL; {oom.SOMETHING}"),
        (4711, 0, None, f"QEMU was killed by SIGKILL; {oom.SOMETHING}"),
        # The log is of earlier: nothing was counted since the start.
        (4711, 1, LOG, ""),
        (4711, None, LOG, ""),
    ],
)
async def test_only_what_the_log_names_was_killed_for_memory(
    pid: int, before: int | None, log: str | None, reason: str
) -> None:
    host = cast("Host", Asked(1, log))
    assert await oom.reason_for_kill(host, pid, "QEMU", before) == reason


async def test_the_count_of_this_host_is_read() -> None:
    now = await oom.kills_so_far(LocalHost())
    assert now is not None
    assert not await oom.reason_for_kill(LocalHost(), 4711, "QEMU", now + 1_000_000)
