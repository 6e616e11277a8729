"""A terminal that is closed ends a run as an interrupted one."""

from __future__ import annotations

import os
import pty
import select
import signal
import sys
import time
from pathlib import Path

import pytest

EXIT_INTERRUPTED = 130
LIMIT_S = 120.0


def until(master: int, words: bytes) -> None:
    seen, deadline = b"", time.monotonic() + LIMIT_S
    while words not in seen:
        assert time.monotonic() < deadline, seen
        if select.select([master], [], [], 1)[0]:
            seen += os.read(master, 4096)


def drain(master: int) -> None:
    try:
        while os.read(master, 4096):
            pass
    except OSError:
        pass


@pytest.mark.parametrize("number", [None, signal.SIGHUP, signal.SIGTERM])
@pytest.mark.parametrize("moment", [b"run ", b"bare /"])
def test_the_exit_status_says_that_it_was_interrupted(
    number: signal.Signals | None, moment: bytes, tmp_path: Path
) -> None:
    environment = {
        **os.environ,
        "XDG_STATE_HOME": str(tmp_path / "state"),
        "TARE_LOCKS": str(tmp_path / "locks"),
    }
    out = tmp_path / "run"
    argv = [sys.executable, "-m", "tare", "run", "quick", "--arm", "bare", "--out", str(out)]
    pid, master = pty.fork()
    if pid == 0:
        # Tests that were begun by nohup(1) ignore it, and so would what they start.
        signal.signal(signal.SIGHUP, signal.SIG_DFL)
        os.execve(argv[0], argv, environment)
    until(master, moment)
    if number is None:
        os.close(master)
    else:
        os.kill(pid, number)
        drain(master)
        os.close(master)
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    assert status == EXIT_INTERRUPTED
    assert '"interrupted"' in (out / "events.jsonl").read_text() or moment == b"run "
