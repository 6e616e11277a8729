"""The client of an agent, with its validated answers and the handles of endless loads."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tare.agent.barrier import Barrier
from tare.agent.channel import Channel
from tare.agent.clocktrust import ClockReading, agree_in_width
from tare.agent.connection import REPEAT_S, Connection, NoiseStats, Request, reason_of
from tare.agent.expected_series import COUNTER_SERIES, expected_series
from tare.agent.message import InvalidMessage, check_whole_number
from tare.agent.series import Assembler, Series, read_chunk, spool_folder
from tare.errors import MachineFault, WorkloadFault
from tare.plaintext import plain_line


@dataclass(frozen=True)
class Hello:
    """An agent's introduction.

    Args:
        agent: Its version.
        role: ``init`` (PID 1 of a machine of its own) or ``process``.
        proof: The environment proof.
        workloads: Names of the workloads it can run.
        boot: Maps each stage of the boot to the time of its end, in ns of the machine's
            CLOCK_MONOTONIC_RAW.
    """

    agent: str
    role: str
    proof: Mapping[str, Any]
    workloads: tuple[str, ...] = ()
    boot: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Outcome:
    """The result of a workload.

    Args:
        value: The agent's result object.
        series: Binary series, in order of arrival.
        timing: ``accepted_ns``, ``started_ns`` (all prepared, barrier passed) and ``ended_ns`` on
            the machine's CLOCK_MONOTONIC_RAW. ``stolen_ns`` is the steal time of the machine's
            CPUs during the run; it is missing unless the machine is known to report steal time.
            Empty for requests other than runs.
    """

    value: dict[str, Any]
    series: tuple[Series, ...] = ()
    timing: Mapping[str, int] = field(default_factory=dict)


def hello_of(message: Mapping[str, Any]) -> Hello:
    """Return the introduction in a message that :mod:`tare.agent.message` has validated."""
    return Hello(
        agent=message.get("agent") or "",
        role=message.get("role") or "",
        proof=message.get("proof") or {},
        workloads=tuple(message.get("workloads") or ()),
        boot=message.get("boot") or {},
    )


StopLoad = Callable[[float], Awaitable[Outcome]]
"""Stops a load. The argument is the time limit in seconds; see :meth:`LoadHandle.stop`."""


class LoadHandle:
    """A running endless load.

    Args:
        request: The request that started the load; it is answered when the load ends.
        stop: Stops the load.
    """

    def __init__(self, request: Request, stop: StopLoad) -> None:
        self._request = request
        self._stop = stop

    @property
    def ended(self) -> bool:
        """Whether the load has ended by itself, which is a failure."""
        return self._request.answer.done()

    @property
    def failure(self) -> str:
        """The agent's reason why the load failed; empty if it did not, or if the agent is lost."""
        answer = self._request.answer
        if not answer.done() or answer.cancelled() or answer.exception() is not None:
            return ""
        return reason_of(answer.result()) if answer.result()["type"] == "error" else ""

    def on_end(self, callback: Callable[[], None]) -> None:
        """Call ``callback`` when the load ends, by itself or because it was stopped."""
        self._request.answer.add_done_callback(lambda _: callback())

    async def stop(self, timeout_s: float = 30.0) -> Outcome:
        """Stop the load, and return its result.

        Raises:
            MachineFault: The agent is lost, or does not answer within ``timeout_s`` seconds.
            WorkloadFault: The load had failed.
        """
        return await self._stop(timeout_s)


__all__ = ["PROTOCOL", "AgentClient", "Hello", "Outcome", "ProgressCallback"]

PROTOCOL = 1
ProgressCallback = Callable[[float, Mapping[str, Any]], None]

_HELLO_REPEAT_S = 10.0
"""Seconds before hello is requested. The agent sends it unprompted, and earlier requests fill the
queues of a booting machine."""
_CLOCK_EXCHANGES = 5
_LONGEST_UNIT = 40


class AgentClient:
    """Sends requests to one agent over a channel.

    All methods raise :class:`tare.errors.MachineFault` when the agent is lost or silent for too
    long, and :class:`tare.errors.WorkloadFault` when it answers that something cannot be done.

    Args:
        channel: The byte stream to the agent.
        name: The machine's name, for messages.
        repeat_s: Seconds after which a request without any sign of arrival is sent again.
        on_text: Called with the bytes between frames: on a shared console, kernel messages.
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
        """The errors on the channel so far that were corrected."""
        return self._connection.noise

    async def hello(self, timeout_s: float) -> Hello:
        """Wait until the agent has introduced itself, up to ``timeout_s`` seconds."""
        if self._hello is not None:
            return self._hello
        request = self._connection.expect("hello", repeat_s=_HELLO_REPEAT_S)
        with _RequestScope(self, request, stop=False):
            greeted = asyncio.ensure_future(self._greeted.wait())
            either: set[asyncio.Future[Any]] = {greeted, request.answer}
            try:
                async with asyncio.timeout(timeout_s):
                    await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            except TimeoutError:
                raise self._connection.timeout_fault(timeout_s) from None
            finally:
                greeted.cancel()
            if self._hello is None:
                self._outcome(request, "hello", await request.answer)
            if self._hello is None:
                raise self._connection.invalid("it did not answer hello with its introduction")
            return self._hello

    async def hello_again(self, timeout_s: float = 10.0) -> Hello:
        """Request a new introduction, because the proof of the machine may have changed."""
        with self._asking("hello") as request:
            answer = await self._answer(request, timeout_s)
        if answer["type"] != "hello":
            raise self._connection.invalid("it did not answer hello with its introduction")
        return hello_of(answer)

    def repeat_after(self, repeat_s: float) -> None:
        """Set after how many seconds an unacknowledged request is sent again.

        An agent whose time counts instructions is slow by this computer's clock, and a repeated
        request would arrive in the middle of its work. Damaged frames are still repeated at once.
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
        """Run a workload and return its result.

        Args:
            workload: Its name, as the agent knows it.
            params: Its parameters (plain numbers, base SI units or ns).
            cpus: CPUs, as the machine numbers them, that it may use; empty: any.
            barrier: Start together with the other runs of this barrier.
            deadline_s: Seconds after which the run fails.
            on_progress: Called with the completed share (0 to 1) and further fields.
        """
        try:
            with self._running(workload, params, cpus, barrier is not None, on_progress) as request:
                try:
                    async with asyncio.timeout(deadline_s):
                        if barrier is not None:
                            await self._wait_ready(request)
                            await barrier.arrive(lambda: self._go(request, barrier))
                        answer = await asyncio.shield(request.answer)
                except TimeoutError:
                    raise self._connection.timeout_fault(deadline_s) from None
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
        """Start an endless workload; return when it runs, at most ``ready_s`` s later.

        With a ``barrier`` it starts together with that barrier's other runs.
        """
        running = self._running(workload, params, cpus, True, None)
        request = running.__enter__()
        try:
            async with asyncio.timeout(ready_s):
                await self._wait_ready(request)
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
                raise self._connection.timeout_fault(ready_s) from None
            raise
        return LoadHandle(request, lambda limit_s: self._end_load(request, workload, limit_s))

    async def clock(self, timeout_s: float = 10.0, *, as_often: bool = False) -> ClockReading:
        """Read the machine's clock several times, and return the tightest reading.

        Each reading is taken between two readings of the host's clock. Reading stops when two
        readings are about equally tight, because a tighter one is then unlikely, and after
        :data:`_CLOCK_EXCHANGES` readings at the latest.

        Args:
            timeout_s: Seconds that each answer may take.
            as_often: Always take :data:`_CLOCK_EXCHANGES` readings. Each answer is work, so a
                machine whose time counts instructions then does the same work in every run.
        """
        readings: list[ClockReading] = []
        while len(readings) < _CLOCK_EXCHANGES and (as_often or not agree_in_width(readings)):
            before = time.clock_gettime_ns(time.CLOCK_MONOTONIC_RAW)
            value = await self._ask("clock", timeout_s)
            after = time.clock_gettime_ns(time.CLOCK_MONOTONIC_RAW)
            try:
                guest = check_whole_number(value.get("monotonic_raw_ns"), "its clock")
                tsc = check_whole_number(value.get("tsc"), "its cycle counter")
            except InvalidMessage as error:
                raise self._connection.invalid(str(error)) from None
            readings.append(ClockReading(guest, before, after, tsc))
        return min(readings, key=lambda reading: reading.width_ns)

    async def counters_start(
        self,
        *,
        interval_ms: int = 1000,
        threads: Sequence[tuple[int, int]] = (),
        timeout_s: float = 10.0,
    ) -> None:
        """Start sampling the machine's counters.

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
        """Stop sampling; the result's only series ``counters`` has a column per counter."""
        with self._asking("counters", action="stop") as request:
            self._series[request.id] = Assembler(expected=COUNTER_SERIES)
            answer = await self._answer(request, timeout_s)
            return self._outcome(request, "counters", answer)

    async def shutdown(self, timeout_s: float = 5.0) -> None:
        """Ask the agent to end; if it is the machine's init, the machine ends, too."""
        if self._connection.fault is None:
            # A closed channel shows that the agent has ended, too.
            with contextlib.suppress(MachineFault):
                await self._ask("shutdown", timeout_s)

    def fail(self, fault: MachineFault) -> None:
        """Fail all pending requests, with a fault that was detected elsewhere."""
        self._connection.fail(fault)

    async def close(self) -> None:
        """Close the channel and fail all pending requests. May be called again."""
        await self._connection.close()

    # --- implementation

    def _asking(self, op: str, **fields: Any) -> contextlib.AbstractContextManager[Request]:
        return _RequestScope(self, self._connection.open(op, **fields), stop=False)

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
        self._series[request.id] = Assembler(expected=expected_series(workload, params))
        if on_progress is not None:
            self._progress[request.id] = on_progress
        return _RequestScope(self, request, stop=True)

    def _release(self, request: Request, stop: bool) -> None:
        if stop and not request.answer.done() and self._connection.fault is None:
            # Its result is not needed any more, and it must not disturb the next run.
            self._connection.send_unattended("stop", target=request.id)
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
            raise self._connection.timeout_fault(timeout_s) from None

    async def _wait_ready(self, request: Request) -> None:
        """Wait until a run is ready; raise if it ended with an error before."""
        either: set[asyncio.Future[Any]] = {request.ready, request.answer}
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        if not request.ready.done() and request.answer.done():
            self._outcome(request, str(request.message["workload"]), request.answer.result())

    async def _go(self, request: Request, barrier: Barrier | None = None) -> None:
        """Send the start signal, and repeat it until the agent has answered."""
        fields = {"together": True} if barrier is not None and barrier.parties > 1 else {}
        await self._connection.signal("go", target=request.id, **fields)

    async def _end_load(self, request: Request, workload: str, timeout_s: float) -> Outcome:
        with _RequestScope(self, request, stop=True):
            if not request.answer.done():
                await self._ask("stop", timeout_s, target=request.id)
            return self._outcome(request, workload, await self._answer(request, timeout_s))

    def _outcome(self, request: Request, what: str, answer: dict[str, Any]) -> Outcome:
        if answer["type"] == "error":
            raise WorkloadFault(f"{what} on {self.name}: {reason_of(answer)}")
        value, timing = answer.get("value"), answer.get("timing") or {}
        if answer["type"] != "result" or value is None:
            raise self._connection.invalid(f"its answer to {what} has no value")
        assembler = self._series.get(request.id)
        try:
            series = assembler.finish() if assembler is not None else ()
        except ValueError as error:
            raise self._connection.invalid(str(error)) from None
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
            self._report_progress(request.id, message)
        answers = request is not None and kind in ("hello", "result", "error")
        if answers and request is not None and not request.answer.done():
            request.answer.set_result(message)

    def _greet(self, message: dict[str, Any]) -> None:
        if message.get("protocol") != PROTOCOL:
            versions = f"protocol {message.get('protocol')!r}, and this program {PROTOCOL}"
            self.fail(MachineFault(f"the agent of {self.name} has {versions}"))
            return
        self._hello = hello_of(message)
        self._greeted.set()

    def _report_progress(self, id: int, message: dict[str, Any]) -> None:
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
            self.fail(self._connection.invalid(str(error)))
        except OSError as error:
            self.fail(self._no_room(error))


class _RequestScope:
    """Closes a request at the end of the block; with ``stop``, stops its run."""

    def __init__(self, client: AgentClient, request: Request, *, stop: bool) -> None:
        self._client = client
        self._request = request
        self._stop = stop

    def __enter__(self) -> Request:
        return self._request

    def __exit__(self, *_: object) -> None:
        self._client._release(self._request, self._stop)
