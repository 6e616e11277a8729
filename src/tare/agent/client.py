"""The host's side of the conversation with an agent."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tare.agent.answers import Hello, Outcome, hello_of
from tare.agent.barrier import Barrier
from tare.agent.channel import Channel
from tare.agent.clocktrust import ClockReading, as_tight_as_can_be
from tare.agent.connection import REPEAT_S, Connection, NoiseStats, Request, reason_of
from tare.agent.forms import OF_COUNTERS, forms_of
from tare.agent.load import LoadHandle
from tare.agent.message import Nonsense, whole
from tare.agent.series import Assembler, read_chunk
from tare.agent.spool import spool_folder
from tare.errors import MachineFault, WorkloadFault
from tare.plaintext import plain_line

__all__ = ["PROTOCOL", "AgentClient", "Hello", "Outcome", "ProgressCallback"]

PROTOCOL = 1
ProgressCallback = Callable[[float, Mapping[str, Any]], None]

_HELLO_REPEAT_S = 10.0
"""The agent says hello by itself; asking earlier fills the queues of a machine that boots."""
_CLOCK_EXCHANGES = 5
_LONGEST_UNIT = 40


class AgentClient:
    """Speaks with one agent over a channel.

    All methods raise :class:`tare.errors.MachineFault` when the agent is lost or silent for too
    long, and :class:`tare.errors.WorkloadFault` when it answers that something cannot be done.

    Args:
        channel: The byte stream that leads to the agent.
        name: The machine's name, for messages.
        repeat_s: Seconds after which a request without any sign of arrival is sent again.
        on_text: Told of what arrives between frames: on a shared console, the kernel's words.
    """

    def __init__(
        self,
        channel: Channel,
        *,
        name: str,
        repeat_s: float = REPEAT_S,
        on_text: Callable[[bytes], None] | None = None,
    ) -> None:
        self.name = name
        self._connection = Connection(
            channel, name, self._on_message, self._on_series, repeat_s, on_text
        )
        self._series: dict[int, Assembler] = {}
        self._progress: dict[int, ProgressCallback] = {}
        self._hello: Hello | None = None
        self._greeted = asyncio.Event()

    @property
    def noise(self) -> NoiseStats:
        """What went wrong on the channel so far and was put right."""
        return self._connection.noise

    async def hello(self, timeout_s: float) -> Hello:
        """Wait until the agent has introduced itself, up to ``timeout_s`` seconds."""
        if self._hello is not None:
            return self._hello
        request = self._connection.expect("hello", repeat_s=_HELLO_REPEAT_S)
        with _Held(self, request, stop=False):
            greeted = asyncio.ensure_future(self._greeted.wait())
            either: set[asyncio.Future[Any]] = {greeted, request.answer}
            try:
                async with asyncio.timeout(timeout_s):
                    await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            except TimeoutError:
                raise self._connection.silence(timeout_s) from None
            finally:
                greeted.cancel()
            if self._hello is None:
                self._outcome(request, "hello", await request.answer)
            if self._hello is None:
                raise self._connection.nonsense("its answer to hello is none")
            return self._hello

    async def hello_again(self, timeout_s: float = 10.0) -> Hello:
        """Ask the agent to introduce itself anew: what it told of its machine may have changed."""
        with self._asking("hello") as request:
            answer = await self._answer(request, timeout_s)
        if answer["type"] != "hello":
            raise self._connection.nonsense("its answer to hello is none")
        return hello_of(answer)

    def repeat_after(self, repeat_s: float) -> None:
        """Send requests without any sign of arrival again only after so many seconds from now on.

        Where time counts instructions an agent is slow by this computer's clock, and what is sent
        again comes in the middle of the work. What was damaged is sent again at once all the same.
        """
        self._connection.repeat_s = repeat_s

    async def run(
        self,
        workload: str,
        params: Mapping[str, Any],
        *,
        cpus: Sequence[int] = (),
        barrier: Barrier | None = None,
        deadline_s: float,
        on_progress: ProgressCallback | None = None,
    ) -> Outcome:
        """Carry out a workload and return what it found.

        Args:
            workload: Its name, as the agent knows it.
            params: Its parameters (plain numbers, base SI units or ns).
            cpus: CPUs, as the machine numbers them, that it may use; empty: any.
            barrier: Start together with the other runs of this barrier.
            deadline_s: Seconds after which the run is given up.
            on_progress: Told how far the work is (0 to 1), with further fields.
        """
        try:
            with self._running(workload, params, cpus, barrier is not None, on_progress) as request:
                try:
                    async with asyncio.timeout(deadline_s):
                        if barrier is not None:
                            await self._reach(request)
                            await barrier.arrive(lambda: self._go(request, barrier))
                        answer = await asyncio.shield(request.answer)
                except TimeoutError:
                    raise self._connection.silence(deadline_s) from None
                return self._outcome(request, workload, answer)
        except BaseException as error:
            if barrier is not None:
                barrier.abort(str(error))
            raise

    async def start_load(
        self,
        workload: str,
        params: Mapping[str, Any],
        *,
        cpus: Sequence[int] = (),
        barrier: Barrier | None = None,
        ready_s: float = 30.0,
    ) -> LoadHandle:
        """Start an endless workload; return when it is under way, at most ``ready_s`` s later.

        With a ``barrier`` it begins together with that barrier's other runs.
        """
        running = self._running(workload, params, cpus, True, None)
        request = running.__enter__()
        try:
            async with asyncio.timeout(ready_s):
                await self._reach(request)
                if barrier is None:
                    await self._go(request)
                else:
                    await barrier.arrive(lambda: self._go(request, barrier), load=True)
                if request.answer.done():
                    self._outcome(request, workload, request.answer.result())
                    raise WorkloadFault(f"{workload} on {self.name} ended at once")
        except BaseException as error:
            running.__exit__(type(error), error, None)
            if isinstance(error, TimeoutError):
                raise self._connection.silence(ready_s) from None
            raise
        return LoadHandle(request, lambda limit_s: self._end_load(request, workload, limit_s))

    async def clock(self, timeout_s: float = 10.0, *, as_often: bool = False) -> ClockReading:
        """Read the machine's clock between two readings of the host's; the tightest of some.

        It is asked again until two readings are about as tight, which shows that there is hardly
        a tighter one to be had, and :data:`_CLOCK_EXCHANGES` times at most.

        Args:
            timeout_s: Seconds that each answer may take.
            as_often: Ask as often every time, whatever the answers take. A machine whose time
                counts instructions then finds the same in every run, for each answer is work.
        """
        readings: list[ClockReading] = []
        while len(readings) < _CLOCK_EXCHANGES and (as_often or not as_tight_as_can_be(readings)):
            before = time.clock_gettime_ns(time.CLOCK_MONOTONIC_RAW)
            value = await self._ask("clock", timeout_s)
            after = time.clock_gettime_ns(time.CLOCK_MONOTONIC_RAW)
            try:
                guest = whole(value.get("monotonic_raw_ns"), "its clock")
                tsc = whole(value.get("tsc"), "its cycle counter")
            except Nonsense as error:
                raise self._connection.nonsense(str(error)) from None
            readings.append(ClockReading(guest, before, after, tsc))
        return min(readings, key=lambda reading: reading.width_ns)

    async def counters_start(
        self,
        *,
        interval_ms: int = 1000,
        threads: Sequence[tuple[int, int]] = (),
        timeout_s: float = 10.0,
    ) -> None:
        """Begin to sample the machine's counters.

        Args:
            interval_ms: Milliseconds between samples.
            threads: (process id, thread id) of threads whose run delay is sampled too.
            timeout_s: Seconds within which the agent must answer.
        """
        pairs = [list(pair) for pair in threads]
        await self._ask(
            "counters", timeout_s, action="start", interval_ms=interval_ms, threads=pairs
        )

    async def counters_stop(self, timeout_s: float = 30.0) -> Outcome:
        """End sampling; the outcome's one series ``counters`` has a column per counter."""
        with self._asking("counters", action="stop") as request:
            self._series[request.id] = Assembler(forms=OF_COUNTERS)
            answer = await self._answer(request, timeout_s)
            return self._outcome(request, "counters", answer)

    async def shutdown(self, timeout_s: float = 5.0) -> None:
        """Ask the agent to end, and with it a machine of its own."""
        if self._connection.fault is None:
            # An agent whose channel ends has done what it was asked.
            with contextlib.suppress(MachineFault):
                await self._ask("shutdown", timeout_s)

    def fail(self, fault: MachineFault) -> None:
        """End everything under way with a fault that is known from elsewhere."""
        self._connection.fail(fault)

    async def close(self) -> None:
        """Close the channel; whatever is under way fails. May be called again."""
        await self._connection.close()

    # --- how the above is done

    def _asking(self, op: str, **fields: Any) -> contextlib.AbstractContextManager[Request]:
        return _Held(self, self._connection.open(op, **fields), stop=False)

    def _running(
        self,
        workload: str,
        params: Mapping[str, Any],
        cpus: Sequence[int],
        barrier: bool,
        on_progress: ProgressCallback | None,
    ) -> contextlib.AbstractContextManager[Request]:
        request = self._connection.open(
            "run", workload=workload, params=dict(params), cpus=list(cpus), barrier=barrier
        )
        self._series[request.id] = Assembler(forms=forms_of(workload, params))
        if on_progress is not None:
            self._progress[request.id] = on_progress
        return _Held(self, request, stop=True)

    def _release(self, request: Request, stop: bool) -> None:
        if stop and not request.answer.done() and self._connection.fault is None:
            # Nobody waits for it any more, and it must not disturb what comes next.
            self._connection.leave("stop", target=request.id)
        self._connection.close_request(request)
        if (assembler := self._series.pop(request.id, None)) is not None:
            assembler.close()
        self._progress.pop(request.id, None)

    async def _ask(self, op: str, timeout_s: float, **fields: Any) -> dict[str, Any]:
        with self._asking(op, **fields) as request:
            return self._outcome(request, op, await self._answer(request, timeout_s)).value

    async def _answer(self, request: Request, timeout_s: float) -> dict[str, Any]:
        try:
            async with asyncio.timeout(timeout_s):
                return await asyncio.shield(request.answer)
        except TimeoutError:
            raise self._connection.silence(timeout_s) from None

    async def _reach(self, request: Request) -> None:
        """Wait until a run is ready, or has ended without."""
        either: set[asyncio.Future[Any]] = {request.ready, request.answer}
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        if not request.ready.done() and request.answer.done():
            self._outcome(request, str(request.message["workload"]), request.answer.result())

    async def _go(self, request: Request, barrier: Barrier | None = None) -> None:
        """Send the start signal; it is repeated until the agent has answered it."""
        said = {"together": True} if barrier is not None and barrier.parties > 1 else {}
        await self._connection.signal("go", target=request.id, **said)

    async def _end_load(self, request: Request, workload: str, timeout_s: float) -> Outcome:
        with _Held(self, request, stop=True):
            if not request.answer.done():
                await self._ask("stop", timeout_s, target=request.id)
            return self._outcome(request, workload, await self._answer(request, timeout_s))

    def _outcome(self, request: Request, what: str, answer: dict[str, Any]) -> Outcome:
        if answer["type"] == "error":
            raise WorkloadFault(f"{what} on {self.name}: {reason_of(answer)}")
        value, timing = answer.get("value"), answer.get("timing") or {}
        if answer["type"] != "result" or value is None:
            raise self._connection.nonsense(f"its answer to {what} has no value")
        assembler = self._series.get(request.id)
        try:
            series = assembler.finish() if assembler is not None else ()
        except ValueError as error:
            raise self._connection.nonsense(str(error)) from None
        except OSError as error:
            raise self._no_room(error) from error
        return Outcome(value, series, timing)

    def _no_room(self, error: OSError) -> MachineFault:
        return MachineFault(
            f"the series of {self.name} cannot be kept: {error.strerror or error}",
            f"make room in {spool_folder()}, or set TMPDIR",
        )

    def _on_message(self, message: dict[str, Any]) -> None:
        kind, id = message["type"], message.get("id")
        request = self._connection.requests.get(id) if isinstance(id, int) else None
        if kind == "hello":
            self._greet(message)
        elif kind == "progress" and request is not None:
            self._tell_progress(request.id, message)
        answers = request is not None and kind in ("hello", "result", "error")
        if answers and request is not None and not request.answer.done():
            request.answer.set_result(message)

    def _greet(self, message: dict[str, Any]) -> None:
        if message.get("protocol") != PROTOCOL:
            versions = f"protocol {message.get('protocol')!r}, and this program {PROTOCOL}"
            self.fail(MachineFault(f"the agent of {self.name} speaks {versions}"))
            return
        self._hello = hello_of(message)
        self._greeted.set()

    def _tell_progress(self, id: int, message: dict[str, Any]) -> None:
        callback = self._progress.get(id)
        if callback is not None:
            fields = {
                key: plain_line(value, _LONGEST_UNIT) if isinstance(value, str) else value
                for key, value in message.items()
                if key not in ("type", "id", "done")
            }
            callback(min(max(float(message.get("done") or 0.0), 0.0), 1.0), fields)

    def _on_series(self, payload: bytes) -> None:
        try:
            chunk = read_chunk(payload)
            assembler = self._series.get(chunk.id)
            if assembler is not None:
                assembler.add(chunk)
        except ValueError as error:
            self.fail(self._connection.nonsense(str(error)))
        except OSError as error:
            self.fail(self._no_room(error))


class _Held:
    """A request that is let go of in the end."""

    def __init__(self, client: AgentClient, request: Request, *, stop: bool) -> None:
        self._client = client
        self._request = request
        self._stop = stop

    def __enter__(self) -> Request:
        return self._request

    def __exit__(self, *_: object) -> None:
        self._client._release(self._request, self._stop)
