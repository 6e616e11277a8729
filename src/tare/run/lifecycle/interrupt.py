"""Ctrl-C once finishes the current cell; twice, or SIGTERM, stops now.

Twice, the run ends within five seconds even where something hangs that it would remove. A process
of its own then removes the rest.
"""

from __future__ import annotations

import asyncio
import os
import signal
import stat
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Protocol

LAST_RESORT_S = 4.0
"""After a second Ctrl-C the run ends within 5 s, whatever does not answer."""
CLEANING_S = 600
"""The process that removes the rest ends after this time, in seconds."""
CLEANING_LOG = "clean.log"
"""What that process reports, in the run's folder."""
_HEARD = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Stoppable(Protocol):
    """What can be asked to stop."""

    def polite(self) -> None:
        """Finish the current cell, then stop; the second request stops now."""
        ...

    def urgent(self, reason: str) -> None:
        """Stop now, and remove everything that was created."""
        ...


class StopRequest:
    """Whether, and how urgently, the user asked the run to stop.

    Args:
        task: What is cancelled where it is to stop now.
        notice: Is told whether the current cell is finished first, and who asked.
        leave: Has all hosts wait no longer for what does not answer.
    """

    def __init__(
        self,
        task: asyncio.Task[object],
        notice: Callable[[bool, str], None],
        leave: Callable[[], None],
    ) -> None:
        self._task = task
        self._notice = notice
        self._leave = leave
        self.finishing = False
        self.now = False

    def polite(self) -> None:
        """Finish the current cell, then stop; the second request stops now."""
        if self.finishing:
            self.urgent("Ctrl-C twice")
            return
        self.finishing = True
        self._tell(finishing=True, reason="Ctrl-C")

    def urgent(self, reason: str) -> None:
        """Cancel what is running; everything created is still removed."""
        if self.now:
            return
        self.finishing = self.now = True
        self._leave()
        self._task.cancel()
        self._tell(finishing=False, reason=reason)

    def _tell(self, *, finishing: bool, reason: str) -> None:
        # The terminal may be gone, or the disk full: that keeps nobody from stopping.
        with suppress(OSError):
            self._notice(finishing, reason)

    def cell_over(self) -> None:
        """Note that a cell has ended: where it was to be the last, only clearing up is left."""
        if self.finishing:
            self._leave()


class _LastResort:
    """Ends this process some seconds after a second Ctrl-C, whatever it waits for.

    A thread does so, for the event loop may be what hangs. Most processes of the run on this
    computer end with this one; ``tare clean``, started in the background, removes all else.

    Args:
        task: What is to have ended by then, with all its clearing up.
        folder: The run's folder.
        resume: The command that continues the run; empty if none does.
    """

    def __init__(self, task: asyncio.Task[object] | None, folder: Path, resume: str) -> None:
        self._task = task
        self._folder = folder
        self._resume = resume
        self._asked = 0

    def count(self) -> None:
        """Take one Ctrl-C."""
        self._asked += 1
        if self._asked == 2 and self._task is not None:
            timer = threading.Timer(LAST_RESORT_S, self._give_up)
            timer.daemon = True
            timer.start()
            self._task.add_done_callback(lambda _: timer.cancel())

    def _give_up(self) -> None:
        log = self._folder / CLEANING_LOG
        try:
            clean_in_background(log)
            rest = f"the rest is removed in the background, see {log}"
        except OSError:
            rest = "remove the rest: tare clean"
        words = f"tare: not all was removed within {LAST_RESORT_S:g} s; {rest}\n"
        if self._resume:
            words += f"      continue the run: {self._resume}\n"
        with suppress(OSError):
            os.write(2, words.encode())
        os._exit(128 + signal.SIGINT)


def clean_in_background(log: Path) -> None:
    """Start ``tare clean`` in a session of its own, which outlives this process and its terminal.

    It waits for this process to let go of the host, and ends after :data:`CLEANING_S` at the
    latest. Ledgers of runs that are still alive are left alone, as by any ``tare clean``.

    Args:
        log: What it reports is appended to this file.

    Raises:
        OSError: The file cannot be written, or the process cannot be started.
    """
    # -P: a folder named "tare" in the working directory is not Tare.
    words = [sys.executable, "-P", "-m", "tare", "clean", "--within", f"{CLEANING_S}s"]
    with log.open("ab") as output:
        subprocess.Popen(
            words,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )


@contextmanager
def listening(request: Stoppable, folder: Path, resume: str = "") -> Iterator[None]:
    """Connect SIGINT, SIGTERM and SIGHUP to ``request`` while the block runs.

    Args:
        request: What is asked to stop.
        folder: The run's folder.
        resume: The command that continues the run; empty if none does.
    """
    loop = asyncio.get_running_loop()
    before = {number: signal.getsignal(number) for number in _HEARD}
    resort = _LastResort(asyncio.current_task(), folder, resume)

    def ctrl_c() -> None:
        resort.count()
        request.polite()

    loop.add_signal_handler(signal.SIGINT, ctrl_c)
    loop.add_signal_handler(signal.SIGTERM, request.urgent, "SIGTERM")

    def hung_up() -> None:
        leave_terminal()
        request.urgent("the terminal was closed")

    loop.add_signal_handler(signal.SIGHUP, hung_up)
    try:
        yield
    finally:
        for number, handler in before.items():
            loop.remove_signal_handler(number)
            # Before and after, whoever began the run listens otherwise.
            signal.signal(number, handler)


@contextmanager
def stopped_in_order() -> Iterator[None]:
    """Let SIGTERM and SIGHUP do what Ctrl-C does, where nothing else listens for them.

    By themselves they end Tare at once, and what was begun on hosts is left there.
    """
    unheard = [each for each in _HEARD if signal.getsignal(each) is signal.SIG_DFL]
    for number in unheard:
        signal.signal(number, _as_ctrl_c)
    try:
        yield
    finally:
        for number in unheard:
            signal.signal(number, signal.SIG_DFL)


def hear_no_more() -> None:
    """Ignore every further request to stop: the command says its last words, and ends.

    A second Ctrl-C would come between those words, or into Python's own end with a traceback.
    """
    for number in _HEARD:
        signal.signal(number, signal.SIG_IGN)


def leave_terminal() -> None:
    """Let all that is printed to a terminal from now on go nowhere: it was closed.

    Writing to it fails otherwise (EIO), which would end the command with another status than an
    interrupted one. What is printed to a file or a pipe goes on.
    """
    with suppress(OSError), Path(os.devnull).open("r+b") as nowhere:
        null = os.fstat(nowhere.fileno()).st_rdev
        for stream in (1, 2):
            with suppress(OSError):
                there = os.fstat(stream)
                # A terminal that was closed does not answer `isatty` any more.
                if stat.S_ISCHR(there.st_mode) and there.st_rdev != null:
                    os.dup2(nowhere.fileno(), stream)


def _as_ctrl_c(number: int, *_: object) -> None:
    if number == signal.SIGHUP:
        leave_terminal()
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        # In the background of a script Ctrl-C is for others, and this signal is not.
        raise KeyboardInterrupt
    signal.raise_signal(signal.SIGINT)
