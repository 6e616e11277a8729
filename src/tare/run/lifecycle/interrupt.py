"""Ctrl-C once finishes the current cell; twice, or SIGTERM, stops now.

After a second Ctrl-C the run ends within five seconds, even if its clean-up hangs. A separate
process then removes the rest.
"""

from __future__ import annotations

import asyncio
import os
import signal
import stat
import subprocess
import sys
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Protocol, TypeVar

from tare.errors import TareError

LAST_RESORT_S = 4.0
"""Time from a second Ctrl-C until the process is ended: the run ends within 5 s."""
CLEANING_S = 600
"""The process that removes the rest ends after this time, in seconds."""
CLEANING_LOG = "clean.log"
"""The output of that process, in the run's folder."""
_T = TypeVar("_T")
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Stoppable(Protocol):
    """An activity that can be stopped at two levels of urgency."""

    def polite(self) -> None:
        """Finish the current cell, then stop; the second request stops now."""
        ...

    def urgent(self, reason: str) -> None:
        """Stop now, and remove everything that was created."""
        ...


class StopRequest:
    """The user's request to stop the run, and its urgency.

    Args:
        task: The task to cancel for an immediate stop.
        notice: Receives whether the current cell is finished first, and the reason.
        leave: Makes all hosts stop waiting for programs that do not answer.
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
        self._notify(finishing=True, reason="Ctrl-C")

    def urgent(self, reason: str) -> None:
        """Cancel the running task; everything created is still removed."""
        if self.now:
            return
        self.finishing = self.now = True
        self._leave()
        self._task.cancel()
        self._notify(finishing=False, reason=reason)

    def _notify(self, *, finishing: bool, reason: str) -> None:
        # The run stops even if the terminal is gone or the disk is full.
        with suppress(OSError):
            self._notice(finishing, reason)

    def cell_over(self) -> None:
        """Note that a cell has ended: if it was to be the last, only clean-up remains."""
        if self.finishing:
            self._leave()


class _LastResort:
    """Ends this process some seconds after a second Ctrl-C, whatever it waits for.

    It uses a thread, because the event loop itself may hang. Most processes of the run on this
    computer end with this one; ``tare clean``, started in the background, removes the rest.

    Args:
        task: The task that has to end by then, including its clean-up.
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

    It waits until this process releases the host, and ends after :data:`CLEANING_S` at the
    latest. Like any ``tare clean``, it skips ledgers of runs that are still alive.

    Args:
        log: Its output is appended to this file.

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
        request: The run, or another activity, that the signals stop.
        folder: The run's folder.
        resume: The command that continues the run; empty if none does.
    """
    loop = asyncio.get_running_loop()
    before = {number: signal.getsignal(number) for number in _SIGNALS}
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
            # Restore the handlers of the caller.
            signal.signal(number, handler)


async def interruptible(work: Awaitable[_T]) -> _T:
    """Await work so that a fault of its clean-up does not replace the interruption.

    Where no run listens to signals, such as before its first block, Ctrl-C cancels the work. If a
    host does not answer during the clean-up, its fault would be the reason for which the command
    ends.

    Args:
        work: The work that may be interrupted.

    Raises:
        asyncio.CancelledError: The work was cancelled.
    """
    task = asyncio.current_task()
    try:
        return await work
    except (TareError, OSError) as fault:
        if task is not None and task.cancelling():
            raise asyncio.CancelledError(str(fault)) from fault
        raise


@contextmanager
def stopped_in_order() -> Iterator[None]:
    """Make SIGTERM and SIGHUP do what Ctrl-C does, unless they already have a handler.

    By default they end Tare at once, and leave everything that was started on hosts.
    """
    unhandled = [each for each in _SIGNALS if signal.getsignal(each) is signal.SIG_DFL]
    for number in unhandled:
        signal.signal(number, _as_ctrl_c)
    try:
        yield
    finally:
        for number in unhandled:
            signal.signal(number, signal.SIG_DFL)


def hear_no_more() -> None:
    """Ignore every further request to stop while the command prints its last lines and ends.

    A second Ctrl-C would interrupt that output, or Python's own shutdown with a traceback.
    """
    for number in _SIGNALS:
        signal.signal(number, signal.SIG_IGN)


def leave_terminal() -> None:
    """Discard all further output to a terminal that was closed.

    Otherwise writing to it fails (EIO), and the command would not end with the status of an
    interrupted one. Output to a file or a pipe is kept.
    """
    with suppress(OSError), Path(os.devnull).open("r+b") as nowhere:
        null = os.fstat(nowhere.fileno()).st_rdev
        for stream in (1, 2):
            with suppress(OSError):
                there = os.fstat(stream)
                # `isatty` fails for a terminal that was closed.
                if stat.S_ISCHR(there.st_mode) and there.st_rdev != null:
                    os.dup2(nowhere.fileno(), stream)


def _as_ctrl_c(number: int, *_: object) -> None:
    if number == signal.SIGHUP:
        leave_terminal()
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        # A background job of a script ignores Ctrl-C, but this signal was sent to it.
        raise KeyboardInterrupt
    signal.raise_signal(signal.SIGINT)
