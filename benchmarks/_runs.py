"""Run a study with the command, as a user does, and read its events back."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tare.events import Record, read_events

DEADLINE_S = 1800.0
STOPPING_S = 120.0
"""A run that is stopped has so long to remove what it made."""


class Unmeasured(Exception):
    """Something could not be measured; the message says why."""


@dataclass(frozen=True)
class CarriedOut:
    """One ``tare run``: wall-clock times of its process, and its events."""

    spawned: float
    ended: float
    records: tuple[Record, ...]

    def first(self, kind: str) -> float:
        """Return when the first event of type ``kind`` was written.

        Raises:
            Unmeasured: There is none, with the reasons the run gives.
        """
        for record in self.records:
            if record.event.type == kind:
                return record.time
        raise Unmeasured(f"the run has no {kind}: {'; '.join(reasons(self.records)) or 'no why'}")


def tare_program() -> Path:
    """Return the command that is installed next to this Python."""
    program = Path(sys.executable).parent / "tare"
    if not program.exists():
        raise Unmeasured(f"{program} is missing: run make setup")
    return program


def carry_out(
    study: Mapping[str, Any],
    *,
    seed: int = 1,
    look: Callable[[Path], None] = lambda _: None,
    deadline_s: float = DEADLINE_S,
) -> CarriedOut:
    """Run ``tare run`` on ``study`` in a folder of its own, which is removed afterwards.

    Args:
        study: The content of the study file.
        seed: Determines the order of everything.
        look: Is shown the run's folder before that is removed.
        deadline_s: Seconds after which it is stopped.

    Raises:
        Unmeasured: The command failed, with its last words, or did not end in time.
    """
    with tempfile.TemporaryDirectory(prefix="tare-bench-") as folder:
        path = Path(folder) / "study.yaml"
        path.write_text(yaml.safe_dump(dict(study), sort_keys=False))
        out = Path(folder) / "run"
        argv = [str(tare_program()), "run", str(path), "--out", str(out), "--seed", str(seed)]
        spawned = time.time()
        status, output = _run(argv, deadline_s)
        ended = time.time()
        events = out / "events.jsonl"
        if not events.exists():
            raise Unmeasured(f"tare run ended with {status}: {' / '.join(output)}")
        records = tuple(read_events(events))
        if status != 0:
            why = reasons(records) or output
            raise Unmeasured(f"tare run ended with {status}: {'; '.join(why)}")
        look(out)
        return CarriedOut(spawned, ended, records)


def _run(argv: Sequence[str], deadline_s: float) -> tuple[int, tuple[str, ...]]:
    """Return the exit status of a command and its last lines."""
    with subprocess.Popen(
        argv,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "NO_COLOR": "1"},
    ) as process:
        try:
            text, _ = process.communicate(timeout=deadline_s)
        except subprocess.TimeoutExpired:
            # Not killed: what it made is its own to remove.
            process.terminate()
            try:
                process.communicate(timeout=STOPPING_S)
            except subprocess.TimeoutExpired:
                process.kill()
            raise Unmeasured(f"tare run did not end within {deadline_s:,.0f} s") from None
        except BaseException:
            process.terminate()
            raise
    return process.returncode, tuple(text.strip().splitlines()[-3:])


def reasons(records: Sequence[Record]) -> tuple[str, ...]:
    """Return why something of a run was skipped or failed."""
    found = []
    for record in records:
        event = record.event
        if event.type == "skipped":
            found.append(f"{event.arm} was skipped: {event.reason}")
        elif (event.type == "cell_finished" and event.status != "ok") or (
            event.type == "run_finished" and event.status != "complete"
        ):
            found.append(f"{event.type} {event.status}: {event.reason}")
    return tuple(dict.fromkeys(found))
