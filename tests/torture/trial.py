"""One run that is to be disturbed: its folder, its processes, and what it says."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from processes import of_state

TARE = Path(sys.executable).parent / "tare"
LIMIT_S = 400.0
STUDY = """\
study: torture
baseline: bare
blocks: {{least: 2, most: 2}}
shape: {{vcpus: 1, memory: 128MiB}}
{host}arms:
  bare: {{platform: bare}}
  box: {{platform: oci, runtime: runc}}
  guest: {{platform: qemu, accelerator: tcg}}
scenarios:
  alone: {{subject: {{cpus: any}}}}
workloads:
  numeric-sort: {{duration: 1500ms}}
  switch: {{threads: 2, samples: 2000}}
  shell:
    workload: command
    argv: [sh, -c, "sleep 0.7 & sleep 0.8 & sleep 0.9"]
    expect: 1s
"""
CELLS = 2 * 3 * 3
Event = dict[str, Any]


@dataclass(frozen=True)
class CommandEnd:
    """What a command of Tare ended with."""

    words: tuple[str, ...]
    status: int
    text: str


@dataclass
class Trial:
    """One run in a folder of its own, with a state folder of its own.

    Args:
        home: An empty folder.
        host: Lines of the study that name another host; empty: this computer.
    """

    home: Path
    host: str = ""
    ends: list[CommandEnd] = field(default_factory=list)
    process: subprocess.Popen[str] | None = None
    seen: dict[int, str] = field(default_factory=dict)

    @property
    def folder(self) -> Path:
        """The run's folder; on a disk of its own where one is mounted there."""
        return self.home / "disk" / "run"

    def begin(self) -> None:
        """Begin the run."""
        (self.home / "disk").mkdir(exist_ok=True)
        study = self.home / "torture.yaml"
        study.write_text(STUDY.format(host=self.host))
        words = ("run", str(study), "--out", str(self.folder), "--seed", "1")
        self._output = (self.home / "output").open("w+")
        self.process = subprocess.Popen(
            [TARE, *words], stdout=self._output, stderr=subprocess.STDOUT, text=True, env=self._env
        )

    def end(self) -> CommandEnd:
        """Wait for the run's command to end."""
        assert self.process is not None
        try:
            status = self.process.wait(LIMIT_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            status = self.process.wait()
            self._output.write("\nit did not end by itself\n")
        self._output.seek(0)
        self.ends.append(CommandEnd(("run",), status, self._output.read()))
        self._output.close()
        return self.ends[-1]

    def tare(self, *words: str) -> CommandEnd:
        """Run another command."""
        done = subprocess.run(
            [TARE, *words], capture_output=True, text=True, timeout=LIMIT_S, check=False,
            env=self._env,
        )  # fmt: skip
        self.ends.append(CommandEnd(words, done.returncode, done.stdout + done.stderr))
        return self.ends[-1]

    @property
    def _env(self) -> dict[str, str]:
        own = {"XDG_STATE_HOME": str(self.home / "state"), "TARE_LOCKS": str(self.home / "locks")}
        return {**os.environ, **own}

    def records(self) -> list[dict[str, Any]]:
        """Return the whole lines of the run's events."""
        try:
            whole = (self.folder / "events.jsonl").read_text().rpartition("\n")[0]
        except OSError:
            return []
        return [json.loads(line) for line in whole.splitlines()]

    def events(self) -> list[Event]:
        """Return the run's events so far."""
        return [record["event"] for record in self.records()]

    def moments(self) -> int:
        """Return how much has happened: beginnings and ends of machines and cells."""
        ends = ("machine_starting", "machine_ready", "cell_started", "cell_finished")
        return sum(event["type"] in ends for event in self.events())

    @property
    def alive(self) -> bool:
        """Whether the run's command is under way."""
        return self.process is not None and self.process.poll() is None

    def wait_for_moment(self, number: int) -> None:
        """Wait until so much has happened, or the command has ended."""
        deadline = time.monotonic() + LIMIT_S / 2
        while self.alive and self.moments() < number and time.monotonic() < deadline:
            time.sleep(0.02)

    def processes(self) -> Iterator[tuple[int, str, tuple[str, ...]]]:
        """Yield the processes under the command: id, name, and the names of those above it."""
        assert self.process is not None
        todo: list[tuple[int, tuple[str, ...]]] = [(self.process.pid, ())]
        while todo:
            pid, above = todo.pop()
            for child in _children(pid):
                name = _text(Path(f"/proc/{child}/comm")).strip()
                yield child, name, above
                todo.append((child, (*above, name)))

    def note_processes(self) -> None:
        """Remember the processes under the command, which may soon be under nobody."""
        self.seen |= {pid: _began(pid) for pid, _, _ in self.processes()}

    def remains(self) -> list[str]:
        """Return what the trial left behind, a few words each."""
        run = next((event["run"] for event in self.events() if "run" in event), None)
        name = f"tare-{run}" if run else str(self.home)
        found = [f"directory {path}" for path in Path("/tmp").glob(f"{name}-*")] if run else []
        if run:
            found += [f"control group {path}" for path in _groups(name)]
        found += [
            f"mount {line}" for line in _text(Path("/proc/mounts")).splitlines() if name in line
        ]
        own = set(of_state(self.home))
        for process in Path("/proc").glob("[0-9]*"):
            if int(process.name) == os.getpid():
                continue
            words = _text(process / "cmdline")
            if name in words or int(process.name) in own:
                shown = " ".join(words.split("\0"))[:100]
                found.append(f"process {process.name} {shown}")
        found += [
            f"process {pid} {_text(Path(f'/proc/{pid}/comm')).strip()}, which the command had begun"
            for pid, began in self.seen.items()
            if began and _began(pid) == began
        ]
        ledgers = (self.home / "state" / "tare" / "ledgers").glob("*.jsonl")
        return found + [f"ledger {path.name}" for path in ledgers]


def _groups(name: str) -> Iterator[str]:
    for folder, names, _ in os.walk("/sys/fs/cgroup"):
        yield from (f"{folder}/{each}" for each in names if name in each)


def _children(pid: int) -> list[int]:
    found: list[int] = []
    # A process may end at any moment of this.
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            found += map(int, _text(task / "children").split())
    return found


def _began(pid: int) -> str:
    """Return when a process began (field 22 of `/proc/PID/stat`, proc(5)); empty: it is gone."""
    fields = _text(Path(f"/proc/{pid}/stat")).rpartition(")")[2].split()
    return fields[19] if fields and fields[0] != "Z" else ""


def _text(path: Path) -> str:
    with contextlib.suppress(OSError):
        return path.read_bytes().decode(errors="replace")
    return ""
