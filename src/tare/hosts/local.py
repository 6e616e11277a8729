"""The computer that Tare itself runs on."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import shutil
import stat
import threading
import tty
from collections.abc import Mapping, Sequence
from glob import glob
from itertools import chain
from pathlib import Path
from typing import Any

from tare.errors import InputError, MachineFault
from tare.hosts.contract import STREAM_LIMIT, Completed, Host, Process
from tare.hosts.ledger.ledger import LOCAL, boot_id
from tare.hosts.topology import (
    KERNEL_ALLOWS,
    MOST_CPUS,
    cpus_of,
    currently_usable,
    files_below,
)
from tare.study.planning.host_cpus import HostCpus, cpu_words

_PIPES_S = 0.5
_LOOK_S = 0.1
_REAPED_S = 0.002
ONLINE = Path("/sys/devices/system/cpu/online")
STATUS = Path("/proc/self/status")
CPUS = "Cpus_allowed_list:"
PASSED = frozenset(
    {
        *("PATH", "HOME", "USER", "LOGNAME", "SHELL", "PWD", "TERM", "TZ", "TMPDIR"),
        *("LANG", "LANGUAGE", "LD_LIBRARY_PATH", "XDG_RUNTIME_DIR"),
        *("XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME"),
        # The folder of locks: scripts that take a lock must find the same one.
        "TARE_LOCKS",
    }
)
"""The variables that programs get from Tare's environment, in addition to all of ``LC_*``.

They say where things are, who the user is, and how text and time are written. A user's environment
also holds secrets: tokens of CI, keys of clouds, passwords that a hosts file names. Hypervisors,
runtimes and tools need none of them, and expose them to everyone who may read their
``/proc/PID/environ``."""
FETCHERS = frozenset({"apt-get", "mvn"})
"""Programs that fetch from the network; their proxy may need a user's settings and password."""
_OF_FETCHERS = frozenset(
    {
        *("http_proxy", "https_proxy", "ftp_proxy", "all_proxy", "no_proxy"),
        *("HTTP_PROXY", "HTTPS_PROXY", "FTP_PROXY", "ALL_PROXY", "NO_PROXY"),
        *("APT_CONFIG", "JAVA_HOME", "MAVEN_OPTS"),
    }
)


def environment_for(argv: Sequence[str], own: Mapping[str, str]) -> dict[str, str]:
    """Return the environment variables that a program gets.

    Args:
        argv: The program and its arguments. If one of them is in :data:`FETCHERS`, as in ``env -C
            FOLDER apt-get``, the variables about the network are passed too.
        own: Tare's own environment.
    """
    more = _OF_FETCHERS if FETCHERS.intersection(argv) else frozenset()
    return {
        name: value
        for name, value in own.items()
        if name in PASSED or name in more or name.startswith("LC_")
    }


class LocalProcess(Process):
    """A process that this one started."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        if process.stdin is None or process.stdout is None:
            raise ValueError("a local process needs both its pipes")
        self._stdin = process.stdin
        self._stdout = process.stdout

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid

    @property
    def returncode(self) -> int | None:
        """The exit status, negative for a signal; None while it runs."""
        return self._process.returncode

    @property
    def stdin(self) -> asyncio.StreamWriter:
        """The stream that the process reads."""
        return self._stdin

    @property
    def stdout(self) -> asyncio.StreamReader:
        """The stream that the process writes."""
        return self._stdout

    async def wait(self) -> int:
        """Return the exit status once the process has ended, even if its output is not read."""
        return await _ended(self._process)

    async def terminate(self) -> None:
        """Ask the process to end; nothing happens if it already has."""
        if self._process.returncode is None:
            try:
                self._process.terminate()
            except ProcessLookupError:
                return

    async def kill(self) -> None:
        """End the process at once and reap it; nothing happens if it already ended."""
        if self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()
        await _ended(self._process)


class LocalHost(Host):
    """The computer that Tare itself runs on.

    Args:
        agent: The ``tare-agent`` program, which ends started processes together with this one.
    """

    local = True

    def __init__(self, agent: Path | None = None) -> None:
        self.name = LOCAL
        self._agent = agent
        self._found: HostCpus | None = None

    async def run(
        self,
        argv: Sequence[str],
        *,
        input: bytes | None = None,
        timeout_s: float | None = None,
        env: Mapping[str, str] | None = None,
    ) -> Completed:
        """Run a command to its end; see :class:`tare.hosts.contract.Host`."""
        process = await _spawn(
            argv,
            stdin=asyncio.subprocess.PIPE if input is not None else asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
            env=env,
        )
        try:
            async with asyncio.timeout(timeout_s):
                stdout, stderr = await process.communicate(input)
        except TimeoutError:
            raise MachineFault(
                f"`{' '.join(argv)}` did not end within {timeout_s:g} s", transient=True
            ) from None
        finally:
            if process.returncode is None:
                await _end_now(process)
        return Completed(process.returncode or 0, stdout, stderr)

    async def start(
        self,
        argv: Sequence[str],
        *,
        log: Path | None = None,
        env: Mapping[str, str] | None = None,
        cpus: Sequence[int] | None = None,
    ) -> Process:
        """Start a command that ends with this process; see :class:`tare.hosts.contract.Host`."""
        wrapped = [*self._tied(cpus), *argv]
        if log is None:
            return LocalProcess(await _spawn(wrapped, stderr=asyncio.subprocess.DEVNULL, env=env))
        with log.open("ab") as errors:
            return LocalProcess(await _spawn(wrapped, stderr=errors.fileno(), env=env))

    def _tied(self, cpus: Sequence[int] | None) -> list[str]:
        if self._agent is None:
            raise ValueError(
                "this LocalHost was created without the agent, so it cannot start processes"
            )
        pinned = ["--cpus", ",".join(map(str, cpus))] if cpus else []
        tied = ["--die-with-parent", "--parent", str(os.getpid())]
        return [str(self._agent), "exec", *tied, *pinned, "--"]

    async def read(self, path: str | Path) -> bytes:
        """Return a file's content; raises OSError."""
        return Path(path).read_bytes()

    async def first_lines(self, patterns: Sequence[str]) -> dict[str, str]:
        """Return the first line of each file that matches a pattern, by its path."""
        lines: dict[str, str] = {}
        for path in chain.from_iterable(map(glob, patterns)):
            with contextlib.suppress(OSError):
                if text := Path(path).read_bytes():
                    lines[path] = text.split(b"\n", 1)[0].decode(errors="replace")
        return lines

    async def ends(self, folder: Path, name: str, most: int) -> dict[Path, bytes]:
        """Return the last bytes of each file of a folder; see :class:`tare.hosts.contract.Host`."""
        ends = {}
        for path in sorted(folder.glob(name)):
            with contextlib.suppress(OSError):
                if stat.S_ISREG(path.lstat().st_mode):
                    ends[path] = _end_of(path, most)
        return ends

    async def write(self, path: str | Path, data: bytes) -> None:
        """Write a file in one piece; raises OSError."""
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
        try:
            while data:
                data = data[os.write(fd, data) :]
        finally:
            os.close(fd)

    async def exists(self, path: str | Path) -> bool:
        """Return whether there is a file or directory at ``path``."""
        return os.path.lexists(path)

    async def remove(self, path: str | Path) -> None:
        """Remove a file or a whole directory; nothing happens if it is not there."""
        target = Path(path)
        if target.is_dir() and not target.is_symlink():
            await asyncio.to_thread(shutil.rmtree, target, onerror=_unless_gone)
        else:
            target.unlink(missing_ok=True)

    async def connect_unix(
        self, path: str | Path
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Open a stream to a listening UNIX socket; raises OSError."""
        return await asyncio.open_unix_connection(str(path), limit=STREAM_LIMIT)

    async def open_terminal(
        self, path: str | Path
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Open a terminal for all byte values; raises OSError."""
        return await open_terminal(path)

    def boot_id(self) -> str:
        """Return the id of this computer's boot; empty if the kernel gives none."""
        return boot_id()

    def topology(self) -> HostCpus:
        """Return the online CPUs that this process may use, as found or arranged."""
        if self._found is None:
            self._found = _look()
        return self._as_arranged(self._found)

    async def usable_cpus(self) -> tuple[int, ...]:
        """Return the CPUs that this process may use now; see :class:`tare.hosts.contract.Host`."""
        lines = [f"{ONLINE}:{_text(ONLINE)}"]
        allowed = (line for line in _text(STATUS).splitlines() if line.startswith(CPUS))
        lines += [f"{STATUS}:{line}" for line in allowed]
        lines.append(f"{KERNEL_ALLOWS}:{_granted()}")
        return currently_usable("\n".join(lines), self.topology())

    async def look_again(self) -> None:
        """Read this computer's CPUs again; see :class:`tare.hosts.contract.Host`."""
        self._found = None


def _look() -> HostCpus:
    """Read this computer's CPUs.

    Raises:
        MachineFault: This process may not use any CPU.
    """
    try:
        return cpus_of({**files_below(), KERNEL_ALLOWS: _granted()})
    except ValueError as error:
        raise MachineFault(f"this computer: {error}") from error


def _text(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""


def _granted() -> str:
    """Return the CPUs that the kernel grants to a process that asks for all; empty if unknown.

    A short-lived thread asks, so that this process keeps its own affinity.
    """
    granted: list[int] = []

    def ask() -> None:
        with contextlib.suppress(OSError):
            os.sched_setaffinity(0, range(MOST_CPUS))
            granted.extend(os.sched_getaffinity(0))

    thread = threading.Thread(target=ask)
    thread.start()
    thread.join()
    return cpu_words(granted)


def _end_of(path: Path, most: int) -> bytes:
    with path.open("rb") as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - most))
        return file.read(most)


async def _spawn(
    argv: Sequence[str],
    *,
    stderr: int,
    stdin: int = asyncio.subprocess.PIPE,
    env: Mapping[str, str] | None,
) -> asyncio.subprocess.Process:
    try:
        # A separate session: Ctrl-C in the terminal reaches only Tare, which then ends its children
        # in order.
        return await asyncio.create_subprocess_exec(
            *argv,
            stdin=stdin,
            stdout=asyncio.subprocess.PIPE,
            stderr=stderr,
            env={**environment_for(argv, os.environ), **(env or {})},
            limit=STREAM_LIMIT,
            start_new_session=True,
        )
    except FileNotFoundError as error:
        raise InputError(f"there is no command {argv[0]}", "install it, or check PATH") from error
    except PermissionError as error:
        raise InputError(f"{argv[0]} cannot be executed: {error.strerror}") from error


def _unless_gone(step: Any, path: str, error: Any) -> None:
    """Ignore the error if another process removed the same file at the same time."""
    if not isinstance(error[1], FileNotFoundError):
        raise error[1]


async def _end_now(process: asyncio.subprocess.Process) -> None:
    with contextlib.suppress(ProcessLookupError):
        process.kill()
    await _ended(process)


async def _ended(process: asyncio.subprocess.Process) -> int:
    """Wait until a process has ended, and briefly for its last output.

    ``asyncio``'s own wait also waits for the end of all pipes. That end never comes if a full pipe
    is not read, or if a child of the process holds the pipe open.
    """
    piped = asyncio.ensure_future(process.wait())
    try:
        await _gone(process)
        await asyncio.wait({piped}, timeout=_PIPES_S)
    finally:
        piped.cancel()
    assert process.returncode is not None
    return process.returncode


async def _gone(process: asyncio.subprocess.Process) -> None:
    """Wait until a process has ended and was reaped; poll only if the kernel lacks pidfd_open."""
    loop = asyncio.get_running_loop()
    try:
        fd = os.pidfd_open(process.pid)
    except OSError:
        # The process was reaped already, the kernel is older than 5.3, or a filter forbids the
        # call.
        while process.returncode is None:  # noqa: ASYNC110 - nothing signals it
            await asyncio.sleep(_LOOK_S)
        return
    gone = asyncio.Event()
    loop.add_reader(fd, gone.set)
    try:
        await gone.wait()
    finally:
        loop.remove_reader(fd)
        os.close(fd)
    # Another thread (asyncio's child watcher) reaps the process, and notifies this loop.
    while process.returncode is None:  # noqa: ASYNC110 - nothing signals it
        await asyncio.sleep(_REAPED_S)


class _TerminalProtocol(asyncio.StreamReaderProtocol):
    """A protocol that treats EIO as the end: on Linux, the terminal's other side was closed."""

    def connection_lost(self, exc: Exception | None) -> None:
        ended = isinstance(exc, OSError) and exc.errno == errno.EIO
        super().connection_lost(None if ended else exc)


class _Output(_TerminalProtocol):
    """Closes the reading side together with the writing one."""

    def __init__(self, reading: asyncio.BaseTransport) -> None:
        super().__init__(asyncio.StreamReader())
        self._reading = reading

    def connection_lost(self, exc: Exception | None) -> None:
        self._reading.close()
        super().connection_lost(exc)


async def open_terminal(
    path: str | Path,
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Open a terminal for all byte values; closing the writer closes the terminal.

    Raises:
        OSError: The terminal cannot be opened.
    """
    loop = asyncio.get_running_loop()
    fd = os.open(path, os.O_RDWR | os.O_NOCTTY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        if os.isatty(fd):
            tty.setraw(fd)
        output = os.fdopen(os.dup(fd), "wb", buffering=0)
    except BaseException:
        os.close(fd)
        raise
    reader = asyncio.StreamReader(limit=STREAM_LIMIT)
    reading, _ = await loop.connect_read_pipe(
        lambda: _TerminalProtocol(reader), os.fdopen(fd, "rb", buffering=0)
    )
    writing, protocol = await loop.connect_write_pipe(lambda: _Output(reading), output)
    return reader, asyncio.StreamWriter(writing, protocol, None, loop)
