"""Results of KVM trials on hosts, cached so that Tare does not boot the trial guests again.

A result is valid for one boot of the host and one combination of QEMU, image and processor. For an
emulated host a success stays valid after a reboot, because such a computer is the same at each
boot. The last result is kept in addition, for plans, which may start nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import json
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import asdict, replace
from pathlib import Path

from tare.hosts import Host
from tare.hosts.ledger.ledger import LOCAL
from tare.images.cache import key_of
from tare.platforms.qemu.command import trial
from tare.platforms.qemu.kvm_trial import Depth, TrialResult
from tare.platforms.qemu.options import QemuOptions

_LOCK_RETRY_S = 0.1


async def remembered(cache: Path, host: Host, options: QemuOptions) -> TrialResult | None:
    """Return the last result about KVM on a host with some options; None if there is none.

    This starts nothing, and the host may have been booted since then. It is meant for plans; a
    run checks again.

    Args:
        cache: The directory of the cache.
        host: The host in question.
        options: The machines' options.
    """
    try:
        identity = await _identity(host)
    except OSError:
        return None
    return _recall(_last(cache, identity, options))


async def note(cache: Path, host: Host, options: QemuOptions, answer: TrialResult) -> None:
    """Store a result about KVM on a host with some options, for :func:`remembered`."""
    if not answer.sure:
        return
    with contextlib.suppress(OSError):
        _keep(_last(cache, await _identity(host), options), answer)


def _last(cache: Path, identity: Mapping[str, str], options: QemuOptions) -> Path:
    asked = {**_lasting(identity), "options": " ".join(trial(options))}
    return cache / "verdicts" / f"kvm-last-{key_of(asked)[:32]}.json"


async def known_or_booted(
    cache: Path,
    host: Host,
    depth: Depth,
    facts: Mapping[str, str],
    boot: Callable[[], Awaitable[TrialResult]],
) -> TrialResult:
    """Return the cached result for the same facts, or boot a guest to find it.

    If several callers need the same result, one finds it and the others wait for it.

    Args:
        cache: The directory of the cache.
        host: The host in question; results are never shared between hosts.
        depth: The kind of host.
        facts: Everything else that the result depends on (QEMU's version, the image, options).
        boot: Boots a guest. A sure result is kept until the host boots again; a success on an
            emulated host is kept permanently.
    """
    try:
        identity = await _identity(host)
    except OSError:
        return await boot()
    now = {**identity, **facts}
    folder = cache / "verdicts"
    for_now, for_good = (folder / f"kvm-{key_of(key)[:32]}.json" for key in (now, _lasting(now)))
    async with _alone(for_good.with_suffix(".lock")):
        for file in (for_now, *([for_good] if depth == "emulated" else [])):
            if (known := _recall(file)) is not None:
                return known
        answer = await boot()
        if not answer.sure:
            return answer
        file = for_good if depth == "emulated" and answer.usable else for_now
        if not answer.usable:
            again = f"to try again: rm {file} && tare doctor"
            answer = replace(answer, todo="; ".join(filter(None, (answer.todo, again))))
        _keep(file, answer)
    return answer


async def _identity(host: Host) -> dict[str, str]:
    """Return the identity of a host and its boot; raises OSError if it cannot be read."""

    async def read(path: str) -> str:
        return (await host.read(path)).decode(errors="replace").strip()

    identity = {
        "host": host.name,
        "boot": await read("/proc/sys/kernel/random/boot_id"),
        "kernel": await read("/proc/sys/kernel/osrelease"),
    }
    for name, path in (("machine", "/etc/machine-id"), ("arguments", "/proc/cmdline")):
        with contextlib.suppress(OSError):
            identity[name] = await read(path)
    with contextlib.suppress(OSError):
        cpus = (await read("/proc/cpuinfo")).splitlines()
        identifying = ("model name", "flags", "microcode")
        identity["processor"] = key_of(
            {"": sorted({one for one in cpus if one.startswith(identifying)})}
        )
    return identity


def _lasting(facts: Mapping[str, str]) -> dict[str, str]:
    """Return those facts about a host that stay the same when it boots again."""
    # A lab's name contains its port, which changes with each boot.
    far = "here" if facts["host"] == LOCAL else "elsewhere"
    return {**{key: value for key, value in facts.items() if key != "boot"}, "host": far}


@contextlib.asynccontextmanager
async def _alone(lock: Path) -> AsyncIterator[None]:
    """Lock out others that look for the same result; without file locks, lock out nobody."""
    held: int | None = None
    with contextlib.suppress(OSError):
        lock.parent.mkdir(parents=True, exist_ok=True)
        held = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        while held is not None:
            try:
                fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                await asyncio.sleep(_LOCK_RETRY_S)
        yield
    finally:
        if held is not None:
            os.close(held)


def _recall(file: Path) -> TrialResult | None:
    with contextlib.suppress(OSError, ValueError, TypeError, KeyError):
        return TrialResult(**json.loads(file.read_bytes()))
    return None


def _keep(file: Path, answer: TrialResult) -> None:
    # If a result cannot be stored, it is found again next time.
    with contextlib.suppress(OSError):
        file.parent.mkdir(parents=True, exist_ok=True)
        draft = file.with_suffix(f".{os.getpid()}")
        draft.write_text(json.dumps(asdict(answer)))
        draft.replace(file)
