"""Halt polling: how long a host's CPU polls for an idle vCPU before it is released (KVM).

Source: the kernel's Documentation/virt/kvm/halt-polling.rst. The setting applies to all guests of a
host. Tare sets it while a machine runs, and restores it afterwards.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from tare.errors import MachineFault
from tare.hosts import Host, Ledger
from tare.hosts.ledger.settings import FileSetting, changed

SETTING = Path("/sys/module/kvm/parameters/halt_poll_ns")


async def lacking_polling(host: Host, seconds: float | None) -> tuple[str, str] | None:
    """Return why a requested polling time cannot be set, and what to do; None if it can."""
    if seconds is None:
        return None
    if not await host.exists(SETTING):
        return "`halt-poll`: the host's kvm has no parameter halt_poll_ns", "modprobe kvm"
    if not (await host.run(["test", "-w", str(SETTING)], timeout_s=30)).ok:
        return f"`halt-poll`: {SETTING} may not be written here", "run Tare as root"
    return None


async def hold_polling(
    held: AsyncExitStack, host: Host, ledger: Ledger, name: str, seconds: float | None
) -> Mapping[str, Any]:
    """Set how long the host polls, until ``held`` is closed.

    Other machines of the run must use the same value.

    Returns:
        The setting for the machine's record; empty if none was requested.

    Raises:
        MachineFault: The setting cannot be changed.
    """
    if seconds is None:
        return {}
    value = str(round(seconds * 1e9))
    try:
        setting = changed(ledger, FileSetting(host, SETTING), value)
        before = await held.enter_async_context(setting)
    except OSError as error:
        raise MachineFault(f"{name}: {SETTING} cannot be set: {error.strerror}") from error
    return {"halt_poll": {"ns": int(value), "before_ns": int(before)}}
