"""The guest file of a Xen domain, and its kernel's command line; pure functions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tare.platforms import instruction_time as counting
from tare.platforms.contract import MachineSpec
from tare.platforms.linux.disk import LABEL
from tare.platforms.network import Link
from tare.platforms.xen.options import XenOptions

CHANNEL = "/dev/hvc0"
"""Xen's own console is the agent's channel; a HVM guest's kernel uses another console."""

Value = str | int | Sequence[str]


@dataclass(frozen=True)
class Boots:
    """The files that a domain boots, as paths on its host."""

    kernel: Path
    initramfs: Path


def kernel_arguments(options: XenOptions, *, counted: bool = False) -> tuple[str, ...]:
    """Return the kernel command line: only arguments that speed up booting or end a dead guest.

    Args:
        options: The machine's options.
        counted: Whether its host's time counts instructions.
    """
    # On an emulated serial port each byte costs an exit to dom0, so little is printed there.
    console = "ttyS0" if options.type == "hvm" else "hvc0"
    words = [
        f"console={console}",
        "quiet",
        # A kernel that panics reports it to Xen and is destroyed, instead of hanging silently.
        "panic=-1",
        # Skip the self-tests of ciphers, which take 0.2 s at every boot under emulation.
        "cryptomgr.notests",
        f"tare.channel={CHANNEL}",
        *(counting.LINUX if counted else ()),
    ]
    if options.type == "hvm":
        # An emulated UART interrupts once per byte. The kernel takes 100,000 interrupts that a
        # thread had already handled for a broken device, and disables it.
        words.append("noirqdebug")
    emulated = {"ide-disks": options.devices == "emulated", "nics": options.card != "netfront"}
    if any(emulated.values()):
        # Otherwise Linux unplugs the devices that Xen emulates, and uses paravirtual ones instead.
        unplugged = [what for what, kept in emulated.items() if not kept]
        words.append(f"xen_emul_unplug={unplugged[0] if unplugged else 'never'}")
    return tuple(words)


def guest_file(
    options: XenOptions,
    spec: MachineSpec,
    boots: Boots,
    uuid: str,
    *,
    append: Sequence[str],
    disks: Sequence[str] = (),
    link: Link | None = None,
) -> str:
    """Return the text of the guest file for ``xl create``, xl.cfg(5).

    Args:
        options: The machine's options.
        spec: Name, shape, pinning.
        boots: The files that it boots.
        uuid: The domain's UUID.
        append: The kernel command line, as :func:`kernel_arguments` returns it.
        disks: Its disks, as :func:`tare.platforms.xen.disk.entry` writes each.
        link: The connection of its network card, made after the domain is built; None: none.
    """
    words = [*append]
    if spec.shape.disk:
        words.append(f"tare.scratch={LABEL}")
    if link is not None:
        words.append(f"tare.net={link.word}")
    settings: dict[str, Value] = {
        "name": spec.name,
        "uuid": uuid,
        "type": options.type,
        "kernel": str(boots.kernel),
        "ramdisk": str(boots.initramfs),
        "extra": " ".join(words),
        "memory": max(1, -(-spec.shape.memory // (1 << 20))),
        "vcpus": spec.shape.vcpus,
        # In other modes Xen emulates the counter if it must, which costs an exit for each reading.
        "tsc_mode": "native",
        # Only a guest that cannot migrate may see that the host's counter never stops.
        "nomigrate": 1,
        "on_poweroff": "destroy",
        "on_reboot": "destroy",
        "on_crash": "destroy",
        "on_watchdog": "destroy",
    }
    if spec.cpus:
        settings["cpus"] = [
            str(spec.cpus[number % len(spec.cpus)]) for number in range(spec.shape.vcpus)
        ]
    elif spec.within:
        settings["cpus"] = ",".join(map(str, spec.within))
    if options.cpupool is not None:
        settings["pool"] = options.cpupool
    if (weight := options.weight_of(spec.role)) is not None:
        settings["cpu_weight"] = weight
    if (cap := options.cap_of(spec.role)) is not None:
        settings["cap"] = cap
    if disks:
        settings["disk"] = disks
    settings |= _devices(options)
    return "".join(f"{name} = {_quoted(value)}\n" for name, value in settings.items())


def _devices(options: XenOptions) -> Mapping[str, Value]:
    # The script that would put a card on a bridge does nothing; Tare does so if needed.
    card = "script=/bin/true"
    if options.type != "hvm":
        return {"vif": [card]}
    emulated = options.card != "netfront"
    # Nothing boots from the network, so leave out the card's firmware, which may be missing.
    no_firmware = ["-global", f"{options.card}.romfile="]
    bare_card = {"device_model_args_hvm": no_firmware} if emulated else {}
    return {
        **bare_card,
        "vif": [f"type=ioemu,model={options.card},{card}" if emulated else f"type=vif,{card}"],
        "serial": "pty",
        "vnc": 0,
        "vga": "none",
        "usb": 0,
        "xen_platform_pci": 1,
        "boot": "c",
    }


def _quoted(value: Value) -> str:
    if isinstance(value, int):
        return str(value)
    if isinstance(value, str):
        return _text(value)
    return f"[ {', '.join(map(_text, value))} ]"


def _text(text: str) -> str:
    # The file's grammar cannot escape the quotation mark that surrounds a text.
    quote = "'" if '"' in text else '"'
    if quote in text or "\n" in text:
        raise ValueError(f"xl cannot take {text!r}")
    return f"{quote}{text}{quote}"
