"""CPU time and memory of processes, as the kernel accounts them."""

from __future__ import annotations

from pathlib import Path


def cpu_s(pid: int) -> float:
    """Return the CPU seconds of a process, to the nanosecond (schedstat, sched-stats.rst)."""
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) * 1e-9


def peak_mib(pid: int) -> float:
    """Return the most memory that a process had, MiB (proc_pid_status(5))."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    (kib,) = (line.split()[1] for line in lines if line.startswith("VmHWM:"))
    return int(kib) / 1024
