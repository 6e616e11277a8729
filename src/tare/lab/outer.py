"""The QEMU that is a lab host: started, watched, pinned to CPUs, and ended."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
from collections.abc import Sequence
from typing import Any

from tare.errors import HostFroze, MachineFault, TareError
from tare.hosts import Host, Ledger, OwnedProcess, start_owned
from tare.lab.command import LabPaths
from tare.lab.host_files import FAILED, READY
from tare.platforms.linux.console import Console
from tare.platforms.linux.sockets import reached
from tare.platforms.qemu.qmp import Monitor

_GONE_S = 2.0
_QUIT_S = 3.0
_FORWARD = re.compile(r"TCP\[HOST_FORWARD\]\s+\d+\s+127\.0\.0\.1\s+(\d+)")


class Outer:
    """The QEMU of a lab host, created and started by :meth:`start`."""

    def __init__(self, host: Host, places: LabPaths, name: str, process: OwnedProcess) -> None:
        self.name = name
        self.died: asyncio.Future[MachineFault] = asyncio.get_running_loop().create_future()
        """Set if QEMU ends, its kernel panics or it freezes, unless it was asked to end."""
        self._host = host
        self._places = places
        self._process = process
        self._console = Console(lines=60)
        self._monitor: Monitor | None = None
        self._streams: list[asyncio.StreamWriter] = []
        self._tasks: list[asyncio.Task[None]] = []
        self._reported = asyncio.Event()
        self._ready = False
        self._failed = ""
        self._stopping = False
        self._watch = asyncio.create_task(self._await_end())

    @classmethod
    async def start(
        cls, host: Host, ledger: Ledger, argv: Sequence[str], places: LabPaths, name: str
    ) -> Outer:
        """Start QEMU with its guest paused, and connect to its console and monitor.

        Raises:
            MachineFault: It ended, or does not answer.
        """
        process = await start_owned(host, ledger, argv, log=places.errors)
        outer = cls(host, places, name, process)
        try:
            await outer._listen()
        except (MachineFault, OSError) as error:
            # If QEMU ended, its own message is more useful than a broken stream.
            await asyncio.wait({outer.died}, timeout=_GONE_S)
            await outer.stop()
            if outer.died.done():
                raise outer.died.result() from error
            raise MachineFault(f"{name}: QEMU cannot be steered: {error}") from error
        except BaseException:
            await outer.stop()
            raise
        return outer

    @property
    def pid(self) -> int:
        """The id of QEMU's process."""
        return self._process.pid

    def console_tail(self) -> tuple[str, ...]:
        """Return the last lines of the console, oldest first."""
        return self._console.tail()

    def type(self, text: str) -> None:
        """Send text to the console as keyboard input."""
        self._streams[0].write(text.encode())

    async def _listen(self) -> None:
        console, monitor = await asyncio.gather(
            reached(self._host, self._places.console, self.died),
            reached(self._host, self._places.qmp, self.died),
        )
        self._streams.append(console[1])
        self._tasks += [
            asyncio.create_task(self._follow(console[0])),
            asyncio.create_task(self._await_panic()),
        ]
        self._monitor = Monitor(self.name, monitor)
        await self._monitor.open()

    @property
    def monitor(self) -> Monitor:
        """QEMU's monitor."""
        if self._monitor is None:
            raise ValueError(f"{self.name} was not started")
        return self._monitor

    async def ssh_port(self) -> int:
        """Return the port of this computer's loopback that leads to the SSH server inside."""
        answer = str(
            await self.monitor.execute("human-monitor-command", **{"command-line": "info usernet"})
        )
        found = _FORWARD.search(answer)
        if found is None:
            raise MachineFault(f"{self.name}: QEMU forwards no port to its SSH server: {answer}")
        return int(found[1])

    async def go(self, cpus: Sequence[int]) -> tuple[int, ...]:
        """Bind each vCPU to one of ``cpus`` in turn (none: anywhere), and let the guest run.

        A thread that several vCPUs share may run on each of their CPUs.

        Returns:
            The thread id of each vCPU.
        """
        threads = await self.monitor.vcpu_threads()
        places: dict[int, set[int]] = {}
        for number, thread in enumerate(threads if cpus else ()):
            places.setdefault(thread, set()).add(cpus[number % len(cpus)])
        for thread, own in places.items():
            with contextlib.suppress(ProcessLookupError):
                os.sched_setaffinity(thread, own)
        await self.monitor.execute("cont")
        return threads

    async def ready(self, timeout_s: float) -> None:
        """Wait until the lab host reports that it is ready.

        Raises:
            MachineFault: It ended, reports that it failed, or reports nothing in time.
        """
        reported = asyncio.ensure_future(self._reported.wait())
        either: set[asyncio.Future[Any]] = {reported, self.died}
        try:
            await asyncio.wait(either, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
        finally:
            reported.cancel()
        if self.died.done():
            raise self.died.result()
        if self._ready:
            return
        reason = self._failed or f"it was not ready within {timeout_s:g} s"
        raise self.fault(reason, transient=not self._failed)

    def fault(self, reason: str, hint: str = "", *, transient: bool = False) -> MachineFault:
        """Return a fault with the last lines of the console."""
        tail = self.console_tail()
        last = f"; last console line: {tail[-1]}" if tail and not self._failed else ""
        return MachineFault(
            f"{self.name}: {reason}{last}", hint, console_tail=tail, transient=transient
        )

    def fell_silent(self, fault: TareError) -> None:
        """Record that the connection to the emulated computer was lost.

        Args:
            fault: The reason; only HostFroze means that the computer froze.
        """
        if self._stopping or self.died.done() or not isinstance(fault, HostFroze):
            return
        tail = self.console_tail()
        last = f"; last console line: {tail[-1]}" if tail else ""
        self.died.set_result(HostFroze(f"{fault.message}{last}", console_tail=tail))

    async def _follow(self, reader: asyncio.StreamReader) -> None:
        held = ""
        with contextlib.suppress(OSError), self._places.log.open("ab", buffering=0) as log:
            while data := await reader.read(1 << 16):
                log.write(data)
                self._console.feed(data)
                if self._reported.is_set():
                    continue
                held = (held + data.decode(errors="replace"))[-4096:]
                self._look(held)

    def _look(self, text: str) -> None:
        # A reason counts only once its line is complete.
        failed = re.search(re.escape(FAILED) + r"([^\r\n]*)[\r\n]", text)
        self._ready = READY in text
        self._failed = failed[1].strip() if failed else ""
        if self._ready or self._failed:
            self._reported.set()

    async def _await_panic(self) -> None:
        await self._console.panicked.wait()
        await asyncio.sleep(_GONE_S / 2)
        self._fail(f"its kernel panicked: {self._console.panic}")

    async def _await_end(self) -> None:
        code = await self._process.wait()
        if self._tasks:
            await asyncio.wait(self._tasks[:1], timeout=_GONE_S)
        self._fail(await self._why(code))

    def _fail(self, reason: str) -> None:
        if not self._stopping and not self.died.done():
            self.died.set_result(self.fault(reason, transient=True))

    async def _why(self, code: int) -> str:
        if self._console.panic:
            return f"its kernel panicked: {self._console.panic}"
        if code < 0:
            known = {number.value: number.name for number in signal.Signals}
            # If QEMU aborted by itself, it printed the reason.
            errors = await self._errors() if -code == signal.SIGABRT else ""
            why = f": {errors}" if errors else ""
            return f"its QEMU was killed by {known.get(-code, f'signal {-code}')}{why}"
        if code:
            reason = await self._errors() or "it did not report a reason"
            return f"its QEMU ended with code {code}: {reason}"
        ended = self._monitor.ended_by if self._monitor is not None else ""
        words = {"guest-shutdown": "it powered itself off", "guest-reset": "it restarted itself"}
        return words.get(ended, "its QEMU ended unexpectedly")

    async def _errors(self) -> str:
        with contextlib.suppress(OSError):
            lines = (await self._host.read(self._places.errors)).decode(errors="replace")
            errors = [line for line in lines.splitlines() if "warning:" not in line][-3:]
            return "; ".join(line.removeprefix("qemu-system-x86_64: ") for line in errors)
        return ""

    async def stop(self) -> None:
        """Ask QEMU to quit, then kill it; may be called again."""
        self._stopping = True
        if self._process.returncode is None and self._monitor is not None:
            with contextlib.suppress(TareError, OSError, TimeoutError):
                async with asyncio.timeout(_QUIT_S):
                    await self._monitor.execute("quit")
                    await asyncio.shield(self._watch)
        if self._process.returncode is None:
            await self._process.kill()
        await self._watch
        if self._monitor is not None:
            await self._monitor.close()
        for task in self._tasks:
            task.cancel()
        for stream in self._streams:
            stream.close()
