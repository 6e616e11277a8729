"""The findings of ``tare doctor``: which platforms are usable, and whether spikes can be traced."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import BaseModel, ConfigDict

from tare.errors import TareError
from tare.hosts import Host
from tare.hosts.programs import find_program, install_command_for
from tare.hosts.trace.recorder import host_recorder
from tare.hosts.trace.tracefs import NoTracing
from tare.platforms.contract import (
    NOTHING_AT_ALL,
    Capabilities,
    Context,
    Platform,
    Variant,
    Verdict,
)
from tare.programs import USUAL


class Finding(BaseModel):
    """The result of checking one variant of a platform on this host."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    platform: str
    variant: str
    usable: bool
    reason: str
    hint: str
    emulated: bool
    versions: dict[str, str]
    capabilities: dict[str, Any]
    runs_as: str = ""
    kernel: str = ""
    """The kernel that guests boot if a study names none and has no real-time work, and why."""


class MissingPrograms(BaseModel):
    """The programs that a host lacks.

    Args:
        programs: Each missing program with what it is for.
        install: The command that installs them on the host's distribution; empty if none is
            missing.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    programs: dict[str, str]
    install: str


async def missing_programs(host: Host) -> MissingPrograms:
    """Find out which of the programs that Tare uses are missing on a host; install nothing."""
    lacking = [program for program in USUAL if await find_program(host, program) is None]
    return MissingPrograms(
        programs={program.names[0]: program.purpose for program in lacking},
        install=await install_command_for(host, *lacking) if lacking else "",
    )


async def examine(context: Context, platforms: Mapping[str, Platform[Any]]) -> list[Finding]:
    """Check every variant of every platform at the same time.

    Concurrent checks are fine because nothing is measured here.

    Args:
        context: The host and its surroundings.
        platforms: The known platforms by name.

    Returns:
        One finding for each variant, with the platforms in the order given.
    """
    asked = [
        (platform, variant) for platform in platforms.values() for variant in platform.variants
    ]
    return list(await asyncio.gather(*(_examine_one(context, *question) for question in asked)))


async def _examine_one(context: Context, platform: Platform[Any], variant: Variant) -> Finding:
    options = platform.options.model_validate(dict(variant.options))
    try:
        verdict = await platform.check(context, options)
        kernel = await _kernel(context, platform, options) if verdict.usable else ""
    except (TareError, OSError) as error:
        kernel = ""
        hint = error.hint if isinstance(error, TareError) else ""
        message = error.message if isinstance(error, TareError) else str(error)
        verdict = Verdict(False, message, hint, False, {}, NOTHING_AT_ALL)
    return Finding(
        platform=platform.name,
        variant=variant.name,
        usable=verdict.usable,
        reason=verdict.reason,
        hint=verdict.hint,
        emulated=verdict.emulated,
        versions=dict(verdict.versions),
        capabilities=plain(verdict.capabilities),
        runs_as=verdict.runs_as or platform.stated(options).runs_as,
        kernel=kernel,
    )


async def _kernel(context: Context, platform: Platform[Any], options: Any) -> str:
    """Describe which kernel guests boot; empty if they boot none of Tare's kernels."""
    kernels = await platform.guest_kernels(context, options)
    if kernels.own:
        return f"the host's own, Linux {kernels.own}, which was tried"
    if not kernels.no_own:
        return ""
    todo = f" ({kernels.todo})" if kernels.todo else ""
    return f"from the distribution's packages or a bundle, since {kernels.no_own}{todo}"


def plain(capabilities: Capabilities) -> dict[str, Any]:
    """Convert capabilities to plain JSON values."""
    values = dataclasses.asdict(capabilities)
    return {
        name: sorted(value) if isinstance(value, frozenset) else _listed(value)
        for name, value in values.items()
    }


def _listed(value: Any) -> Any:
    return list(value) if isinstance(value, Sequence) and not isinstance(value, str) else value


_HINTS = (
    ("needs root", "run Tare as root, for example: sudo .venv/bin/tare doctor"),
    (
        "built without tracefs",
        "boot a kernel with CONFIG_FTRACE, such as a distribution's: grep TRAC /boot/config-*",
    ),
    (
        "cannot be mounted",
        "mount -t tracefs tracefs /sys/kernel/tracing (in a container: give it CAP_SYS_ADMIN, or "
        "the host's /sys/kernel/tracing)",
    ),
    ("there is no event", "boot a kernel with CONFIG_SCHED_TRACER and CONFIG_EVENT_TRACING"),
    ("no instance can be made", "mount -o remount,rw /sys/kernel/tracing"),
    ("cannot be set up", "dmesg | tail; a kernel that is locked down refuses it"),
)
"""Pairs: words that occur in the reason, and the hint on how to fix it."""


class TracingFinding(BaseModel):
    """The result of a trial recording of a host's scheduler.

    Args:
        usable: Whether the scheduler could be recorded for a moment.
        reason: The finding in one sentence.
        hint: What to do; empty if nothing.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    usable: bool
    reason: str
    hint: str = ""


async def examine_tracing(context: Context) -> TracingFinding:
    """Record the host's scheduler for a moment, and remove whatever was mounted or made for it."""
    cpu = context.host.topology().online[0]
    try:
        async with host_recorder(context.host, context.ledger) as recorder:
            await recorder.begin([cpu], [])
            recording = await recorder.end()
    except (NoTracing, TareError, OSError) as error:
        reason = error.message if isinstance(error, TareError) else str(error)
        hint = next((hint for words, hint in _HINTS if words in reason), "dmesg | tail")
        return TracingFinding(usable=False, reason=reason, hint=hint)
    return TracingFinding(
        usable=True,
        reason=f"the kernel's tracer records scheduling and interrupts (CPU {cpu} tried, "
        f"{len(recording.columns['time_ns'])} events)",
    )
