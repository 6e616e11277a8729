"""Whether Tare itself was started with another priority than usual, which its processes inherit."""

from __future__ import annotations

from tare.events import Check
from tare.hosts.contract import Host
from tare.hosts.processes import stat_fields

POLICIES = {0: "other", 1: "fifo", 2: "rr", 3: "batch", 5: "idle", 6: "deadline", 7: "ext"}
"""The kernel's numbers of scheduling policies, see sched(7)."""
NICE, POLICY = 16, 38
"""Fields 19 and 41 of /proc/PID/stat, see proc(5), counted from the first behind the name."""


async def own_priority(host: Host) -> Check:
    """Look at the nice value and the policy that whatever Tare starts on a host begins with.

    A thread's nice value counts within its control group only (sched(7), "The autogroup feature"),
    so it holds back a bare machine, which shares its group with other work, but no container.
    """
    told = await host.run(["cat", "/proc/self/stat"], timeout_s=10)
    fields = stat_fields(told.stdout)
    nice, policy = int(fields[NICE]), int(fields[POLICY])
    if not nice and not policy:
        return Check(name="priority", level="ok", found="as usual: nice 0, policy other")
    text = (
        f"Tare was started at nice {nice}, policy {POLICIES.get(policy, policy)}, which a bare "
        "machine inherits and a container does not: on busy CPUs they do not get the same"
    )
    hint = "renice -n 0 $$; chrt -o -p 0 $$; then start Tare again, without nice or chrt"
    return Check(name="priority", level="bad", found=text, hint=hint)
