"""A computer that is reached over SSH."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tare.errors import InputError, MachineFault, TareError
from tare.hosts.address_pair import AddressPair
from tare.hosts.contract import Completed, Host, Process
from tare.hosts.leaving import Leaving
from tare.hosts.ssh.opening import Opening
from tare.hosts.ssh.options import SshOptions
from tare.hosts.ssh.process import SshProcess
from tare.hosts.ssh.session import Session, again
from tare.hosts.ssh.streams import Incoming, Outgoing
from tare.hosts.topology import (
    ask_kernel,
    now_usable,
    read_topology,
    show_topology,
    show_usable,
)
from tare.study.planning.host_cpus import HostCpus

_PIECE = 1 << 20
_PUT = 'cat > "$1.part" && chmod "$2" "$1.part" && mv -f "$1.part" "$1"'

# The directory's name is in the keeper's command line, and in no other process's.
_END_KEEPER = 'grep -qsF "$2" "/proc/$1/cmdline" && kill -9 "$1"; rm -rf "$2"'


class SshHost(Host):
    """A computer that is reached over SSH.

    Everything goes through one *keeper*, a process of Tare's agent on the host. It holds what
    was started while the connection is broken, hands it on when the connection is back, and ends
    it all when it hears nothing for the length of the lease.

    Args:
        options: How the host is reached.
        agent: The ``tare-agent`` program for that host; it is copied there once.
        tell: Is called with a sentence when the connection breaks, comes back, or is lost.
        leaving: Tells when Tare is to end.
        on_loss: Is called with the reason each time the host is lost.
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
        self._session: Session | None = None
        self._opening = asyncio.Lock()
        self._sessions = Opening(self.name, lambda: Session(options, agent, self._tell, on_loss))
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
        """Log in, and learn the host's CPUs; after a loss, anything else does so again.

        Raises:
            InputError: The host's key or the login is not right, or a file is missing.
            MachineFault: The host does not answer, or cannot run the agent.
        """
        self._sessions.rested()
        await self._connected()

    def leave(self) -> None:
        """Wait no longer for a host that is lost: Tare is to end now.

        While the host answers, everything is done as ever. Once it does not, it is given up after
        :data:`tare.hosts.ssh.wire.LEAVING_S` seconds, for good.
        """
        self._sessions.leave()
        if self._session is not None:
            self._session.leave()

    async def close(self) -> None:
        """End all that was started on the host, and the connection."""
        if self._session is not None:
            await self._session.close()

    async def _connected(self) -> Session:
        async with self._opening:
            if self._session is None or self._session.fault is not None:
                session = await self._sessions.open()
                before, self._session = self._session, session
                if before is not None:
                    # What the lost session left need not wait for the end of its lease.
                    words = map(str, before.keeper)
                    await self._run(session, ["sh", "-c", _END_KEEPER, "sh", *words], None, None)
                if before is not None and before.boot != session.boot:
                    self._tell(f"{self.name} was rebooted, and is back.")
                    self._topology = None
                if self._topology is None:
                    self._topology = await self._look(session)
            return self._session

    async def _look(self, session: Session) -> HostCpus:
        shown = await self._run(session, show_topology(), None, None)
        try:
            return read_topology(await self._with_granted(session, shown))
        except ValueError as error:
            raise MachineFault(f"{self.name}: {error}: {shown.words()}") from error

    async def _with_granted(self, session: Session, shown: Completed) -> str:
        """Return what was shown, with the CPUs that the host's kernel grants of all."""
        granted = await self._run(session, ask_kernel(str(session.agent)), None, None)
        return (shown.stdout + b"\n" + granted.stdout).decode(errors="replace")

    async def look_again(self) -> None:
        """Read the host's CPUs again; see :class:`tare.hosts.contract.Host`."""
        self._topology = await self._look(await self._connected())

    async def usable_cpus(self) -> tuple[int, ...]:
        """Return the CPUs that a session may use now; see :class:`tare.hosts.contract.Host`."""
        session = await self._connected()
        shown = await self._run(session, show_usable(), None, None)
        return now_usable(await self._with_granted(session, shown), self.topology())

    @property
    def agent(self) -> Path:
        """The agent's program on the host."""
        return Path(self._known.agent)

    @property
    def addresses(self) -> tuple[AddressPair, AddressPair]:
        """The addresses of the connection: as they are seen here, and as the host reports them."""
        return self._known.addresses

    def boot_id(self) -> str:
        """Return the id of the host's boot, as of the present connection."""
        return self._known.boot

    def topology(self) -> HostCpus:
        """Return the online CPUs that a session may use, as they were found or arranged."""
        if self._topology is None:
            raise ValueError(f"{self.name} was not connected")
        return self._as_arranged(self._topology)

    @property
    def _known(self) -> Session:
        if self._session is None:
            raise ValueError(f"{self.name} was not connected")
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
        session: Session,
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
                f"there is no command {program} on {self.name}", "install it there, or check PATH"
            ) from error
        except PermissionError as error:
            raise InputError(
                f"{program} may not be run on {self.name}: {error.strerror}"
            ) from error

    async def start(
        self,
        argv: Sequence[str],
        *,
        log: Path | None = None,
        env: Mapping[str, str] | None = None,
        cpus: Sequence[int] | None = None,
    ) -> Process:
        """Start a command that dies with Tare; see :class:`tare.hosts.contract.Host`.

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
        """Copy a file of this computer to the host; it is there whole, or not at all.

        Raises:
            OSError: It cannot be read here.
            MachineFault: The host does not take it.
        """
        process = await self.start(["sh", "-c", _PUT, "sh", str(path), f"{mode:o}"])
        try:
            with local.open("rb") as file:
                while piece := await asyncio.to_thread(file.read, _PIECE):
                    process.stdin.write(piece)
                    await process.stdin.drain()
            process.stdin.close()
            if code := await process.wait():
                raise MachineFault(f"{self.name} does not take {path} (status {code})")
        except ConnectionError as error:
            raise MachineFault(f"{self.name} does not take {path}: {error}") from error
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


def _fault(session: Session, error: OSError) -> Exception:
    """Return why the host was lost; ``error`` itself where it was not."""
    return again(session.fault) if session.fault is not None else error
