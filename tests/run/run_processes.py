"""Which process a machine of a run is, for tests that stop or kill it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from run.run_driving import Event, of_type


def begins(cell: str) -> Callable[[Event], bool]:
    """Return a condition that is true for the event with which a cell begins."""
    return lambda event: event["type"] == "cell_started" and event["cell"].startswith(cell)


def process_of(folder: Path, arm: str, role: str) -> int:
    """Return the process of an arm's machine: its hypervisor, or the agent where it has none."""
    starting = of_type(folder, "machine_starting")
    *_, name = (each["machine"] for each in starting if (each["arm"], each["role"]) == (arm, role))
    ready = next(event for event in of_type(folder, "machine_ready") if event["machine"] == name)
    threads = ready["placement"].get("vcpu_threads") or []
    if threads:
        status = Path(f"/proc/{threads[0]}/status").read_text()
        return int(status.split("Tgid:")[1].split()[0])
    pid = ready["proof"].get("pid")
    if pid:
        return int(pid)
    return by_command(name)


def process_next_to(folder: Path, arm: str, role: str) -> int:
    """Return the agent that is a process of the host next to an arm's subject."""
    starting = of_type(folder, "machine_starting")
    *_, name = (each["machine"] for each in starting if each["arm"] == arm)
    return by_command(name, f"-{role}/")


def by_command(*words: str) -> int:
    """Return the agent whose console's path or cgroup has these words in it."""
    for process in Path("/proc").glob("[0-9]*"):
        try:
            output = (process / "cmdline").read_bytes()
            about = str((process / "fd/2").readlink()) + (process / "cgroup").read_text()
        except OSError:
            continue
        if all(word in about for word in words) and b"agent" in output and b"serve" in output:
            return int(process.name)
    pytest.fail(f"no process of {words}")
