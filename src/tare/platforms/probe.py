"""Whether KVM really runs guests on a host: only booting one tells.

There are computers where ``/dev/kvm`` opens and creates virtual machines, and yet no stock kernel
boots: it spins. The answer is remembered per boot of the host, QEMU version and image; that of an
emulated host for longer, since such a computer is the same at each of its boots.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import json
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Literal

from tare.errors import InputError, MachineFault, TareError
from tare.hosts import Host
from tare.hosts.ledger import LOCAL
from tare.images.cache import key_of
from tare.platforms.qemu_command import PROGRAM

Depth = Literal["real", "virtual", "emulated"]
"""What a host itself is: hardware, a guest of a hypervisor, or software (QEMU's TCG)."""

BOOT_DEADLINES_S: Mapping[Depth, tuple[float, ...]] = MappingProxyType(
    {"real": (8.0,), "virtual": (12.0,), "emulated": (60.0, 120.0, 120.0)}
)
"""How long each guest that tries KVM may take, in turn, until one boots.

A guest that KVM really runs is up in less than two seconds, in a guest in a few more. On an
emulated processor each exit costs thousands of emulated instructions, and it takes 7 to 20 s; one
of some 25 falls there or spins for ever, though the next boots (docs/lab.md)."""

TOUCH_S: Mapping[Depth, float] = MappingProxyType(
    {"real": 20.0, "virtual": 20.0, "emulated": 120.0}
)
"""How long QEMU may take to be there and to end again, on a host that is busy."""

_TCG = "TCGTCGTCGTCG"
_LOCK_RETRY_S = 0.1

_GREETING = b'{"execute":"qmp_capabilities"}\n{"execute":"quit"}\n'


@dataclass(frozen=True)
class Answer:
    """What was found about KVM on a host.

    Args:
        usable: Whether a guest booted.
        reason: What was found, in one sentence.
        hint: A command to run, or empty.
        sure: Whether asking again would give the same answer.
    """

    usable: bool
    reason: str
    hint: str = ""
    sure: bool = True


async def kvm_device(host: Host, depth: Depth = "real") -> Answer:
    """Find out whether KVM creates a virtual machine at all, without booting one."""
    if not await host.exists("/dev/kvm"):
        return await _no_device(host)
    argv = [PROGRAM, "-machine", "none", "-accel", "kvm", "-nodefaults", "-no-user-config"]
    argv += ["-display", "none", "-S", "-qmp", "stdio"]
    try:
        made = await host.run(argv, input=_GREETING, timeout_s=TOUCH_S[depth])
    except (MachineFault, InputError) as error:
        return Answer(False, f"/dev/kvm is there, but QEMU cannot use it: {error.message}")
    if made.ok:
        return Answer(True, "/dev/kvm opens and creates a virtual machine")
    said = made.stderr.decode(errors="replace").strip().splitlines()
    words = said[0].removeprefix(f"{PROGRAM}: ") if said else f"QEMU ended with {made.returncode}"
    if "Permission denied" in words:
        return Answer(
            False,
            "/dev/kvm may not be opened by this user",
            "usermod -aG kvm $USER, then log in again",
        )
    return Answer(False, f"/dev/kvm opens, but no virtual machine can be created: {words}")


async def _no_device(host: Host) -> Answer:
    with contextlib.suppress(OSError):
        flags = (await host.read("/proc/cpuinfo")).split()
        for flag, module in ((b"vmx", "kvm_intel"), (b"svm", "kvm_amd")):
            if flag in flags:
                return Answer(False, "there is no /dev/kvm", f"modprobe {module}")
    return Answer(
        False,
        "there is no /dev/kvm: the processor offers no virtualization here",
        "turn virtualization on in the firmware, or nested virtualization in the hypervisor below",
    )


async def taken(host: Host, argv: Sequence[str], depth: Depth = "real") -> Answer:
    """Find out whether this QEMU takes some options as they are, without running a guest.

    Args:
        host: Where QEMU is.
        argv: A command that reads its orders from standard input; see ``qemu_command.trial``.
        depth: What the host is.
    """
    tried = await host.run(argv, input=_GREETING, timeout_s=TOUCH_S[depth])
    said = [
        line.removeprefix(f"{PROGRAM}: ")
        for line in tried.stderr.decode(errors="replace").strip().splitlines()
    ]
    hint = " ".join(argv[argv.index("-machine") :])
    if not tried.ok:
        words = "; ".join(said[:3]) or f"it ended with {tried.returncode}"
        return Answer(False, f"QEMU does not take these options: {words}", f"{PROGRAM} {hint}")
    # It goes on without what is missing, which would be an arm under a wrong name.
    missing = [line for line in said if "doesn't support requested feature" in line]
    asked = {word.partition("=")[0] for word in argv[argv.index("-cpu") + 1].split(",")[1:]}
    for line in missing:
        if any(f".{flag.lstrip('+')} " in f"{line} " for flag in asked):
            return Answer(False, f"QEMU would leave out what is asked for: {line}")
    return Answer(True, "QEMU takes these options")


async def depth_of(host: Host, agent: Path) -> Depth:
    """Return what a host itself is, as CPUID tells the agent there; virtual where it tells not."""
    try:
        told = await host.run([str(agent), "proof"], timeout_s=TOUCH_S["emulated"])
        seen = json.loads(told.stdout)["hypervisor"]
        if _TCG in seen["signatures"]:
            return "emulated"
        return "virtual" if seen["announced"] else "real"
    except (TareError, ValueError, KeyError, TypeError):
        return "virtual"


async def remembered(
    cache: Path,
    host: Host,
    depth: Depth,
    facts: Mapping[str, str],
    boot: Callable[[], Awaitable[Answer]],
) -> Answer:
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
    # A lab has another name at each of its boots, after the port by which it is reached.
    far = "here" if host.name == LOCAL else "elsewhere"
    always = {**{key: value for key, value in now.items() if key != "boot"}, "host": far}
    folder = cache / "verdicts"
    for_now, for_good = (folder / f"kvm-{key_of(key)[:32]}.json" for key in (now, always))
    async with _alone(for_good.with_suffix(".lock")):
        for file in (for_now, *([for_good] if depth == "emulated" else [])):
            if (known := _recall(file)) is not None:
                return known
        answer = await boot()
        if not answer.sure:
            return answer
        file = for_good if depth == "emulated" and answer.usable else for_now
        if not answer.usable:
            answer = Answer(False, answer.reason, answer.hint or f"rm {file} && tare doctor")
        _keep(file, answer)
    return answer


async def _identity(host: Host) -> dict[str, str]:
    """Return what tells a host and its boot from others; raises OSError where it does not tell."""

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
        telling = ("model name", "flags", "microcode")
        identity["processor"] = key_of(
            {"": sorted({one for one in cpus if one.startswith(telling)})}
        )
    return identity


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


def _recall(file: Path) -> Answer | None:
    with contextlib.suppress(OSError, ValueError, TypeError, KeyError):
        known = json.loads(file.read_bytes())
        return Answer(bool(known["usable"]), str(known["reason"]), str(known["hint"]))
    return None


def _keep(file: Path, answer: Answer) -> None:
    # An answer that cannot be kept is found again next time.
    with contextlib.suppress(OSError):
        draft = file.with_suffix(f".{os.getpid()}")
        draft.write_text(json.dumps(asdict(answer)))
        draft.replace(file)
