"""The connections of a session: they are opened, watched, and opened again when they break."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import asyncssh

from tare.errors import InputError, MachineFault, TareError
from tare.hosts.address_pair import AddressPair
from tare.hosts.ssh.agent_copy import Door, prepare, take_back, unusable
from tare.hosts.ssh.connect import UnknownKey, boot_of, log_in
from tare.hosts.ssh.link import Decoder, Frame, Gap, LinkState
from tare.hosts.ssh.login_faults import reason
from tare.hosts.ssh.options import SshOptions
from tare.hosts.ssh.shell import ByteProcess, NotRun, start_program

_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.1, 5.0
LEAVING_S = 3.0
"""Seconds to retry a broken connection while Tare is ending."""
_READ = 1 << 18
PREPARE = 4
"""Time limit for copying and starting the agent, as a multiple of a login's time limit."""
_NO_KEEPER = "there is no keeper"
_SUDO = ("sudo", "-n", "--")


class ConnectionBroken(Exception):
    """The connection is gone; the text states how it ended."""


class SessionEnded(MachineFault):
    """The host is lost, and everything that Tare started there has ended."""


class Wire:
    """The connection to the keeper on one host, reopened when it breaks.

    Args:
        options: The options of the connection.
        agent: The agent's program here, copied to the host.
        link: The frames to send over the connections.
        take: Called with every frame that arrives.
        tell: Called with a sentence when the connection breaks and when it is back.
    """

    def __init__(
        self,
        options: SshOptions,
        agent: Path,
        link: LinkState,
        take: Callable[[Frame], None],
        tell: Callable[[str], None],
    ) -> None:
        self._options = options
        self._program = agent
        self._link = link
        self._take = take
        self._tell = tell
        self._decoder = Decoder()
        self._door: Door | None = None
        self._front: ByteProcess | None = None
        self._patience_s = options.patience_s
        self._trying: asyncio.Timeout | None = None
        self.boot = ""
        self.keeper_pid = 0

    @property
    def keeper(self) -> str:
        """The keeper's directory on the host."""
        return self._opened.keeper

    @property
    def agent(self) -> str:
        """The agent's program on the host."""
        return self._opened.agent

    @property
    def addresses(self) -> tuple[AddressPair, AddressPair]:
        """The connection's addresses as first seen here, and as the host reported them."""
        return self._opened.seen_here, self._opened.seen_there

    @property
    def _opened(self) -> Door:
        if self._door is None:
            raise ValueError("the host is not connected")
        return self._door

    async def open(self) -> None:
        """Log in, copy the agent if needed, and start a keeper.

        Raises:
            InputError, MachineFault: As in :func:`tare.hosts.ssh.connect.log_in`.
        """
        connection = await log_in(self._options)
        try:
            async with asyncio.timeout(PREPARE * self._options.connect_s):
                self._door = await prepare(connection, self._program, self._options)
                self._front = await self._greet(connection, resume=False)
        except TimeoutError as error:
            await self._leave(connection)
            raise self._slow_shell_fault() from error
        except NotRun as error:
            await self._leave(connection)
            raise error.fault(self._options) from error
        except (OSError, asyncssh.Error, ConnectionBroken) as error:
            words = str(error) if isinstance(error, ConnectionBroken) else reason(error)
            fault = await self._no_agent(connection, words)
            await self._leave(connection)
            raise fault from error
        except BaseException:
            connection.abort()
            raise

    async def _leave(self, connection: asyncssh.SSHClientConnection) -> None:
        """Close a connection over which no agent could be started, and remove the agent."""
        with contextlib.suppress(OSError, asyncssh.Error, NotRun):
            async with asyncio.timeout(self._options.connect_s):
                await take_back(connection, self._options)
        connection.abort()

    def _slow_shell_fault(self) -> MachineFault:
        return self._options.silent(
            "lets Tare in, but its login shell did not run a command within "
            f"{PREPARE * self._options.connect_s:g} s",
            "check its start-up files (such as .bashrc) for commands that wait, for a full disk "
            f"and for a file server that does not answer; try: {self._options.login}",
        )

    async def _no_agent(
        self, connection: asyncssh.SSHClientConnection, words: str
    ) -> InputError | MachineFault:
        """Return why the agent does not run on the host.

        Args:
            connection: A connection to the host.
            words: The output instead of the agent's.
        """
        name = self._options.name
        if self._door is not None:
            with contextlib.suppress(OSError, asyncssh.Error, NotRun):
                async with asyncio.timeout(self._options.connect_s):
                    folder = self._door.agent.rpartition("/")[0]
                    fault = await unusable(connection, self._options, folder, 0)
                    if fault is not None:
                        return fault
        if self._options.sudo and "sudo" in words:
            return InputError(
                f"{name} does not let its user become root: {words}",
                f"make sudo work without a password there: echo '{self._options.user} ALL=(ALL) "
                "NOPASSWD: ALL' in a file of /etc/sudoers.d; or remove `sudo`",
            )
        return MachineFault(f"the agent does not run on {name}: {words}", transient=True)

    def close(self) -> None:
        """Close the connection."""
        self._link.cut()
        if self._door is not None:
            self._door.connection.abort()

    def leave(self) -> None:
        """From now on, retry a broken connection for at most :data:`LEAVING_S` seconds."""
        self._patience_s = min(self._patience_s, LEAVING_S)
        if self._trying is None:
            return
        within = asyncio.get_running_loop().time() + self._patience_s
        if (before := self._trying.when()) is None or within < before:
            self._tell(f"{self._options.name} is waited for at most {self._patience_s:g} s more.")
            self._trying.reschedule(within)

    async def live(self, closing: Callable[[], bool]) -> None:
        """Accept frames, over as many connections as needed, until ``closing()`` returns True.

        Raises:
            UnknownKey: The host now shows another key.
            Ended: The host was rebooted, or ended the processes that were started there.
            MachineFault: The connection was not restored.
        """
        while self._front is not None:
            how = await self._listen(self._front)
            self._link.cut()
            if closing():
                return
            self._tell(f"The connection to {self._options.name} broke ({how}).")
            broke = time.monotonic()
            self._front = await self._reconnect(how)
            took = time.monotonic() - broke
            self._tell(f"{self._options.name} is connected again after {took:.1f} s.")

    async def _greet(
        self, connection: asyncssh.SSHClientConnection, *, resume: bool
    ) -> ByteProcess:
        how = ["--resume"] if resume else []
        lease = ["--lease", str(self._options.lease_s)]
        root = _SUDO if self._options.sudo else ()
        command = [*root, self._opened.agent, "keep", *how, *lease, self._opened.keeper]
        front, opening = await start_program(connection, command)
        front.stdin.write(self._link.greeting())
        self._decoder = Decoder()
        frames: list[Frame] = []
        try:
            async with asyncio.timeout(self._options.connect_s):
                data = await opening.first()
                while data and not (frames := self._decoder.feed(data)):
                    data = await front.stdout.read(_READ)
                if not data:
                    raise ConnectionBroken(await opening.errors() or "the connection ended")
        except TimeoutError:
            raise ConnectionBroken("no answer from the agent") from None
        except ValueError as error:
            raise ConnectionBroken(f"something other than the agent answers ({error})") from error
        hello = json.loads(frames[0].payload)
        self.boot, self.keeper_pid = hello["boot"], int(hello["pid"])
        self._link.resume(lambda data: _write(front, data), int(hello["received"]))
        try:
            for frame in frames[1:]:
                self._take(frame)
        except Gap as gap:
            raise ConnectionBroken(str(gap)) from gap
        return front

    async def _listen(self, front: ByteProcess) -> str:
        """Accept frames until the connection breaks; return how it broke."""
        asking = asyncio.create_task(self._ask())
        try:
            while True:
                async with asyncio.timeout(self._options.silence_s):
                    data = await front.stdout.read(_READ)
                if not data:
                    return "it was closed"
                for frame in self._decoder.feed(data):
                    self._take(frame)
                if self._link.stuck:
                    # Everything is sent again over the next connection.
                    return "it accepts nothing"
        except TimeoutError:
            return f"nothing was received for {self._options.silence_s:g} s"
        except Gap as gap:
            return str(gap)
        except ValueError as error:
            return f"something other than the agent writes to it ({error})"
        except (OSError, asyncssh.Error) as error:
            return reason(error)
        finally:
            asking.cancel()

    async def _ask(self) -> None:
        while True:
            await asyncio.sleep(self._options.silence_s / 4)
            self._link.ask()

    async def _reconnect(self, how: str) -> ByteProcess:
        self._opened.connection.abort()
        pause = _FIRST_PAUSE_S
        last: Exception = ConnectionBroken(how)
        try:
            # If Tare ends, even a login attempt is cut short.
            async with asyncio.timeout(self._patience_s) as self._trying:
                while True:
                    try:
                        return await self._try_again()
                    except (UnknownKey, SessionEnded):
                        raise
                    # A host that is booting refuses connections, and then logins, for a while.
                    except (
                        InputError,
                        MachineFault,
                        ConnectionBroken,
                        OSError,
                        asyncssh.Error,
                    ) as error:
                        last = error
                    except NotRun as error:
                        last = error.fault(self._options)
                    await asyncio.sleep(pause)
                    pause = min(2 * pause, _LONGEST_PAUSE_S)
        except TimeoutError:
            words = last.message if isinstance(last, TareError) else reason(last)
        finally:
            self._trying = None
        if self._options.emulated:
            raise self._options.silent(
                f"stopped answering ({how}), and did not let Tare in again within "
                f"{self._patience_s:g} s",
                "",
            )
        raise MachineFault(
            f"the connection to {self._options.name} broke ({how}) and did not come back within "
            f"{self._patience_s:g} s: {words}",
            "the processes that Tare started there end by themselves within "
            f"{self._options.lease_s} s",
            transient=True,
        )

    async def _try_again(self) -> ByteProcess:
        name = self._options.name
        connection = await log_in(self._options)
        try:
            if await boot_of(connection) != self.boot:
                raise SessionEnded(f"{name} was rebooted: what ran there has ended", transient=True)
            front = await self._greet(connection, resume=True)
        except BaseException as error:
            connection.abort()
            if isinstance(error, ConnectionBroken) and _NO_KEEPER in str(error):
                raise SessionEnded(
                    f"{name} is back, but its processes of Tare have ended: they had no contact "
                    "with Tare for too long, or their keeper was killed",
                    transient=True,
                ) from error
            raise
        self._door = replace(self._opened, connection=connection)
        return front


def _write(front: ByteProcess, data: bytes) -> None:
    # Frames that do not arrive are sent again over the next connection.
    try:
        front.stdin.write(data)
    except (OSError, asyncssh.Error):
        front.close()
