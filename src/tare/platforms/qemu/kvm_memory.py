"""Results of KVM trials on hosts, kept in the cache so that no guest is booted again for them.

An answer holds for one boot of the host, one QEMU, image and processor; that of an emulated host
for longer, since such a computer is the same at each of its boots. The last answer is kept as
well, for a plan, which may start nothing.
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
    """Return what was found last about KVM on a host with some options; None if nothing was.

    Nothing is started for it, and the host may have been booted since: it is for plans, which a
    run checks again.

    Args:
        cache: Where answers are kept.
        host: The host that is asked about.
        options: Those of the machines.
    """
    try:
        identity = await _identity(host)
    except OSError:
        return None
    return _recall(_last(cache, identity, options))


async def note(cache: Path, host: Host, options: QemuOptions, answer: TrialResult) -> None:
    """Keep what was found about KVM on a host with some options, for :func:`remembered`."""
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
    """Return the answer found earlier under the same facts, or find it by booting.

    Whoever asks while another finds it, waits for that answer.

    Args:
        cache: Where answers are kept.
        host: The host that is asked about; answers of one are never those of another.
        depth: What the host is.
        facts: All else the answer depends on (QEMU's version, the image, options).
        boot: Boots a guest; a sure answer is kept until the host itself is booted again, a good
            one of an emulated host for good.
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
    """Return what identifies a host and its boot; raises OSError if it cannot be read."""

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
    """Return what stays the same of facts about a host when it is booted again."""
    # A lab's name contains its port, which changes with each boot.
    far = "here" if facts["host"] == LOCAL else "elsewhere"
    return {**{key: value for key, value in facts.items() if key != "boot"}, "host": far}


@contextlib.asynccontextmanager
async def _alone(lock: Path) -> AsyncIterator[None]:
    """Keep others out who look for the same answer; where nothing can be locked, nobody."""
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
    # An answer that cannot be kept is found again next time.
    with contextlib.suppress(OSError):
        file.parent.mkdir(parents=True, exist_ok=True)
        draft = file.with_suffix(f".{os.getpid()}")
        draft.write_text(json.dumps(asdict(answer)))
        draft.replace(file)
