"""Time that firmware and the rest of a host take from its CPUs, by the kernel's own tracers.

``osnoise`` reads the clock in a loop on each CPU and notes each gap. With ``OSNOISE_IRQ_DISABLE``
nothing of the kernel can cause a gap, so what remains is firmware, non-maskable interrupts, or a
hypervisor below. ``hwlat`` is the older tracer for that: it reports only the longest gap of each
window. Sources: the kernel's Documentation/trace/osnoise-tracer.rst and hwlat_detector.rst; ``rtla
hwnoise`` measures the same way. The format of the lines is in kernel/trace/trace_output.c.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from tare.errors import MachineFault, TareError
from tare.events.parts import CpuNoise
from tare.hosts.contract import Host
from tare.hosts.ledger.ledger import Ledger
from tare.hosts.ledger.settings import ChoiceSetting, FileSetting, changed
from tare.hosts.trace.recorder import cpu_mask
from tare.hosts.trace.tracefs import NoTracing, instance_in, tracing_root
from tare.study.planning.host_cpus import cpu_words

OSNOISE, HWLAT = "osnoise", "hwlat"
THRESHOLD_US = 5
"""The smallest gap, in µs, between two readings of the clock that counts: ``osnoise``'s default."""
PERIOD_US, RUNTIME_US, WIDTH_US = 100_000, 75_000, 50_000
"""How often each CPU is looked at, and for how long: with ``osnoise``, and with ``hwlat``. Other
work of the host waits for that long, so it is a tenth of the tracers' defaults."""
_BUFFER_KIB = 256
_IRQS_OFF = ("OSNOISE_IRQ_DISABLE", "NO_OSNOISE_IRQ_DISABLE")
_OSNOISE_LINE = re.compile(
    r"\[(?P<cpu>\d{1,6})\] [^:]{1,40}: (?P<runtime>\d{1,18}) +(?P<noise>\d{1,18}) +\d{1,3}\.\d{5} "
    r"+(?P<longest>\d{1,18}) +(?P<hardware>\d{1,9}) +(?P<nmis>\d{1,9}) +(?P<irqs>\d{1,9}) "
    r"+(?P<softirqs>\d{1,9}) +(?P<threads>\d{1,9})$",
    re.MULTILINE,
)
_HWLAT_LINE = re.compile(
    r"\[(?P<cpu>\d{1,6})\] [^:]{1,40}: #\d{1,9} +inner/outer\(us\): +(?P<inner>\d{1,18})/"
    r"(?P<outer>\d{1,18}) +ts:-?\d{1,18}\.\d{9}(?: count:(?P<count>\d{1,9}))?"
    r"(?: nmi-total:\d{1,18})?(?: nmi-count:(?P<nmis>\d{1,9}))?$",
    re.MULTILINE,
)


@dataclass(frozen=True)
class Noise:
    """The noise that was measured on a host's CPUs.

    Args:
        by: The tracer that measured the firmware; empty if the kernel lacks both tracers.
        firmware: Gaps while interrupts were off, by CPU; empty if that could not be measured.
        system: All gaps while interrupts were on, by CPU; empty if that could not be measured.
    """

    by: str
    firmware: tuple[CpuNoise, ...] = ()
    system: tuple[CpuNoise, ...] = ()


def parse_osnoise(text: str) -> tuple[CpuNoise, ...]:
    """Add up by CPU the lines of ``osnoise``, which writes one line for each period and CPU."""
    found: dict[int, CpuNoise] = {}
    for line in _OSNOISE_LINE.finditer(text):
        cpu = int(line["cpu"])
        had = found.get(cpu, CpuNoise(cpu=cpu))
        found[cpu] = CpuNoise(
            cpu=cpu,
            watched_s=had.watched_s + int(line["runtime"]) * 1e-6,
            taken_s=had.taken_s + int(line["noise"]) * 1e-6,
            longest_s=max(had.longest_s, int(line["longest"]) * 1e-6),
            hardware=had.hardware + int(line["hardware"]),
            nmis=had.nmis + int(line["nmis"]),
            irqs=had.irqs + int(line["irqs"]),
            softirqs=had.softirqs + int(line["softirqs"]),
            threads=had.threads + int(line["threads"]),
        )
    return tuple(found[cpu] for cpu in sorted(found))


def parse_hwlat(text: str, watched_s: Mapping[int, float]) -> tuple[CpuNoise, ...]:
    """Add up by CPU the lines of ``hwlat``, which writes one for each window with a gap.

    A line has the longest gap and the number of gaps, so the sum of times is a lower bound.

    Args:
        text: The lines.
        watched_s: The seconds for which each CPU was watched.
    """
    found = {cpu: CpuNoise(cpu=cpu, watched_s=seconds) for cpu, seconds in watched_s.items()}
    for line in _HWLAT_LINE.finditer(text):
        cpu = int(line["cpu"])
        had = found.get(cpu, CpuNoise(cpu=cpu))
        longest = max(int(line["inner"]), int(line["outer"])) * 1e-6
        # Kernels before 5.9 report no count; there is at least one gap.
        gaps = max(1, int(line["count"] or 1))
        taken_s = longest + (gaps - 1) * min(longest, THRESHOLD_US * 1e-6)
        found[cpu] = CpuNoise(
            cpu=cpu,
            # A long gap makes its window longer.
            watched_s=max(had.watched_s, had.taken_s + taken_s),
            taken_s=had.taken_s + taken_s,
            longest_s=max(had.longest_s, longest),
            hardware=had.hardware + gaps,
            nmis=had.nmis + int(line["nmis"] or 0),
        )
    return tuple(found[cpu] for cpu in sorted(found))


async def measure_noise(host: Host, ledger: Ledger, cpus: Sequence[int], seconds: float) -> Noise:
    """Measure the time that firmware takes from CPUs, and then the time that other work takes.

    The tracers' settings are shared by all their users; they are recorded in the ledger, and
    restored.

    Args:
        host: The host.
        ledger: Records everything that is created and changed there.
        cpus: The CPUs.
        seconds: The duration of each of the two measurements.

    Raises:
        NoTracing: The host cannot measure noise, or another process uses a tracer there.
    """
    async with tracing_root(host, ledger) as root:
        available = set((await host.read(root / "available_tracers")).decode().split())
        if not available & {OSNOISE, HWLAT}:
            raise NoTracing(
                "this kernel was built without the tracers osnoise and hwlat "
                "(CONFIG_OSNOISE_TRACER, CONFIG_HWLAT_TRACER)"
            )
        await _require_unused(host, root)
        measuring = NoiseMeasurement(host, ledger, root, tuple(sorted(cpus)), seconds)
        system = await measuring.osnoise() if OSNOISE in available else ()
        if OSNOISE in available and await measuring.can_disable_irqs():
            return Noise(OSNOISE, await measuring.osnoise(irqs_off=True), system)
        if HWLAT in available:
            return Noise(HWLAT, await measuring.hwlat(), system)
        return Noise("", (), system)


async def _require_unused(host: Host, root: Path) -> None:
    """Raise NoTracing if a tracer is in use: it would be disturbed, and would be measured."""
    used = await host.first_lines([f"{root}/current_tracer", f"{root}/instances/*/current_tracer"])
    for path, tracer in sorted(used.items()):
        if tracer not in ("", "nop"):
            instance = PurePosixPath(path).parent
            where = "" if instance == PurePosixPath(root) else f" in its instance {instance.name}"
            raise NoTracing(
                f"another process uses the kernel's tracer {tracer}{where}; it is left undisturbed"
            )


@dataclass(frozen=True)
class NoiseMeasurement:
    """Both tracers on some CPUs of a host, for some seconds each; see :func:`measure_noise`."""

    host: Host
    ledger: Ledger
    root: Path
    cpus: tuple[int, ...]
    seconds: float

    async def can_disable_irqs(self) -> bool:
        """Return whether this kernel's ``osnoise`` can measure with interrupts off."""
        options = self.root / OSNOISE / "options"
        if not await self.host.exists(options):
            return False
        words = (await self.host.read(options)).decode().split()
        return any(choice in words for choice in _IRQS_OFF)

    async def osnoise(self, *, irqs_off: bool = False) -> tuple[CpuNoise, ...]:
        """Measure the CPUs with ``osnoise``."""
        folder = self.root / OSNOISE
        settings = [
            (FileSetting(self.host, self.root / "tracing_thresh"), str(THRESHOLD_US)),
            (FileSetting(self.host, folder / "cpus"), cpu_words(self.cpus)),
            (FileSetting(self.host, folder / "stop_tracing_us"), "0"),
            (FileSetting(self.host, folder / "stop_tracing_total_us"), "0"),
            # A runtime above the period is refused, in both directions.
            (FileSetting(self.host, folder / "runtime_us"), str(RUNTIME_US)),
            (FileSetting(self.host, folder / "period_us"), str(PERIOD_US)),
        ]
        if await self.can_disable_irqs():
            choice = _IRQS_OFF[0] if irqs_off else _IRQS_OFF[1]
            settings.append((ChoiceSetting(self.host, folder / "options", _IRQS_OFF), choice))
        text, _ = await self._traced(OSNOISE, settings)
        return self._complete(parse_osnoise(text))

    async def hwlat(self) -> tuple[CpuNoise, ...]:
        """Measure the CPUs with ``hwlat``: all at once, or in turns before Linux 5.14."""
        folder = self.root / "hwlat_detector"
        settings: list[tuple[FileSetting, str]] = [
            (FileSetting(self.host, self.root / "tracing_thresh"), str(THRESHOLD_US)),
            # A width above the window is refused, in both directions.
            (FileSetting(self.host, folder / "width"), str(WIDTH_US)),
            (FileSetting(self.host, folder / "window"), str(PERIOD_US)),
        ]
        share = WIDTH_US / PERIOD_US
        if await self.host.exists(folder / "mode"):
            modes = ("none", "round-robin", "per-cpu")
            settings.append((ChoiceSetting(self.host, folder / "mode", modes), modes[-1]))
        else:
            share /= len(self.cpus)
        text, seconds = await self._traced(HWLAT, settings)
        # The tracer does not report how long it measured.
        return parse_hwlat(text, dict.fromkeys(self.cpus, seconds * share))

    def _complete(self, found: tuple[CpuNoise, ...]) -> tuple[CpuNoise, ...]:
        if missing := set(self.cpus) - {each.cpu for each in found}:
            raise NoTracing(
                f"osnoise reported nothing of CPU {cpu_words(missing)} within {self.seconds:g} s"
            )
        return tuple(each for each in found if each.cpu in self.cpus)

    async def _traced(
        self, tracer: str, settings: Sequence[tuple[FileSetting, str]]
    ) -> tuple[str, float]:
        """Run a tracer in its own instance; return its output, and the seconds for which it ran."""
        try:
            async with AsyncExitStack() as held:
                for setting, value in settings:
                    await held.enter_async_context(changed(self.ledger, setting, value))
                instance = await held.enter_async_context(
                    instance_in(self.host, self.ledger, self.root)
                )
                write: Callable[[str, str], Any] = lambda name, value: self.host.write(  # noqa: E731
                    instance / name, f"{value}\n".encode()
                )
                await write("tracing_cpumask", cpu_mask(self.cpus))
                await write("buffer_size_kb", str(_BUFFER_KIB))
                async with _running(write, tracer):
                    began = time.monotonic()
                    await asyncio.sleep(self.seconds)
                    await write("tracing_on", "0")
                    ran_s = time.monotonic() - began
                    text = await self.host.read(instance / "trace")
                    return text.decode(errors="replace"), ran_s
        except (OSError, ValueError, MachineFault) as error:
            why = error.message if isinstance(error, TareError) else str(error)
            raise NoTracing(f"the kernel's tracer {tracer} cannot be used: {why}") from error


@asynccontextmanager
async def _running(write: Callable[[str, str], Any], tracer: str) -> AsyncIterator[None]:
    await write("current_tracer", tracer)
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            await write("current_tracer", "nop")
