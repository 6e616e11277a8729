"""A list of the runs started on this computer, by which the history of a study is found.

The list is in the user's state folder, with one line for each end of a run; the newest line of a
run counts. It holds only the locations of runs: results are in the runs' folders.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from tare.hosts.ledger.ledger import state_dir
from tare.run.lifecycle.folder import RunFolder, first_event


@dataclass(frozen=True)
class KnownRun:
    """One run, as it ended.

    Args:
        run: Its identity.
        study: The study's name.
        hosts: The names of its hosts; `local` and `lab` are those of this computer.
        started_at: Seconds since the epoch.
        status: How it ended.
        folder: Its folder.
    """

    run: str
    study: str
    hosts: tuple[str, ...]
    started_at: float
    status: str
    folder: Path


_LINE = TypeAdapter(KnownRun)


def known_runs_file() -> Path:
    """Return the path of the list: ``$XDG_STATE_HOME/tare/runs.jsonl``."""
    return state_dir() / "runs.jsonl"


def keep_run(run: KnownRun) -> None:
    """Note a run.

    Raises:
        OSError: The list cannot be written.
    """
    # One write with O_APPEND: runs that end at the same time do not mix their lines.
    number = os.open(known_runs_file(), os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(number, _LINE.dump_json(run) + b"\n")
    finally:
        os.close(number)


def known_runs(study: str) -> Sequence[KnownRun]:
    """Return the runs of a study in the order of their start, each with its last end.

    Unreadable lines are skipped: a run that is not found can be named by its folder.

    Args:
        study: The study's name.
    """
    try:
        lines = known_runs_file().read_bytes().splitlines()
    except FileNotFoundError:
        return ()
    found: dict[str, KnownRun] = {}
    for line in lines:
        try:
            run = _LINE.validate_json(line)
        except ValidationError:
            continue
        if run.study == study:
            found[run.run] = run
    return sorted(found.values(), key=lambda run: run.started_at)


def is_there(run: KnownRun) -> bool:
    """Return whether a run's folder still holds this run, and not another one."""
    first = first_event(RunFolder(run.folder).events)
    return first is not None and first.run == run.run


def names_of_hosts(facts: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the names of a run's hosts.

    Args:
        facts: The facts that identify its host, or each of several hosts by name.
    """
    if facts and all(isinstance(each, Mapping) for each in facts.values()):
        return tuple(sorted(facts))
    return (str(facts.get("name") or ("lab" if "lab" in facts else "local")),)
