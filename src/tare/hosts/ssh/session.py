"""A session with a host's keeper: requests and streams, over connections that may break."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import json
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tare.errors import InputError, MachineFault
from tare.hosts.address_pair import AddressPair
from tare.hosts.ssh.link import CONTROL, DATA, Frame, LinkState, split_data
from tare.hosts.ssh.options import SshOptions
from tare.hosts.ssh.streams import Incoming, Outgoing
from tare.hosts.ssh.wire import SessionEnded, Wire

_FINISH_S = 5.0
ANSWER_S = 60.0
"""Time limit of a request over a working connection, in seconds."""
WORK_S = 600.0
"""The time limit, in seconds, of requests whose duration depends on the size of files."""
_WORK = ("remove", "write")
_AT_ONCE = ("start", "signal")
"""Requests that the keeper must answer at once; a keeper that does not is considered lost."""
_LOOK_S = 1.0

Fault = InputError | MachineFault


class HostSession:
    """Tare's session on one host, held there by a keeper.

    Args:
        options: The options of the connection.
        agent: The agent's program here, copied to the host.
        tell: Called with a sentence when the connection breaks, comes back, or is lost.
        on_loss: Called with the reason when the host is lost, unless Tare closed the session.
    """

    def __init__(
        self,
        options: SshOptions,
        agent: Path,
        tell: Callable[[str], None],
        on_loss: Callable[[Fault], None] | None = None,
    ) -> None:
        self._options = options
        self._on_loss = on_loss
        self.name = options.name
        self._lease_s = options.lease_s
        self._tell = tell
        self._link = LinkState()
        self._wire = Wire(options, agent, self._link, self._take, tell)
        self._last_id = 0
        self._answers: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._exits: dict[int, asyncio.Future[int]] = {}
        self._incoming: dict[int, Incoming] = {}
        self._outgoing: dict[int, Outgoing] = {}
        self._task: asyncio.Task[None] | None = None
        self._closing = False
        self.fault: Fault | None = None
        """The reason why the host is lost; None while it is not."""

    @property
    def agent(self) -> str:
        """The agent's program on the host."""
        return self._wire.agent

    @property
    def keeper(self) -> tuple[int, str]:
        """The keeper's process id and directory on the host."""
        return self._wire.keeper_pid, self._wire.keeper

    @property
    def addresses(self) -> tuple[AddressPair, AddressPair]:
        """The connection's addresses as first seen here, and as the host reported them."""
        return self._wire.addresses

    @property
    def boot(self) -> str:
        """The id of the boot in which this session started."""
        return self._wire.boot

    async def open(self) -> None:
        """Log in, copy the agent if needed, and start a keeper; raise as Wire does."""
        await self._wire.open()
        self._task = asyncio.create_task(self._live())

    async def close(self) -> None:
        """End all processes that were started on the host, and the connection."""
        self._closing = True
        if self._task is None:
            return
        if self.fault is None:
            self._link.message({"op": "finish", "id": self._next_id()})
            await asyncio.wait([self._task], timeout=_FINISH_S)
        self._task.cancel()
        await asyncio.wait([self._task])
        self._wire.close()
        self._fail(SessionEnded(f"the connection to {self.name} was closed"))

    def leave(self) -> None:
        """Soon give up the host if it does not answer."""
        self._wire.leave()

    async def _live(self) -> None:
        try:
            await self._wire.live(lambda: self._closing)
        except (InputError, MachineFault) as fault:
            self._tell(f"{fault.message[0].upper()}{fault.message[1:]}.")
            self._fail(fault)
        except Exception as error:
            self._fail(MachineFault(f"{self.name}: {error!r}", transient=True))
            raise
        except asyncio.CancelledError:
            # The task was cancelled by its surroundings, not by `close`: no answer will come.
            if not self._closing:
                self._fail(MachineFault(f"the connection to {self.name} was interrupted"))
            raise
        finally:
            self._wire.close()

    def _next_id(self) -> int:
        self._last_id += 1
        return self._last_id

    def message(self, value: dict[str, Any]) -> None:
        """Send a message."""
        if self.fault is None:
            self._link.message(value)

    def data(self, stream: int, data: bytes) -> None:
        """Send a piece of a stream."""
        if self.fault is None:
            self._link.data(stream, data)

    def begin(self, op: str, **fields: Any) -> tuple[int, asyncio.Future[dict[str, Any]]]:
        """Send a request; return its id, and the future of its answer."""
        if self.fault is not None:
            raise copy_fault(self.fault)
        number = self._next_id()
        answer = self._answers[number] = asyncio.get_running_loop().create_future()
        answer.add_done_callback(lambda _: self._answers.pop(number, None))
        self._link.message({"op": op, "id": number, **fields})
        return number, answer

    async def request(self, op: str, **fields: Any) -> dict[str, Any]:
        """Send a request and return its answer.

        Raises:
            OSError: The host's kernel refuses it.
            MachineFault: The host is lost, or its keeper does not answer.
        """
        return await self.answered(op, self.begin(op, **fields)[1])

    async def answered(self, op: str, answer: asyncio.Future[dict[str, Any]]) -> dict[str, Any]:
        """Return the answer to a started request; raise as :meth:`request` does."""
        limit_s = WORK_S if op in _WORK else ANSWER_S
        try:
            if await self.heard(answer, limit_s):
                return answer.result()
        finally:
            answer.cancel()
        fault = self._options.silent(
            f"is connected, but Tare's keeper process there did not answer `{op}` within "
            f"{limit_s:g} s",
            "check the host for hung disks or memory shortage (dmesg); Tare's processes there end "
            f"by themselves {self._lease_s} s after the connection, and `tare clean` removes the "
            "rest",
        )
        if op in _AT_ONCE:
            self._fail(fault)
            if self._task is not None:
                self._task.cancel()
        raise copy_fault(fault)

    async def heard(self, what: asyncio.Future[Any], limit_s: float) -> bool:
        """Wait for something from the host; return whether it arrived.

        Args:
            what: The future to wait for; it is not cancelled.
            limit_s: The time limit in seconds, without the time during which there is no
                connection, which has a separate limit.
        """
        left = limit_s
        while not what.done() and left > 0:
            began = time.monotonic()
            await asyncio.wait({what}, timeout=min(left, _LOOK_S))
            if self._link.connected:
                left -= time.monotonic() - began
        return what.done()

    def kill(self, number: int) -> None:
        """Kill a process and its group, by its request's id, without waiting."""
        whole = {"process": number, "signal": int(signal.SIGKILL), "group": True}
        self.message({"op": "signal", "id": 0, **whole})

    def incoming(self, stream: int, *, ends_with_error: bool = False) -> Incoming:
        """Return the near end of a stream from the host."""
        end = self._incoming[stream] = Incoming(self, stream, ends_with_error=ends_with_error)
        return end

    def outgoing(self, stream: int, *, whole: bool) -> Outgoing:
        """Return the near end of a stream to the host."""
        end = self._outgoing[stream] = Outgoing(self, stream, whole=whole)
        return end

    def over(self, stream: int) -> None:
        """Forget a stream to the host."""
        self._outgoing.pop(stream, None)

    def exit_of(self, number: int) -> asyncio.Future[int]:
        """Return the future of a process's exit status, by the id of the request to start it."""
        ended = self._exits[number] = asyncio.get_running_loop().create_future()
        # Waiters get the error of a lost host; without waiters, the error is ignored.
        ended.add_done_callback(lambda it: it.cancelled() or it.exception())
        return ended

    def _take(self, frame: Frame) -> None:
        if frame.kind == CONTROL:
            self._link.arrived(int(json.loads(frame.payload)["received"]))
        elif self._link.is_new(frame):
            if frame.kind == DATA:
                stream, data = split_data(frame.payload)
                if incoming := self._incoming.get(stream):
                    incoming.take(data)
            else:
                self._take_message(json.loads(frame.payload))

    def _take_message(self, message: dict[str, Any]) -> None:
        if "credit" in message:
            if outgoing := self._outgoing.get(message["credit"]):
                outgoing.grant(message["bytes"])
        elif "end" in message:
            if incoming := self._incoming.pop(message["end"], None):
                incoming.end(message["errno"])
        elif "exited" in message:
            self._take_exit(message["exited"], message["code"])
        elif "done" in message:
            answer = self._answers.get(message["done"])
            if answer is not None and not answer.done():
                answer.set_result(message)
        elif "failed" in message:
            code = message["errno"]
            self._drop(message["failed"])
            refused = self._answers.get(message["failed"])
            if refused is not None and not refused.done():
                refused.set_exception(OSError(code, os.strerror(code)))

    def _take_exit(self, number: int, code: int) -> None:
        ended = self._exits.pop(number, None)
        if ended is not None and not ended.done():
            ended.set_result(code)
        if outgoing := self._outgoing.pop(2 * number, None):
            outgoing.stop(BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE)))

    def _drop(self, number: int) -> None:
        for stream in (2 * number, 2 * number + 1):
            self._incoming.pop(stream, None)
            if outgoing := self._outgoing.pop(stream, None):
                outgoing.stop()
        self._exits.pop(number, None)

    def _fail(self, fault: Fault) -> None:
        if self.fault is not None:
            return
        self.fault = fault
        if self._on_loss is not None and not self._closing:
            self._on_loss(fault)
        self._link.cut()
        for answer in list(self._answers.values()):
            with contextlib.suppress(asyncio.InvalidStateError):
                answer.set_exception(copy_fault(fault))
        for ended in self._exits.values():
            with contextlib.suppress(asyncio.InvalidStateError):
                ended.set_exception(copy_fault(fault))
        broken = ConnectionResetError(errno.ECONNRESET, fault.message)
        for incoming in self._incoming.values():
            incoming.fail(broken)
        for outgoing in list(self._outgoing.values()):
            outgoing.stop(broken)
        self._incoming.clear()
        self._outgoing.clear()


def copy_fault(fault: Fault) -> Fault:
    """Return a copy of a fault, because raising one object repeatedly extends its traceback."""
    if isinstance(fault, MachineFault):
        return type(fault)(fault.message, fault.hint, transient=fault.transient)
    return type(fault)(fault.message, fault.hint)


REST = 2.0
"""After a failed login, the host is left alone for this multiple of the time that the login took.
"""


class SessionOpener:
    """Opens sessions with one host.

    Args:
        name: The host's name in messages.
        make: Returns a session that is not open yet.
    """

    def __init__(self, name: str, make: Callable[[], HostSession]) -> None:
        self._name = name
        self._make = make
        self._limit: asyncio.Timeout | None = None
        self._leaving = False
        self._rests_until = 0.0
        self._fault: MachineFault | None = None

    def leave(self) -> None:
        """Open no further session and cancel the current attempt, because Tare ends now."""
        self._leaving = True
        if self._limit is not None:
            self._limit.reschedule(asyncio.get_running_loop().time())

    def rested(self) -> None:
        """Allow the next attempt at once."""
        self._fault = None

    async def open(self) -> HostSession:
        """Return a new session.

        Raises:
            InputError: The host's key or the login is wrong, or a file is missing.
            MachineFault: The host does not answer, or did not a moment ago; or Tare is ending.
        """
        if self._leaving:
            raise MachineFault(
                f"{self._name} is lost, and is not tried again because Tare is ending"
            )
        if self._fault is not None and time.monotonic() < self._rests_until:
            raise copy_fault(self._fault)
        session, began = self._make(), time.monotonic()
        try:
            async with asyncio.timeout(None) as self._limit:
                await session.open()
        except TimeoutError:
            raise MachineFault(
                f"{self._name} is no longer waited for, because Tare is ending"
            ) from None
        except MachineFault as fault:
            # Cleanup makes many requests in sequence: only the first should wait.
            self._rests_until = time.monotonic() + REST * (time.monotonic() - began)
            self._fault = fault
            raise
        finally:
            self._limit = None
        return session
