"""Tare's own processes: recorded in the ledger before their start, and found after a crash."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from tare.errors import MachineFault
from tare.hosts.contract import Host, Process
from tare.hosts.ledger.ledger import Entry, Ledger
from tare.hosts.ledger.undoing import Undo
from tare.hosts.shielded import begun

TOKEN_VARIABLE = "TARE_TOKEN"
END_S = 30.0
"""Time limit for killed processes to end; on a busy host, a large process frees memory slowly."""
_FIND = f'grep -lszxF "{TOKEN_VARIABLE}=$1" /proc/[0-9]*/environ'


class OwnedProcess:
    """A running process with an entry in the ledger.

    Args:
        process: The process.
        ledger: The ledger that lists the process.
        entry: The entry of the process there.
    """

    def __init__(self, process: Process, ledger: Ledger, entry: Entry) -> None:
        self._process = process
        self._ledger = ledger
        self._entry = entry

    @property
    def pid(self) -> int:
        """The process id on its host."""
        return self._process.pid

    @property
    def returncode(self) -> int | None:
        """The exit status, negative for a signal; None while it runs."""
        return self._process.returncode

    @property
    def stdin(self) -> asyncio.StreamWriter:
        """The stream that the process reads."""
        return self._process.stdin

    @property
    def stdout(self) -> asyncio.StreamReader:
        """The stream that the process writes."""
        return self._process.stdout

    async def wait(self) -> int:
        """Return the exit status once the process has ended."""
        code = await self._process.wait()
        self._ledger.done(self._entry)
        return code

    async def terminate(self) -> None:
        """Ask the process to end (SIGTERM)."""
        await self._process.terminate()

    async def kill(self) -> None:
        """End the process at once (SIGKILL) and reap it."""
        await self._process.kill()
        self._ledger.done(self._entry)

    async def end(self, grace_s: float) -> int:
        """Wait ``grace_s`` seconds for the process to end, then terminate it, then kill it.

        Returns:
            The exit status, negative for a signal.
        """
        waiting = begun(self.wait())
        for ask in (None, self.terminate):
            if ask is not None:
                await ask()
            if (await asyncio.wait({waiting}, timeout=grace_s))[0]:
                return await waiting
        await self.kill()
        return await waiting


async def start_owned(
    host: Host,
    ledger: Ledger,
    argv: Sequence[str],
    *,
    log: Path | None = None,
    env: Mapping[str, str] | None = None,
    cpus: Sequence[int] | None = None,
) -> OwnedProcess:
    """Start a process, recorded in the ledger first; see ``Host.start``.

    A recorded token in its environment identifies it, even if Tare is killed between starting the
    process and recording its id.
    """
    token = secrets.token_hex(16)
    entry = ledger.record("process", token=token, command=argv[0], cpus=list(cpus or ()))
    try:
        process = await host.start(
            argv, log=log, env={**(env or {}), TOKEN_VARIABLE: token}, cpus=cpus
        )
    except BaseException:
        if not await find_by_token(host, token):
            ledger.done(entry)
        raise
    started = await start_time(host, process.pid)
    return OwnedProcess(process, ledger, ledger.amend(entry, pid=process.pid, starttime=started))


async def start_time(host: Host, pid: int) -> int | None:
    """Return the start time of a process in clock ticks since boot; None if it does not exist.

    Field 22 of ``/proc/PID/stat``, proc(5). A zombie counts as ended.
    """
    try:
        stat = await host.read(f"/proc/{pid}/stat")
    except OSError:
        return None
    fields = stat_fields(stat)
    return None if fields[0] in (b"Z", b"X") else int(fields[19])


def stat_fields(stat: bytes) -> list[bytes]:
    """Return the fields of ``/proc/PID/stat`` from the third on, proc(5)."""
    # The command name, in parentheses, may itself contain spaces and parentheses.
    return stat[stat.rindex(b")") + 2 :].split()


async def find_by_token(host: Host, token: str) -> tuple[int, ...]:
    """Return the ids of the processes whose environment contains this token."""
    found = await host.run(["sh", "-c", _FIND, "sh", token])
    return tuple(int(line.split("/")[2]) for line in found.stdout.decode().split())


async def kill_and_wait(
    host: Host, pids: Sequence[int], timeout_s: float = END_S
) -> tuple[int, ...]:
    """Send SIGKILL and wait until the processes are gone.

    Returns:
        The processes that still existed after ``timeout_s`` seconds.
    """
    left = {pid: begun for pid in pids if (begun := await start_time(host, pid)) is not None}
    for pid in left:
        await host.run(["sh", "-c", f"kill -9 {pid}"])
    deadline = time.monotonic() + timeout_s
    while left:
        left = {pid: begun for pid, begun in left.items() if await start_time(host, pid) == begun}
        if not left or time.monotonic() > deadline:
            break
        await asyncio.sleep(0.02)
    return tuple(left)


async def _undo_process(host: Host, entry: Entry) -> str:
    if entry.boot != host.boot_id():
        return ""
    killed: set[int] = set()
    # Repeat for processes that started while others were killed.
    while pids := await _pids(host, entry):
        killed |= pids
        if left := await kill_and_wait(host, sorted(pids)):
            raise MachineFault(f"process {left[0]} does not end")
    if not killed:
        return ""
    ids = ", ".join(map(str, sorted(killed)))
    return f"Killed {entry.details.get('command', 'process')} (process {ids})."


async def _pids(host: Host, entry: Entry) -> set[int]:
    pids = set(await find_by_token(host, str(entry.details["token"])))
    pid, began = entry.details.get("pid"), entry.details.get("starttime")
    if pid is not None and began is not None and await start_time(host, int(pid)) == began:
        pids.add(int(pid))
    return pids


UNDOERS: Mapping[str, Undo] = {"process": _undo_process}


MOST_DESCRIPTORS = 131_072
"""More than the connections of any workload; the usual limit of a login is 1024."""
_RAISING = 'ulimit -n "$0" 2>/dev/null || ulimit -S -n "$(ulimit -H -n)"; exec "$@"'
"""Raises the limit; a process that may not raise its hard limit gets that limit."""


def with_most_descriptors(argv: Sequence[str]) -> list[str]:
    """Return a command that runs with as many descriptors as allowed."""
    return ["sh", "-c", _RAISING, str(MOST_DESCRIPTORS), *argv]
