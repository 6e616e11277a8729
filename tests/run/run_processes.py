"""Which process a machine of a run is, for tests that stop or kill it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from run.run_driving import Event, of_type


def begins(cell: str) -> Callable[[Event], bool]:
    """Return what holds for the event with which a cell begins."""
    return lambda event: event["type"] == "cell_started" and event["cell"].startswith(cell)


def process_of(folder: Path, arm: str, role: str) -> int:
    """Return the process of an arm's machine: its hypervisor, or the agent where it has none."""
    starting = {
        event["machine"]: event
        for event in of_type(folder, "machine_starting")
        if event["arm"] == arm and event["role"] == role
    }
    name = list(starting)[-1]
    ready = next(event for event in of_type(folder, "machine_ready") if event["machine"] == name)
    threads = ready["placement"].get("vcpu_threads") or []
    if threads:
        status = Path(f"/proc/{threads[0]}/status").read_text()
        return int(status.split("Tgid:")[1].split()[0])
    pid = ready["proof"].get("pid")
    if pid:
        return int(pid)
    return by_command(name)


def by_command(name: str) -> int:
    """Return the agent of a machine that is a process, by its console's folder or its cgroup."""
    for process in Path("/proc").glob("[0-9]*"):
        try:
            words = (process / "cmdline").read_bytes()
            about = str((process / "fd/2").readlink()) + (process / "cgroup").read_text()
        except OSError:
            continue
        if name in about and b"agent" in words and b"serve" in words:
            return int(process.name)
    pytest.fail(f"no process of {name}")
