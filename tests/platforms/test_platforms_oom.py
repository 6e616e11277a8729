"""Whether a kernel's log says that a process was ended for memory."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tare.hosts import LocalHost
from tare.platforms.linux import oom

# Of Linux 6.1, dmesg.
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
def test_no_log_is_no_end(text: str) -> None:
    assert all(isinstance(pid, int) for pid in oom.killed_in(text))


async def test_what_was_not_counted_was_not_taken() -> None:
    now = await oom.kills_so_far(LocalHost())
    assert now is not None
    assert not await oom.taken_for_memory(LocalHost(), 4711, None)
    assert not await oom.taken_for_memory(LocalHost(), 4711, now + 1_000_000)
