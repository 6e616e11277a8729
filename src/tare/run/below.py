"""Who has the CPUs of a computer while its host's kernel is watched, which may have only some."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tare.platforms.contract import Machine


async def given_out_meanwhile(subject: Machine, window: tuple[float, float]) -> dict[str, Any]:
    """Return who had the CPUs in a while that begins soon, by the hypervisor below the host.

    Args:
        subject: The machine.
        window: After how many seconds the while begins, and how many it lasts.

    Returns:
        ``below``: the machine's number (``domain``), how many ``cpus`` there are, and how many of
        them the ``machine``, the ``host``'s kernel and each of the ``others`` had; ``host_on``,
        which CPUs the host's kernel is kept on, as far as that is known. ``threads``:
        those of the host that emulate devices for it. Empty where nothing is below its kernel.

    Raises:
        MachineFault: It has ended, or the hypervisor does not answer.
    """
    after_s, seconds = window
    begins = time.monotonic() + after_s
    if await subject.given_out() is None:
        return {}
    await asyncio.sleep(max(0.0, begins - time.monotonic()))
    first, began = await subject.given_out(), time.monotonic()
    await asyncio.sleep(max(0.0, begins + seconds - began))
    last, took_s = await subject.given_out(), time.monotonic() - began
    if first is None or last is None or took_s <= 0:
        return {}
    return {
        "below": {
            "domain": last.domain,
            "cpus": last.cpus,
            "machine": (last.machine_s - first.machine_s) / took_s,
            "host": (last.host_s - first.host_s) / took_s,
            "host_on": list(last.host_on),
            "others": {
                name: (spent - first.others.get(name, 0.0)) / took_s
                for name, spent in last.others.items()
            },
        },
        "threads": sorted({*first.threads, *last.threads}),
    }
