"""A computer that is reached over SSH, and its processes."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import signal
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tare.errors import InputError, MachineFault, TareError
from tare.hosts.address_pair import AddressPair
from tare.hosts.contract import Completed, Host, Process
from tare.hosts.leaving import Leaving
from tare.hosts.ssh.options import SshOptions
from tare.hosts.ssh.session import HostSession, SessionOpener, copy_fault
from tare.hosts.ssh.streams import Incoming, Outgoing
from tare.hosts.ssh.wire import SessionEnded
from tare.hosts.topology import (
    ask_kernel,
    currently_usable,
    read_topology,
    show_topology,
    show_usable,
)
from tare.study.planning.host_cpus import HostCpus

_PIECE = 1 << 20
_PUT = 'cat > "$1.part" && chmod "$2" "$1.part" && mv -f "$1.part" "$1"'

# Only the keeper's command line contains the directory's name.
_END_KEEPER = 'grep -qsF "$2" "/proc/$1/cmdline" && kill -9 "$1"; rm -rf "$2"'


class SshHost(Host):
    """A computer that is reached over SSH.

    All traffic goes through one *keeper*, a process of Tare's agent on the host. While the
    All traffic goes through one *keeper*, a process of Tare's agent on the host. While the
    connection is broken, the keeper keeps the started processes and their output. It sends the
    output when the connection is restored. It ends all processes if it receives nothing for the
    length of the lease.

    Args:
        options: The options of the connection.
        agent: The ``tare-agent`` program for that host; it is copied there once.
        tell: Called with a sentence when the connection breaks, comes back, or is lost.
        leaving: Notifies the host when Tare ends.
        on_loss: Called with the reason each time the host is lost.
    """

    def __init__(
        self,
        options: SshOptions,
        agent: Path,
        *,
        tell: Callable[[str], None] | None = None,
        leaving: Leaving | None = None,
        on_loss: Callable[[TareError], None] | None = None,
    ) -> None:
        self.name = options.name
        self._tell = tell or (lambda _: None)
        self._session: HostSession | None = None
        self._opening = asyncio.Lock()
        self._sessions = SessionOpener(
            self.name, lambda: HostSession(options, agent, self._tell, on_loss)
        )
        if leaving is not None:
            leaving.note(self)
        self._topology: HostCpus | None = None

    def __repr__(self) -> str:
        return f"SshHost({self.name!r})"

    async def __aenter__(self) -> Self:
        await self.connect()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def connect(self) -> None:
        """Log in, and read the host's CPUs. After a loss, any other call also reconnects.

        Raises:
            InputError: The host's key or the login is wrong, or a file is missing.
            MachineFault: The host does not answer, or cannot run the agent.
        """
        self._sessions.rested()
        await self._connected()

    def leave(self) -> None:
        """Stop waiting for a lost host, because Tare ends now.

        While the host answers, everything works as before. Once it stops answering, it is given up
        permanently after :data:`tare.hosts.ssh.wire.LEAVING_S` seconds.
        """
        self._sessions.leave()
        if self._session is not None:
            self._session.leave()

    async def close(self) -> None:
        """End all processes that were started on the host, and the connection."""
        if self._session is not None:
            await self._session.close()

    async def _connected(self) -> HostSession:
        async with self._opening:
            if self._session is None or self._session.fault is not None:
                session = await self._sessions.open()
                before, self._session = self._session, session
                if before is not None:
                    # There is no need to wait for the lease of the lost session's processes.
                    words = map(str, before.keeper)
                    await self._run(session, ["sh", "-c", _END_KEEPER, "sh", *words], None, None)
                if before is not None and before.boot != session.boot:
                    self._tell(f"{self.name} was rebooted, and is back.")
                    self._topology = None
                if self._topology is None:
                    self._topology = await self._look(session)
            return self._session

    async def _look(self, session: HostSession) -> HostCpus:
        shown = await self._run(session, show_topology(), None, None)
        try:
            return read_topology(await self._with_granted(session, shown))
        except ValueError as error:
            raise MachineFault(f"{self.name}: {error}: {shown.words()}") from error

    async def _with_granted(self, session: HostSession, shown: Completed) -> str:
        """Return the output with the CPUs that the host's kernel grants."""
        granted = await self._run(session, ask_kernel(str(session.agent)), None, None)
        return (shown.stdout + b"\n" + granted.stdout).decode(errors="replace")

    async def look_again(self) -> None:
        """Read the host's CPUs again; see :class:`tare.hosts.contract.Host`."""
        self._topology = await self._look(await self._connected())

    async def usable_cpus(self) -> tuple[int, ...]:
        """Return the CPUs that a session may use now; see :class:`tare.hosts.contract.Host`."""
        session = await self._connected()
        shown = await self._run(session, show_usable(), None, None)
        return currently_usable(await self._with_granted(session, shown), self.topology())

    @property
    def agent(self) -> Path:
        """The agent's program on the host."""
        return Path(self._known.agent)

    @property
    def addresses(self) -> tuple[AddressPair, AddressPair]:
        """The addresses of the connection, as seen here and as the host reports them."""
        return self._known.addresses

    def boot_id(self) -> str:
        """Return the id of the host's boot in the current connection."""
        return self._known.boot

    def topology(self) -> HostCpus:
        """Return the online CPUs that a session may use, as found or arranged."""
        if self._topology is None:
            raise ValueError(f"{self.name} is not connected")
        return self._as_arranged(self._topology)

    @property
    def _known(self) -> HostSession:
        if self._session is None:
            raise ValueError(f"{self.name} is not connected")
        return self._session

    async def run(
        self,
        argv: Sequence[str],
        *,
        input: bytes | None = None,
        timeout_s: float | None = None,
        env: Mapping[str, str] | None = None,
    ) -> Completed:
        """Run a command to its end; see :class:`tare.hosts.contract.Host`."""
        try:
            async with asyncio.timeout(timeout_s):
                return await self._run(await self._connected(), argv, input, env)
        except TimeoutError:
            raise MachineFault(
                f"`{' '.join(argv)}` did not end within {timeout_s:g} s", transient=True
            ) from None

    async def _run(
        self,
        session: HostSession,
        argv: Sequence[str],
        input: bytes | None,
        env: Mapping[str, str] | None,
    ) -> Completed:
        number, answer = session.begin(
            "start",
            argv=list(map(str, argv)),
            env=dict(env or {}),
            input=input is not None,
            errors=True,
        )
        process = SshProcess(session, number)
        errors = session.incoming(2 * number + 1)
        try:
            with self._naming(argv[0]):
                await process.begun(answer)
            if input is not None:
                process.stdin.write(input)
                process.stdin.write_eof()
            stdout, stderr, code = await asyncio.gather(
                process.stdout.read(), errors.reader.read(), process.wait()
            )
        except ConnectionResetError as error:
            raise _fault(session, error) from None
        except BaseException:
            session.kill(number)
            raise
        return Completed(code, stdout, stderr)

    @contextlib.contextmanager
    def _naming(self, program: str) -> Any:
        try:
            yield
        except FileNotFoundError as error:
            raise InputError(
                f"there is no command {program} on {self.name}",
                "install it there, or check PATH",
            ) from error
        except PermissionError as error:
            raise InputError(
                f"{program} cannot be executed on {self.name}: {error.strerror}"
            ) from error

    async def start(
        self,
        argv: Sequence[str],
        *,
        log: Path | None = None,
        env: Mapping[str, str] | None = None,
        cpus: Sequence[int] | None = None,
    ) -> Process:
        """Start a command that ends with Tare; see :class:`tare.hosts.contract.Host`.

        ``log`` is a file on the host.
        """
        session = await self._connected()
        if log is not None and not await self.exists(log.parent):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(log))
        number, answer = session.begin(
            "start",
            argv=list(map(str, argv)),
            env=dict(env or {}),
            cpus=list(cpus or ()),
            log=None if log is None else str(log),
        )
        try:
            with self._naming(argv[0]):
                return await SshProcess(session, number).begun(answer)
        except BaseException:
            session.kill(number)
            raise

    async def read(self, path: str | Path) -> bytes:
        """Return a file's content; raises OSError."""
        session = await self._connected()
        number, answer = session.begin("read", path=str(path))
        content = session.incoming(2 * number, ends_with_error=True)
        try:
            await session.answered("read", answer)
            return await content.reader.read()
        except ConnectionResetError as error:
            raise _fault(session, error) from None
        except OSError as error:
            raise _named(error, path) from None

    async def write(self, path: str | Path, data: bytes) -> None:
        """Write a file in one piece; raises OSError."""
        session = await self._connected()
        number, answer = session.begin("write", path=str(path), size=len(data))
        outgoing = session.outgoing(2 * number, whole=False)
        outgoing.write(data)
        try:
            await session.answered("write", answer)
        except OSError as error:
            raise _named(error, path) from None
        finally:
            outgoing.stop()

    async def put(self, local: Path, path: str | Path, *, mode: int = 0o644) -> None:
        """Copy a file of this computer to the host; an incomplete copy is never left there.

        Raises:
            OSError: The local file cannot be read.
            MachineFault: The host does not accept it.
        """
        process = await self.start(["sh", "-c", _PUT, "sh", str(path), f"{mode:o}"])
        try:
            with local.open("rb") as file:
                while piece := await asyncio.to_thread(file.read, _PIECE):
                    process.stdin.write(piece)
                    await process.stdin.drain()
            process.stdin.close()
            if code := await process.wait():
                raise MachineFault(f"{self.name} does not accept {path} (status {code})")
        except ConnectionError as error:
            raise MachineFault(f"{self.name} does not accept {path}: {error}") from error
        finally:
            if process.returncode is None:
                await process.kill()

    async def exists(self, path: str | Path) -> bool:
        """Return whether there is a file or directory at ``path``."""
        session = await self._connected()
        return bool((await session.request("exists", path=str(path)))["exists"])

    async def remove(self, path: str | Path) -> None:
        """Remove a file or a whole directory; nothing happens if it is not there."""
        session = await self._connected()
        try:
            await session.request("remove", path=str(path))
        except OSError as error:
            raise _named(error, path) from None

    async def connect_unix(
        self, path: str | Path
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Open a stream to a listening UNIX socket on the host; raises OSError."""
        return await self._stream("connect", path)

    async def open_terminal(
        self, path: str | Path
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Open a terminal, such as a guest's console, for all byte values; raises OSError."""
        return await self._stream("terminal", path)

    async def _stream(
        self, op: str, path: str | Path
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        session = await self._connected()
        number, answer = session.begin(op, path=str(path))
        incoming: Incoming = session.incoming(2 * number)
        outgoing: Outgoing = session.outgoing(2 * number, whole=True)
        try:
            await session.answered(op, answer)
        except OSError as error:
            raise _named(error, path) from None
        return incoming.reader, outgoing.writer


def _named(error: OSError, path: str | Path) -> OSError:
    return OSError(error.errno, error.strerror, str(path))


def _fault(session: HostSession, error: OSError) -> Exception:
    """Return the reason why the host was lost, or ``error`` itself if it was not lost."""
    return copy_fault(session.fault) if session.fault is not None else error


KILLED_S = 60.0
"""Time limit in seconds for the kernel to end a killed process and to free its memory."""


class SshProcess(Process):
    """A process on a host that is reached over SSH; it ends when Tare ends.

    Args:
        session: The session that holds it.
        number: The id of the request that started it.
    """

    def __init__(self, session: HostSession, number: int) -> None:
        self._session = session
        self._number = number
        self._ended = session.exit_of(number)
        self._incoming = session.incoming(2 * number)
        self._outgoing = session.outgoing(2 * number, whole=False)
        self._pid = 0

    async def begun(self, answer: asyncio.Future[dict[str, Any]]) -> Self:
        """Wait until the process runs; raise OSError if the host's kernel refuses."""
        self._pid = int((await self._session.answered("start", answer))["pid"])
        return self

    @property
    def pid(self) -> int:
        """The process id on its host."""
        return self._pid

    @property
    def returncode(self) -> int | None:
        """The exit status, negative for a signal; None while it runs."""
        if not self._ended.done():
            return None
        return -signal.SIGKILL if self._ended.exception() else self._ended.result()

    @property
    def stdin(self) -> asyncio.StreamWriter:
        """The stream that the process reads."""
        return self._outgoing.writer

    @property
    def stdout(self) -> asyncio.StreamReader:
        """The stream that the process writes."""
        return self._incoming.reader

    async def wait(self) -> int:
        """Return the exit status once the process has ended.

        Raises:
            MachineFault: The host was lost.
        """
        return await asyncio.shield(self._ended)

    async def terminate(self) -> None:
        """Ask the process to end; nothing happens if it already has."""
        await self._signal(signal.SIGTERM)

    async def kill(self) -> None:
        """End the process at once and reap it; nothing happens if it already ended.

        Raises:
            MachineFault: The host is lost and the process may still run there for a while; or the
                process does not end, for example because a disk does not respond.
        """
        await self._signal(signal.SIGKILL)
        with contextlib.suppress(SessionEnded):
            if not await self._session.heard(self._ended, KILLED_S):
                raise MachineFault(
                    f"process {self._pid} on {self._session.name} was killed but did not end "
                    f"within {KILLED_S:g} s",
                    f"to see what it waits for, run there: cat /proc/{self._pid}/stack",
                )
            await self.wait()

    async def _signal(self, number: signal.Signals) -> None:
        if self.returncode is None:
            with contextlib.suppress(SessionEnded):
                await self._session.request("signal", process=self._number, signal=int(number))
