"""Helpers that run the command as a user does, and read its leftovers."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

import pytest

from deadlines import patient
from loaded_commands import COMMANDS
from loaded_commands import TARE as TARE

Event = dict[str, Any]


def tare(*words: str | Path, limit_s: float = 400) -> subprocess.CompletedProcess[str]:
    """Run a command to its end."""
    return COMMANDS.run(*map(str, words), limit_s=patient(limit_s))


def events(folder: Path) -> list[Event]:
    path = folder / "events.jsonl"
    if not path.exists():
        return []
    whole = path.read_text().rpartition("\n")[0]
    return [json.loads(line)["event"] for line in whole.splitlines()]


def of_type(folder: Path, kind: str) -> list[Event]:
    return [event for event in events(folder) if event["type"] == kind]


def assert_no_ledger_is_left(home: Path) -> None:
    ledgers = list((home / "state" / "tare" / "ledgers").glob("*.jsonl"))
    assert not ledgers, f"ledgers still list something: {ledgers}"


def assert_no_process_is_left(folder: Path) -> None:
    run = events(folder)[0]["run"]
    for process in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = process.read_bytes()
        except OSError:
            continue
        assert f"tare-{run}".encode() not in words, f"{process} survives: {words!r}"


HEARS_CTRL_C = ("env", "--default-signal=INT")
"""Tests that a shell starts in the background ignore Ctrl-C, and so would their child processes."""


class Running:
    """A `tare` command under way, watched through its events; as a context, it ends with it."""

    def __init__(self, folder: Path, *words: str | Path) -> None:
        self.folder = folder
        self.process = subprocess.Popen(
            [*HEARS_CTRL_C, TARE, *map(str, words)],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()

    def wait_for(
        self, wanted: Callable[[Event], bool], limit_s: float = 120, look_s: float = 0.02
    ) -> None:
        deadline = time.monotonic() + patient(limit_s)
        while not any(wanted(event) for event in events(self.folder)):
            if self.process.poll() is not None or time.monotonic() > deadline:
                output = self.process.communicate()[0]
                pytest.fail(f"the awaited event never came; the command printed: {output}")
            time.sleep(look_s)

    def end(self, limit_s: float = 200) -> tuple[int, str]:
        output, _ = self.process.communicate(timeout=patient(limit_s))
        return self.process.returncode, output
