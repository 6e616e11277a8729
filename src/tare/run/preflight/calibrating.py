"""Calibration before the first cell: the agent's figures compared with independent ones.

The code that measures cells measures counter, memory and disk. The references are the kernel's rate
of the counter and its disk statistics, CPython's reading of the clock, and NumPy's loop over
memory. See ``tare help measuring``.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import secrets
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tare.errors import TareError
from tare.events import Calibrated, Calibration
from tare.platforms.linux.disk import device_moved
from tare.platforms.linux.process_machine import owned_directory, temporary_folder
from tare.run.cells.plausibility import DRIFT_LIMIT_PPM, MOST_APART, SMALL_BYTES
from tare.units import format_percent

if TYPE_CHECKING:
    from tare.hosts import Host
    from tare.platforms.contract import Context

RATE_WITHIN = DRIFT_LIMIT_PPM * 1e-6
"""Tolerance of the counter's rate: the same as for a machine's clock."""
MEMORY_WITHIN = 0.5
"""Tolerance between the loops of two compilers over the same arrays: NumPy's uses huge pages, and
was 1.1 to 1.3 times as fast where Tare was developed."""
STAMP_S = 1e-6
"""Reading a clock through the kernel or from a device takes longer than this."""

ARRAY_BYTES = 16 << 20
_TIMER = {"seconds": 0.05, "loop_ns": 0}
_MEMORY = {"seconds": 0.001, "array_bytes": ARRAY_BYTES, "threads": 1}
_DISK = {"seconds": 0.1, "file_bytes": 4 << 20}
_REPEATS = 7
_READS = 2000
_LONGEST_S = 20.0
_REFINED = re.compile(r"tsc: Refined TSC clocksource calibration: ([0-9.]+) MHz")
_DETECTED = re.compile(r"tsc: Detected ([0-9.]+) MHz")
_BOGOMIPS = re.compile(r"^bogomips\s*:\s*([0-9.]+)", re.MULTILINE | re.IGNORECASE)


async def calibrate(context: Context, name: str = "") -> Calibrated:
    """Measure counter, memory and disk of a host, and compare them with references.

    If the host lacks or refuses something, this raises nothing: the result has the reason instead
    of a figure.

    Args:
        context: The host.
        name: The run's name for the host; empty for a single host.
    """
    began = time.monotonic()
    cpu = context.host.topology().machines[-1]
    found: list[Calibration] = []
    steps: dict[str, Callable[[Context, int], Awaitable[list[Calibration]]]] = {
        "counter": _timer,
        "memory": _memory,
        "disk": _disk,
    }
    # One after the other, so that they do not disturb each other.
    for what, step in steps.items():
        try:
            found += await step(context, cpu)
        except (TareError, OSError, ValueError, LookupError) as error:
            found.append(Calibration(what=what, level="warn", found=f"not measured: {error}"))
    return Calibrated(host=name, took_s=time.monotonic() - began, found=tuple(found))


async def _agent(
    context: Context, workload: str, given: Mapping[str, Any], cpu: int, scratch: Path | None = None
) -> Mapping[str, Any]:
    """Run a workload of the agent on one CPU, and return its result."""
    argv = [str(context.host_agent), "run", workload, json.dumps(given), "--cpus", str(cpu)]
    env = None if scratch is None else {"TARE_SCRATCH": str(scratch)}
    done = await context.host.run(argv, timeout_s=_LONGEST_S, env=env)
    if not done.ok:
        raise ValueError(done.words().removeprefix("tare-agent: "))
    result: Mapping[str, Any] = json.loads(done.stdout)["value"]
    return result


async def _timer(context: Context, cpu: int) -> list[Calibration]:
    result = await _agent(context, "tick", _TIMER, cpu)
    rate, stamp = float(result["tsc_hz"]), float(result["undisturbed_s"])
    known, by, within = await kernels_rate(context.host)
    return [
        judged("counter's rate", "Hz", rate, known, by, within),
        Calibration(
            what="reading the counter",
            unit="s",
            own=stamp,
            reference=_clock_read_s() if context.host.local else None,
            by="CPython, reading the kernel's clock" if context.host.local else "",
            level="ok" if stamp <= STAMP_S else "warn",
            found=f"steps of {float(result['counter_step_s']) * 1e9:.3g} ns",
        ),
    ]


async def kernels_rate(host: Host) -> tuple[float | None, str, float]:
    """Return the rate of the time-stamp counter according to the kernel.

    Returns:
        The rate in Hz, or None if the kernel does not report it; its source; and its tolerance.
    """
    log = ""
    try:
        done = await host.run(["dmesg"], timeout_s=_LONGEST_S)
        log = done.stdout.decode(errors="replace") if done.ok else ""
    except TareError:
        pass  # The host has no dmesg.
    if found := _REFINED.search(log) or _DETECTED.search(log):
        return float(found[1]) * 1e6, "the kernel's log", RATE_WITHIN
    cpuinfo = (await host.read("/proc/cpuinfo")).decode(errors="replace")
    if found := _BOGOMIPS.search(cpuinfo):
        # Linux derives its delay loop's count from the counter's rate, twice a cycle
        # (init/calibrate.c), before the rate is refined.
        return float(found[1]) * 0.5e6, "the kernel's BogoMIPS", 1e-2
    return None, "", RATE_WITHIN


def _clock_read_s() -> float:
    """Return CPython's shortest time between two readings of the kernel's clock, in seconds."""
    read = time.perf_counter_ns
    stamps = [read() for _ in range(_READS)]
    return min(after - before for before, after in pairwise(stamps)) * 1e-9


async def _memory(context: Context, cpu: int) -> list[Calibration]:
    result = await _agent(context, "memory-bandwidth", _MEMORY, cpu)
    own = float(result["bandwidth"]["add-f64"]["best_bytes_per_s"])
    reference = await asyncio.to_thread(_numpy_add, cpu) if context.host.local else None
    by = "NumPy's, adding the same arrays" if context.host.local else ""
    return [judged("adding two arrays", "B/s", own, reference, by, MEMORY_WITHIN)]


def _numpy_add(cpu: int) -> float:
    """Return the bytes per second of NumPy's fastest sum of two arrays of doubles."""
    import numpy as np

    usual = os.sched_getaffinity(0)
    # This binds only this thread, to the CPU that the agent used.
    os.sched_setaffinity(0, {cpu})
    try:
        length = ARRAY_BYTES // 8
        a, b, c = (np.full(length, value) for value in (1.0, 2.0, 0.0))
        took = []
        for _ in range(_REPEATS):
            began = time.perf_counter()
            np.add(a, b, out=c)
            took.append(time.perf_counter() - began)
    finally:
        os.sched_setaffinity(0, usual)
    return 3 * ARRAY_BYTES / min(took)


async def _disk(context: Context, cpu: int) -> list[Calibration]:
    host, what = context.host, "bytes to and from the disk"
    folder = temporary_folder(host) / f"tare-calibration-{secrets.token_hex(4)}"
    async with AsyncExitStack() as held:
        await held.enter_async_context(owned_directory(host, context.ledger, folder))
        device = await _device_of(host, folder)
        if not device:
            found = f"{folder.parent} is not on a disk (it may be in memory)"
            return [Calibration(what=what, level="ok", found=f"not measured: {found}")]
        before = await device_moved(host, device)
        result = await _agent(context, "disk-load", _DISK, cpu, folder)
        after = await device_moved(host, device)
    own = float(result["bytes"])
    moved = sum(after.values()) - sum(before.values())
    is_plausible = own <= moved * (1 + MOST_APART) + SMALL_BYTES
    note = f"{own / float(result['seconds']) / 1e6:.3g} MB/s"
    if moved > 2 * own + SMALL_BYTES:
        note += "; other processes used the disk too"
    return [
        Calibration(
            what=what,
            unit="B",
            own=own,
            reference=moved,
            by=f"the kernel's count at {device}",
            level="ok" if is_plausible else "warn",
            found=note,
        )
    ]


async def _device_of(host: Host, folder: Path) -> str:
    """Return the block device below a folder by its name in ``/sys/block``; empty: none."""
    script = (
        'set -- $(findmnt -n -o MAJ:MIN -T "$1") && cd "/sys/dev/block/$1" || exit; '
        "[ ! -e partition ] || cd ..; pwd -P"
    )
    done = await host.run(["sh", "-c", script, "sh", str(folder)], timeout_s=_LONGEST_S)
    return Path(done.stdout.decode().strip()).name if done.ok and done.stdout.strip() else ""


def judged(
    what: str, unit: str, own: float, reference: float | None, by: str, within: float
) -> Calibration:
    """Compare a figure with its reference.

    Args:
        what: The measured quantity.
        unit: The unit of both figures.
        own: The figure of Tare's agent.
        reference: The reference; None if there is none.
        by: The source of the reference.
        within: The tolerance, as a share of the reference.
    """
    if reference is None or reference <= 0:
        return Calibration(
            what=what, unit=unit, own=own, level="ok", found="there is no reference on this host"
        )
    apart = abs(own / reference - 1)
    return Calibration(
        what=what,
        unit=unit,
        own=own,
        reference=reference,
        by=by,
        level="ok" if apart <= within else "warn",
        found=f"{format_percent(apart)} apart; tolerance {format_percent(within)}",
    )
