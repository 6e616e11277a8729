"""The system calls that a container may make if an arm asks for a filter (seccomp(2)).

`runc spec` and a plain OCI bundle filter nothing; Docker and Podman do. Their profile lists the
allowed calls, and allows a call if one of the container's capabilities covers it. The list below
has the calls that this refuses to a container with only Tare's two capabilities (Docker's
documentation, "Seccomp security profiles for Docker").
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from errno import ENOSYS, EPERM
from typing import Any, Literal

from tare.errors import MachineFault
from tare.hosts.contract import Host

SeccompName = Literal["none", "docker"]

REFUSED = (
    "acct", "add_key", "bpf", "clock_adjtime", "clock_settime", "create_module", "delete_module",
    "finit_module", "get_kernel_syms", "init_module", "ioperm", "iopl", "kcmp", "kexec_file_load",
    "kexec_load", "keyctl", "lookup_dcookie", "mount", "move_pages", "nfsservctl",
    "open_by_handle_at", "perf_event_open", "pivot_root", "query_module", "quotactl", "reboot",
    "request_key", "setns", "settimeofday", "stime", "swapoff", "swapon", "sysfs", "_sysctl",
    "umount", "umount2", "unshare", "uselib", "userfaultfd", "ustat", "vm86", "vm86old",
)  # fmt: skip
"""Calls that fail with EPERM."""

NEW_NAMESPACES = (
    0x00020000,  # CLONE_NEWNS
    0x02000000,  # CLONE_NEWCGROUP
    0x04000000,  # CLONE_NEWUTS
    0x08000000,  # CLONE_NEWIPC
    0x10000000,  # CLONE_NEWUSER
    0x20000000,  # CLONE_NEWPID
    0x40000000,  # CLONE_NEWNET
)
"""Flags of clone(2), linux/sched.h."""

FILTERED = 2
"""The value of ``Seccomp`` in /proc/PID/status for a process with a filter, proc(5)."""

_STATUS = re.compile(r"^(Uid|NoNewPrivs|Seccomp|CapEff):\s+([0-9a-f]+)", re.MULTILINE)


def filtered(name: SeccompName) -> Mapping[str, Any]:
    """Return the part ``linux.seccomp`` of an OCI configuration; empty for no filter.

    Args:
        name: The profile.
    """
    if name == "none":
        return {}
    calls = [
        _refused(REFUSED, EPERM),
        # Its flags are in memory, which no filter reads; the C library then falls back to clone.
        _refused(("clone3",), ENOSYS),
        *(_refused(("clone",), EPERM, flag) for flag in NEW_NAMESPACES),
    ]
    return {"seccomp": {"defaultAction": "SCMP_ACT_ALLOW", "syscalls": calls}}


def _refused(names: Sequence[str], error: int, flag: int = 0) -> Mapping[str, Any]:
    rule: dict[str, Any] = {"names": list(names), "action": "SCMP_ACT_ERRNO", "errnoRet": error}
    if flag:
        is_set = {"index": 0, "value": flag, "valueTwo": flag, "op": "SCMP_CMP_MASKED_EQ"}
        rule["args"] = [is_set]
    return rule


async def runs_as(host: Host, name: str, pid: int, asked: SeccompName) -> Mapping[str, Any]:
    """Return the credentials of a container's first process, from ``/proc/PID/status`` (proc(5)).

    Args:
        host: The host on which it runs.
        name: The container's name, for messages.
        pid: The process's id on the host.
        asked: The requested system call filter.

    Returns:
        Its user, its capabilities (a hexadecimal mask), its filter, and whether it may gain
        privileges.

    Raises:
        MachineFault: A filter was requested, but the process has none.
    """
    status = (await host.read(f"/proc/{pid}/status")).decode(errors="replace")
    found = dict(_STATUS.findall(status))
    if asked != "none" and found.get("Seccomp") != str(FILTERED):
        raise MachineFault(f"{name}: its system calls are not filtered: {found}")
    return {
        "uid": int(found.get("Uid", "0")),
        "capabilities": found.get("CapEff", ""),
        "no_new_privileges": found.get("NoNewPrivs") == "1",
        "seccomp": asked,
        "filtered": found.get("Seccomp") == str(FILTERED),
    }
