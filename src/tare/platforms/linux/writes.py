"""Objects that machines on a Linux host create there; all such platforms state them alike.

Their names begin with ``tare-``, and the ledger records each object before it is made.
"""

from __future__ import annotations

from tare.platforms.statement import Write

FOLDER = Write(
    "directory",
    "mkdir -m 700 TMPDIR/tare-…, with sockets, logs and disks in it",
    "rm -r of that folder",
    "TMPDIR; /var/tmp for disks where TMPDIR is in memory",
)
PROCESS = Write("process", "a process of Tare's own, with a token in its environment", "kill")
GROUPS = Write(
    "cgroup",
    "mkdir /sys/fs/cgroup/…/tare-…; writes to cpu.weight, cpu.max, memory.max and memory.swap.max "
    "in it",
    "rmdir of that control group",
    "/sys/fs/cgroup",
)
SETTINGS = Write(
    "setting",
    "writes to /proc/sys/kernel/sched_rt_runtime_us and fair_server while real-time work runs, "
    "and to kvm's halt_poll_ns where an option asks for it",
    "what was there before is written back",
    "/proc/sys, /sys",
)
LOOP = Write("loop", "losetup --find over a file in that folder", "losetup --detach")
MOUNT = Write(
    "mount", "mount of a loop device or of the toolbox in that folder", "umount of that folder"
)
NETWORK = (
    Write("netns", "ip netns add tare-…", "ip netns delete tare-…"),
    Write(
        "link",
        "ip link add tare-… (bridge, veth, tap), addresses of its own subnet on it",
        "ip link delete tare-…",
    ),
)
PROCESS_MACHINE = (FOLDER, PROCESS, GROUPS, SETTINGS, LOOP, MOUNT, *NETWORK)
"""Objects that machines which are processes of the host create, with their disks and networks."""
