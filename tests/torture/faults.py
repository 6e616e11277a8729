"""The faults: each breaks a part of a run under way, and names what must be reported."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

from torture.judging import Event, ends, measured_through, open_cells, reports_death

if TYPE_CHECKING:
    from torture.trial import CommandEnd, Trial

RESUME = "tare resume"
REPORT = "tare report"
WAIT_S = 90.0
LEAST_STOP_S, MOST_STOP_S = 3.0, 5.0
"""Longer than the look of :mod:`tare.run.probes.standstill` and its least standstill together."""
Judge = Callable[["CommandEnd", list[Event]], list[str]]
"""Says from the command's end and all events until then what was not reported rightly."""


def _anything(ended: CommandEnd, events: list[Event]) -> list[str]:
    return []


def _signalled(trial: Trial, *signals: signal.Signals) -> None:
    assert trial.process is not None
    for number in signals:
        trial.process.send_signal(number)
        time.sleep(0.3)


def kill_tare(trial: Trial, random: Random) -> Judge:
    """Kill the command itself; its events until then must be whole."""
    _signalled(trial, signal.SIGKILL)
    return _anything


def end_tare(trial: Trial, random: Random) -> Judge:
    """Ask the command to stop, in one of the ways there are."""
    ways = ((signal.SIGINT,), (signal.SIGINT, signal.SIGINT), (signal.SIGTERM,), (signal.SIGHUP,))
    way = random.choice(ways)
    _signalled(trial, *way)

    def judge(ended: CommandEnd, events: list[Event]) -> list[str]:
        if not events and ended.status == -way[0]:
            # Python was still loading, when a signal does what it does to any program.
            return []
        if ended.status in (0, 1) and events and events[-1]["type"] == "run_finished":
            return []
        begun = any(event["type"] == "run_started" for event in events)
        wrong = [] if ended.status == 130 else [f"exit status {ended.status}, not 130"]
        # A complete run is not resumed: only its report is still to be written.
        complete = begun and events[-1].get("status") == "complete"
        if begun and (REPORT if complete else RESUME) not in ended.text:
            wrong.append(f"it does not say how to resume: {ended.text[-300:]}")
        return wrong

    return judge


def stop_tare(trial: Trial, random: Random) -> Judge:
    """Stop the command for a while."""
    assert trial.process is not None
    trial.process.send_signal(signal.SIGSTOP)
    time.sleep(random.uniform(LEAST_STOP_S, MOST_STOP_S))
    trial.process.send_signal(signal.SIGCONT)
    return _anything


def _machine(trial: Trial, kind: str) -> int | None:
    """Wait for a process of a machine and return its id; None where none comes any more."""
    deadline = time.monotonic() + WAIT_S
    while trial.alive and time.monotonic() < deadline:
        for pid, name, above in trial.processes():
            boxed = any(each.startswith("runc") for each in above)
            if (
                (kind == "qemu" and name.startswith("qemu-system"))
                or (kind == "container" and name.startswith("tare-agent") and boxed)
                or (kind == "agent" and name.startswith("tare-agent") and _is_machine(pid))
            ):
                return pid
        time.sleep(0.02)
    return None


def _is_machine(pid: int) -> bool:
    """Return whether an agent is a machine of the run: one that watches the host has no console."""
    with contextlib.suppress(OSError):
        return "-subject" in str(Path(f"/proc/{pid}/fd/2").readlink())
    return False


def _killed(kind: str) -> Callable[[Trial, Random], Judge]:
    def fault(trial: Trial, random: Random) -> Judge:
        pid = _machine(trial, kind)
        time.sleep(random.uniform(0.0, 1.5))
        trial.note_processes()
        open_before = open_cells(trial.events())
        hit = False
        if pid is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
                hit = True
        time.sleep(0.1)
        open_after = open_cells(trial.events())

        def judge(ended: CommandEnd, events: list[Event]) -> list[str]:
            wrong = [] if ended.status in (0, 1) else [f"exit status {ended.status}"]
            # A machine that was being removed anyway is not a loss.
            needed = hit and set(open_before) & set(open_after)
            if needed and not reports_death(events):
                wrong.append(f"the {kind} that was killed is not reported")
            return wrong

        return judge

    fault.__doc__ = f"Kill a process of a {kind}."
    return fault


def _stopped(kind: str) -> Callable[[Trial, Random], Judge]:
    def fault(trial: Trial, random: Random) -> Judge:
        pid = _machine(trial, kind)
        time.sleep(random.uniform(0.0, 1.5))
        before: list[str] = []
        if pid is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGSTOP)
                before = open_cells(trial.events())
                time.sleep(random.uniform(LEAST_STOP_S, MOST_STOP_S))
                os.kill(pid, signal.SIGCONT)
        throughout = set(before) & set(open_cells(trial.events()))

        def judge(ended: CommandEnd, events: list[Event]) -> list[str]:
            wrong = [] if ended.status in (0, 1) else [f"exit status {ended.status}"]
            return wrong + [
                f"{cell} counts, though its {kind} was stopped in it"
                for cell in throughout
                if measured_through(ends(events).get(cell), LEAST_STOP_S)
            ]

        return judge

    fault.__doc__ = f"Stop a process of a {kind} for a while."
    return fault


def full_disk(trial: Trial, random: Random) -> Judge:
    """Fill the disk that the run's folder is on; there is room again once the command has ended."""
    with contextlib.suppress(OSError), (trial.home / "disk" / "filling").open("wb", 0) as file:
        while file.write(bytes(1 << 20)):
            pass

    def judge(ended: CommandEnd, events: list[Event]) -> list[str]:
        (trial.home / "disk" / "filling").unlink(missing_ok=True)
        if ended.status == 0:
            return []
        return [] if "make room" in ended.text else ["it does not say that room is to be made"]

    return judge


def removed_folder(trial: Trial, random: Random) -> Judge:
    """Remove the run's folder; what was measured is gone with it, and nothing else may be."""
    shutil.rmtree(trial.folder, ignore_errors=True)

    def judge(ended: CommandEnd, events: list[Event]) -> list[str]:
        known = any(words in ended.text for words in ("was removed", "cannot", "No such file"))
        return (
            [] if ended.status in (1, 2) and known else [f"status {ended.status}, folder removed"]
        )

    return judge


def cut_link(trial: Trial, random: Random) -> Judge:
    """Kill the processes that serve the SSH connection; new connections are taken."""
    server = SERVERS.get(trial.home)
    if server is not None:
        server()

    def judge(ended: CommandEnd, events: list[Event]) -> list[str]:
        return [] if ended.status in (0, 1) else [f"exit status {ended.status}"]

    return judge


SERVERS: dict[object, Callable[[], None]] = {}
"""How the link of a trial over SSH is cut, by the trial's folder."""
FAULTS: dict[str, Callable[[Trial, Random], Judge]] = {
    "Tare killed": kill_tare,
    "Tare asked to stop": end_tare,
    "Tare stopped": stop_tare,
    "QEMU killed": _killed("qemu"),
    "QEMU stopped": _stopped("qemu"),
    "container killed": _killed("container"),
    "container stopped": _stopped("container"),
    "agent killed": _killed("agent"),
    "agent stopped": _stopped("agent"),
    "disk full": full_disk,
    "folder removed": removed_folder,
    "SSH link cut": cut_link,
}
OWN_DISK = frozenset({"disk full"})
AFAR = frozenset({"SSH link cut"})
ENDS_ALL = frozenset({"folder removed"})
"""After these there is nothing left to resume."""


def mount_disk(trial: Trial) -> None:
    """Give a trial's run a small disk of its own."""
    (trial.home / "disk").mkdir()
    disk = str(trial.home / "disk")
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=300m", "tmpfs", disk], check=True)


def unmount_disk(trial: Trial) -> None:
    """Take it away again."""
    subprocess.run(["umount", "--lazy", str(trial.home / "disk")], check=False)
