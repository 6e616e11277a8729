"""The transport to one agent: frames in order, and requests that are repeated until answered."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from typing import Any

from tare.agent.channel import Channel
from tare.agent.framing import (
    OUT_OF_BAND,
    Decoder,
    Frame,
    FrameKind,
    ReorderBuffer,
    TooMuchDamage,
    encode,
)
from tare.agent.message import InvalidMessage, RateLimiter, read_message
from tare.errors import MachineFault
from tare.plaintext import plain, plain_line

REPEAT_S = 2.0
"""Seconds after which a request that is neither accepted nor answered is sent again."""
_MOST_FAILED_RESENDS = 20
_MOST_HELD = 4096
_MOST_HELD_BYTES = 32 << 20
"""The agent keeps about 4 MiB of what it sent; older frames cannot be requested again."""
_TAIL_LINES = 20
_LONGEST_REASON = 2000
_ACK_BYTES = 1 << 20


@dataclass
class NoiseStats:
    """Errors on the channel that were corrected.

    Args:
        bytes: Bytes that belonged to no frame (console text, damaged frames).
        damaged: Frames that arrived with a wrong checksum.
        repeated: Requests sent more than once.
        resends: How often lost frames were requested from the agent.
    """

    bytes: int = 0
    damaged: int = 0
    repeated: int = 0
    resends: int = 0


class Request:
    """One pending request, until it is answered or its caller has given up."""

    def __init__(self, id: int, message: Mapping[str, Any], repeat_s: float) -> None:
        loop = asyncio.get_running_loop()
        self.id = id
        self.message = message
        self.repeat_s = repeat_s
        self.accepted = self.signal = False
        self.answer: asyncio.Future[dict[str, Any]] = loop.create_future()
        self.ready: asyncio.Future[None] = loop.create_future()
        self.timer: asyncio.TimerHandle | None = None

    def fail(self, error: BaseException) -> None:
        """End the request with an error."""
        for future in (self.answer, self.ready):
            if not future.done():
                future.set_exception(error)
                # Mark it as retrieved: not every caller waits for both.
                future.exception()


class Connection:
    """Sends requests to an agent and delivers its messages, over an unreliable channel.

    Args:
        channel: The byte stream.
        name: The machine's name, for messages.
        on_message: Called with every message: answers, and ``hello``, ``progress``, ``log``.
        on_series: Called with every series payload, in order.
        repeat_s: Seconds after which an unanswered request is sent again.
        on_text: Called with the bytes between frames: on a shared console, kernel messages.
    """

    def __init__(
        self,
        channel: Channel,
        name: str,
        on_message: Callable[[dict[str, Any]], None],
        on_series: Callable[[bytes], None],
        repeat_s: float = REPEAT_S,
        on_text: Callable[[bytes], None] | None = None,
    ) -> None:
        self.name = name
        self.fault: MachineFault | None = None
        self.requests: dict[int, Request] = {}
        self._channel = channel
        self._on_message = on_message
        self._on_series = on_series
        self.repeat_s = self._check_s = repeat_s
        self._decoder = Decoder(on_text)
        self._frames = ReorderBuffer()
        self._limiter = RateLimiter()
        self._repeated = self._resends = self._failed_resends = 0
        self._last_id = 0
        self._next_seq = 0
        self._unacknowledged = 0
        self._received = 0
        self._last_message = ("nothing", time.monotonic())
        self._check_timer: asyncio.TimerHandle | None = None
        self._reader: asyncio.Task[None] | None = None
        self._sending: set[asyncio.Task[None]] = set()

    def start(self) -> None:
        """Start reading; does nothing if it reads already."""
        if self._reader is None and self.fault is None:
            self._reader = asyncio.create_task(self._read(), name=f"agent of {self.name}")

    @property
    def noise(self) -> NoiseStats:
        """The errors on the channel so far that were corrected."""
        decoder = self._decoder
        return NoiseStats(decoder.noise, decoder.damaged, self._repeated, self._resends)

    def noise_lines(self) -> tuple[str, ...]:
        """Return the last lines of text between the frames."""
        return tuple(map(plain, self._decoder.noise_lines()[-_TAIL_LINES:]))

    def last_message(self) -> str:
        """Describe the agent's last message, and when it came."""
        what, when = self._last_message
        if what != "nothing":
            return f"{what}, {time.monotonic() - when:.1f} s ago"
        lines = self.noise_lines()
        return f"no message, but this text: {lines[-1]!r}" if lines else "nothing"

    def timeout_fault(self, waited_s: float) -> MachineFault:
        """Return the fault for an agent that did not answer in time."""
        return MachineFault(
            f"the agent of {self.name} did not answer within {waited_s:g} s; "
            f"last message: {self.last_message()}",
            console_tail=self.noise_lines(),
        )

    def open(self, op: str, *, repeat_s: float | None = None, **fields: Any) -> Request:
        """Create a request and send it, repeatedly until it is accepted or answered."""
        request = self._make(op, repeat_s, fields)
        self._post(request)
        return request

    def expect(self, op: str, *, repeat_s: float, **fields: Any) -> Request:
        """Create a request that is sent only if no answer comes within ``repeat_s`` seconds.

        It is sent earlier if a frame from the agent was damaged: that may have been the answer.
        """
        request = self._make(op, repeat_s, fields)
        self._set_timer(request)
        return request

    def send_unattended(self, op: str, **fields: Any) -> None:
        """Send a request without waiting for its answer."""
        self._forget_when_answered(self.open(op, **fields))

    async def signal(self, op: str, **fields: Any) -> None:
        """Send a request without waiting for its answer; return as soon as it is sent.

        Its answer is not acknowledged at once: the request starts work, which an acknowledgement
        would disturb.
        """
        request = self._make(op, None, fields)
        request.signal = True
        await self._send(request.message)
        self._forget_when_answered(request)
        self._set_timer(request)

    def _make(self, op: str, repeat_s: float | None, fields: Mapping[str, Any]) -> Request:
        if self.fault is not None:
            raise self.fault
        self.start()
        self._last_id += 1
        message = {"op": op, "id": self._last_id, **fields}
        request = Request(self._last_id, message, repeat_s or self.repeat_s)
        self.requests[request.id] = request
        return request

    def _forget_when_answered(self, request: Request) -> None:
        request.answer.add_done_callback(lambda _: self.close_request(request))

    def close_request(self, request: Request) -> None:
        """Forget a request that is answered or not waited for any more."""
        self.requests.pop(request.id, None)
        if request.timer is not None:
            request.timer.cancel()

    def notify(self, op: str, **fields: Any) -> None:
        """Send a message that has no answer."""
        self._spawn(self._send({"op": op, **fields}))

    def fail(self, fault: MachineFault) -> None:
        """Fail all pending requests; later requests fail at once."""
        if self.fault is None:
            self.fault = fault
            for request in list(self.requests.values()):
                request.fail(fault)
                self.close_request(request)
            if self._check_timer is not None:
                self._check_timer.cancel()

    async def close(self) -> None:
        """Close the connection; may be called again."""
        self.fail(MachineFault(f"the connection to the agent of {self.name} was closed"))
        for task in (self._reader, *self._sending):
            if task is not None and task is not asyncio.current_task():
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
        await self._channel.close()

    # --- sending

    def _post(self, request: Request) -> None:
        self._spawn(self._send(request.message))
        self._set_timer(request)

    def _set_timer(self, request: Request) -> None:
        if request.timer is not None:
            request.timer.cancel()
        loop = asyncio.get_running_loop()
        request.timer = loop.call_later(request.repeat_s, self._repeat, request)

    def _repeat(self, request: Request) -> None:
        if request.id in self.requests and not request.accepted and not request.answer.done():
            self._repeated += 1
            self._post(request)

    def _repeat_all(self) -> None:
        for request in list(self.requests.values()):
            self._repeat(request)

    def _spawn(self, sending: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(sending)
        self._sending.add(task)
        task.add_done_callback(self._sending.discard)

    async def _send(self, message: Mapping[str, Any]) -> None:
        # Compact: on an emulated serial line every byte costs the guest an exit.
        text = json.dumps(message, separators=(",", ":"))
        frame = encode(FrameKind.MESSAGE, self._next_seq, text.encode())
        self._next_seq += 1
        try:
            await self._channel.send(frame)
        except OSError as error:
            self.fail(self._lost_fault(f"sending failed: {error.strerror or error}"))

    # --- receiving

    async def _read(self) -> None:
        try:
            await self._read_all()
        except (InvalidMessage, TooMuchDamage) as error:
            self.fail(self.invalid(str(error)))
        except Exception as error:
            # Without its reader the client would wait for ever.
            self.fail(MachineFault(f"reading from the agent of {self.name} failed: {error!r}"))
            raise

    async def _read_all(self) -> None:
        while data := await self._channel.receive():
            self._received += len(data)
            damaged = self._decoder.damaged
            for frame in self._decoder.feed(data):
                self._take(frame)
            if self._decoder.damaged > damaged:
                self._recover()
            self._schedule_check()
        for frame in self._decoder.abandon():
            self._take(frame)
        self.fail(self._lost_fault("its channel ended"))

    def invalid(self, what: str) -> MachineFault:
        """Return the fault for an agent that sent an invalid message."""
        return MachineFault(
            f"the agent of {self.name} sent an invalid message: {what}",
            console_tail=self.noise_lines(),
        )

    def _lost_fault(self, how: str) -> MachineFault:
        return MachineFault(
            f"the agent of {self.name} is gone ({how}); last message: {self.last_message()}",
            console_tail=self.noise_lines(),
        )

    def _take(self, frame: Frame) -> None:
        if self.fault is not None:
            return
        message = None
        if frame.kind is FrameKind.MESSAGE:
            self._limiter.account(len(frame.payload))
            message = read_message(frame.payload)
            if message is None:
                # A terminal that is not in raw mode yet echoes the request.
                return
            if frame.seq == OUT_OF_BAND:
                self._dispatch(message)
                return
        for due in self._frames.put(frame):
            self._failed_resends = 0
            if due.kind is FrameKind.SERIES:
                self._last_message = ("a part of a series", time.monotonic())
                self._on_series(due.payload)
                self._unacknowledged += len(due.payload)
            else:
                self._dispatch(message if due is frame else read_message(due.payload))
        if self._unacknowledged >= _ACK_BYTES:
            self.acknowledge()
        if self._frames.held:
            self._request_missing()

    def _dispatch(self, message: dict[str, Any] | None) -> None:
        if message is None:
            return
        kind, id = message["type"], message.get("id")
        about = f" (request {id})" if id is not None else ""
        self._last_message = (plain_line(kind, 40) + about, time.monotonic())
        request = self.requests.get(id) if isinstance(id, int) else None
        if request is not None:
            request.accepted = True
        if kind == "fatal":
            self.fail(
                MachineFault(
                    f"the agent of {self.name} failed: {reason_of(message)}",
                    console_tail=self.noise_lines(),
                )
            )
        elif kind == "gone":
            self.fail(MachineFault(f"results of {self.name} were lost on the way", transient=True))
        elif kind == "damaged":
            self._repeat_all()
        elif kind == "ready" and request is not None and not request.ready.done():
            request.ready.set_result(None)
        self._on_message(message)
        if kind in ("result", "error") and not (request and request.signal):
            self.acknowledge()

    def acknowledge(self) -> None:
        """Acknowledge what has arrived, so that the agent need not keep it any more."""
        self._unacknowledged = 0
        if self._frames.arrived is not None and self.fault is None:
            self.notify("ack", seq=self._frames.arrived)

    # --- recovery of damaged and lost frames

    def _recover(self) -> None:
        """Recover from damage: request the frame, or repeat all requests if none arrived yet."""
        if self._frames.arrived is None:
            self._repeat_all()
        self._request_missing()

    def _request_missing(self) -> None:
        """Request the missing frames."""
        if self._failed_resends > _MOST_FAILED_RESENDS or self._holds_too_much():
            self.fail(MachineFault(f"results of {self.name} were lost on the way", transient=True))
        elif (
            self.fault is None and self._check_timer is None and (missing := self._frames.missing())
        ):
            self._resends += 1
            self._failed_resends += 1
            self.notify("resend", seqs=missing)
        self._schedule_check()

    def _holds_too_much(self) -> bool:
        return self._frames.held > _MOST_HELD or self._frames.held_bytes > _MOST_HELD_BYTES

    def _schedule_check(self) -> None:
        """Schedule a check if something is incomplete; otherwise no timer runs."""
        if self._check_timer is None and (self._decoder.partial or self._frames.held):
            loop = asyncio.get_running_loop()
            self._check_timer = loop.call_later(
                self._check_s, self._check_incomplete, self._received
            )

    def _check_incomplete(self, received: int) -> None:
        self._check_timer = None
        if self.fault is not None:
            return
        if self._decoder.partial and received == self._received:
            self._abandon()
        self._request_missing()

    def _abandon(self) -> None:
        """Give up on an incomplete frame, and request it if its number is known."""
        due = self._decoder.due
        try:
            for frame in self._decoder.abandon():
                self._take(frame)
        except (InvalidMessage, TooMuchDamage) as error:
            self.fail(self.invalid(str(error)))
            return
        # Without a later frame nothing else shows that this one is missing.
        if due is not None and due == self._frames.next and not self._frames.held:
            self._resends += 1
            self._failed_resends += 1
            self.notify("resend", seqs=[due])


def reason_of(message: Mapping[str, Any]) -> str:
    """Return the reason in an agent's error message, in one line."""
    return plain_line(str(message.get("reason")), _LONGEST_REASON)
