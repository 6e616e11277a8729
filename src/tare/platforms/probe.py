"""Whether KVM really runs guests on a host: only booting one tells.

There are computers where ``/dev/kvm`` opens and creates virtual machines, and yet no stock kernel
boots: it spins. The answer is remembered per boot of the host, QEMU version and image.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from tare.errors import InputError, MachineFault
from tare.hosts import Host
from tare.images.cache import key_of
from tare.platforms.qemu_command import PROGRAM

BOOT_DEADLINE_S = 8.0
"""A guest that KVM really runs is up in less than two seconds."""

_TOUCH_S = 20.0
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


async def kvm_device(host: Host) -> Answer:
    """Find out whether KVM creates a virtual machine at all, without booting one."""
    if not await host.exists("/dev/kvm"):
        return await _no_device(host)
    argv = [PROGRAM, "-machine", "none", "-accel", "kvm", "-nodefaults", "-no-user-config"]
    argv += ["-display", "none", "-S", "-qmp", "stdio"]
    try:
        made = await host.run(argv, input=_GREETING, timeout_s=_TOUCH_S)
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


async def remembered(
    cache: Path, host: Host, facts: dict[str, str], boot: Callable[[], Awaitable[Answer]]
) -> Answer:
    """Return the answer found earlier under the same facts, or find it by booting.

    Args:
        cache: Where answers are kept.
        host: The host that is asked about.
        facts: All else the answer depends on (QEMU's version, the image, options).
        boot: Boots a guest; a sure answer is kept until the host itself is booted again.
    """
    try:
        boot_id = (await host.read("/proc/sys/kernel/random/boot_id")).decode().strip()
        kernel = (await host.read("/proc/sys/kernel/osrelease")).decode().strip()
    except OSError:
        return await boot()
    key = key_of({"host": host.name, "boot": boot_id, "kernel": kernel, **facts})
    file = cache / "verdicts" / f"kvm-{key[:32]}.json"
    with contextlib.suppress(OSError, ValueError, TypeError, KeyError):
        known = json.loads(file.read_bytes())
        return Answer(bool(known["usable"]), str(known["reason"]), str(known["hint"]))
    answer = await boot()
    if not answer.sure:
        return answer
    if not answer.usable:
        answer = Answer(False, answer.reason, answer.hint or f"rm {file} && tare doctor")
    # An answer that cannot be kept is found again next time.
    with contextlib.suppress(OSError):
        file.parent.mkdir(parents=True, exist_ok=True)
        draft = file.with_suffix(f".{os.getpid()}")
        draft.write_text(json.dumps(asdict(answer)))
        draft.replace(file)
    return answer
