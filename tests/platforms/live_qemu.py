"""The guests of the server that stands for Proxmox: QEMU's emulation, which boots a live image.

It is built from a VM's configuration as Proxmox would build it: the mainboard, the card, each drive
on its bus. A new disk is a file of zeros of the size that the server has noted.
"""

from __future__ import annotations

import re
import subprocess
import threading
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from platforms.proxmox_schema import DRIVE
from tare.platforms.vendors.configuration import configuration_image, read_configuration

GATEWAY = "10.0.2.2"
"""What QEMU's user-mode network makes of this computer's loopback (qemu's documentation)."""
CARDS = {"virtio": "virtio-net-pci"}


@dataclass(frozen=True)
class Wire:
    """A tap of this computer's, to which a guest's card is connected.

    Args:
        tap: Its name.
        guest: The guest's address and the length of the network's prefix, as the guest gets them.
    """

    tap: str
    guest: str


class LiveGuests:
    """QEMUs by the numbers of their VMs.

    Args:
        server: Its VMs are started, and marked as off once their guest has ended.
        image: The live image, which no guest changes.
        folder: For the files of all of them.
        wires: What guests are connected to, one after the other; where none is left, to QEMU's
            user-mode network, which translates addresses.
    """

    def __init__(self, server: Any, image: Path, folder: Path, wires: Iterable[Wire] = ()) -> None:
        self._server = server
        self._image = image
        self._folder = folder
        self._wires = iter(wires)
        self._running: dict[int, subprocess.Popen[bytes]] = {}

    def plug(self, number: int, images: list[bytes]) -> None:
        """Start a guest; called from the server's threads."""
        config = self._server.vms[number]["config"]
        (configuration,) = filter(None, map(read_configuration, images))
        disc, wire = self._folder / f"{number}.iso", next(self._wires, None)
        if wire is None:
            # As a router before them would: what the guest dials leads here.
            port = str(configuration["callback"]).rpartition(":")[2]
            configuration["callback"], net = f"{GATEWAY}:{port}", "user"
        else:
            configuration["network"] = {"address": wire.guest}
            net = f"tap,ifname={wire.tap},script=no,downscript=no"
        disc.write_bytes(configuration_image(configuration))
        process = subprocess.Popen(
            self._argv(number, config, disc, net),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=(self._folder / f"{number}.err").open("wb"),
        )
        self._running[number] = process
        threading.Thread(target=self._wait, args=(number, process), daemon=True).start()

    def unplug(self, number: int) -> None:
        """End it at once."""
        if (process := self._running.pop(number, None)) is not None:
            process.kill()
            process.wait()

    def console_words(self) -> str:
        """Return the text on their consoles, and their QEMUs' complaints."""
        files = sorted([*self._folder.glob("*.console"), *self._folder.glob("*.err")])
        return "\n".join(file.read_text(errors="replace") for file in files)

    def close(self) -> None:
        """End them all."""
        for number in tuple(self._running):
            self.unplug(number)

    def _wait(self, number: int, process: subprocess.Popen[bytes]) -> None:
        process.wait()
        if self._running.get(number) is process:
            del self._running[number]
        self._server.powered_off(number)

    def _argv(self, number: int, config: dict[str, Any], disc: Path, net: str) -> list[str]:
        card = str(config["net0"]).partition(",")[0]
        words = [
            *("qemu-system-x86_64", "-nodefaults", "-no-user-config", "-display", "none"),
            *("-machine", config["machine"], "-accel", "tcg", "-cpu", config["cpu"]),
            *("-m", f"{config['memory']}M", "-smp", str(config["cores"])),
            *("-serial", f"file:{self._folder / f'{number}.console'}"),
            *("-netdev", f"{net},id=net", "-device", f"{CARDS.get(card, card)},netdev=net"),
            *("-device", "virtio-scsi-pci,id=scsi", "-device", "ahci,id=sata"),
        ]
        for key, value in config.items():
            if DRIVE.fullmatch(key):
                words += self._drive(number, key, str(value), disc, config)
        return words

    def _drive(
        self, number: int, key: str, value: str, disc: Path, config: dict[str, Any]
    ) -> list[str]:
        bus, place = re.sub(r"\d", "", key), int(re.sub(r"\D", "", key))
        file, more = self._image, ",snapshot=on"
        if "media=cdrom" in value and place:
            # What boots is in the first place, the configuration in another.
            file, more = disc, ",read-only=on"
        elif size := re.search(r"size=(\d+)K", value):
            file, more = self._folder / f"{number}-{key}.raw", ""
            with file.open("wb") as made:
                made.truncate(int(size[1]) << 10)
        kind = "cd" if "media=cdrom" in value else "hd"
        where = {
            "scsi": f"scsi-{kind},bus=scsi.0,scsi-id={place}",
            "sata": f"ide-{kind},bus=sata.{place}",
            # On q35 each has a bus of its own, on pc two share one.
            "ide": f"ide-{kind},bus=ide.{place}"
            if config["machine"] == "q35"
            else f"ide-{kind},bus=ide.{place // 2},unit={place % 2}",
        }[bus]
        boots = ",bootindex=1" if config["boot"] == f"order={key}" else ""
        drive = f"file={file},format=raw,if=none,id={key}{more}"
        return ["-drive", drive, "-device", f"{where},drive={key}{boots}"]
