"""A machine of QEMU's emulation that boots a live image, with a configuration of this process."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import pytest

from tare.agent.channel import StreamChannel
from tare.agent.client import AgentClient
from tare.hosts import LocalHost
from tare.images.cache import default_cache
from tare.images.live.image import make_live_image
from tare.images.toolbox.recipe import Kind
from tare.platforms.vendors.callback import GREETING, CallbackListeners, ExpectedAgent
from tare.platforms.vendors.configuration import configuration_image
from tare.platforms.vendors.options import CallbackAddress
from tare.platforms.vendors.own_disk import scratch_configuration

GATEWAY = "10.0.2.2"
"""What QEMU's user-mode network makes of this computer's loopback (qemu's documentation)."""
END_S = 60.0
GREETING_S = 300.0
OVMF = Path("/usr/share/OVMF")

Firmware = Literal["bios", "uefi", "secure"]
Medium = Literal["cd", "disk"]


def make_disc(agent: Path, file: Path, toolbox: Kind | None, words: tuple[str, ...] = ()) -> Path:
    """Make a live image of Debian's general kernel, and return its file.

    Args:
        agent: The agent's program.
        file: The disc that is made.
        toolbox: Which toolbox it holds; None: none.
        words: Further words of its kernel command line.
    """
    made = make_live_image(
        LocalHost(agent),
        file,
        kernel="generic",
        toolbox=toolbox,
        words=words,
        agent=agent,
        cache=default_cache(),
        say=print,
    )
    return asyncio.run(made).file


@dataclass(frozen=True)
class LiveMachine:
    """One machine.

    Args:
        image: The live image.
        firmware: What starts it.
        medium: How the image is attached.
        nic: QEMU's name of its network card; empty: it has none.
        memory: MiB.
        configured: A CD with its configuration is attached.
        serial: Whether it is to speak on its second serial port.
        disks: Further disks, by their files.
        scratch: The bytes of the disk to format by its configuration; 0: none.
    """

    image: Path
    firmware: Firmware
    medium: Medium = "cd"
    nic: str = "e1000"
    memory: int = 384
    configured: bool = True
    serial: bool = False
    disks: tuple[Path, ...] = ()
    scratch: int = 0

    def argv(self, configuration: Path, folder: Path) -> list[str]:
        """Return the command without its serial ports."""
        smm = "on" if self.firmware == "secure" else "off"
        boot = f"file={self.image},format=raw,read-only=on,if=none,id=image"
        cfg = f"file={configuration},format=raw,read-only=on,if=none,id=configuration"
        words = ["-drive", cfg, "-device", "ide-cd,drive=configuration,bus=ide.1"]
        card = ["-netdev", "user,id=net", "-device", f"{self.nic},netdev=net"]
        device = "ide-cd,bus=ide.0" if self.medium == "cd" else "virtio-blk-pci"
        more = [
            word
            for number, file in enumerate(self.disks)
            for word in (
                *("-drive", f"file={file},format=raw,if=none,id=more{number}"),
                *("-device", f"virtio-blk-pci,drive=more{number}"),
            )
        ]
        return [
            *("qemu-system-x86_64", "-nodefaults", "-no-user-config", "-display", "none"),
            *("-machine", f"q35,smm={smm}", "-accel", "tcg", "-cpu", "max"),
            *("-m", f"{self.memory}M", *self._firmware(folder)),
            *("-drive", boot, "-device", f"{device},drive=image,bootindex=1"),
            *(words if self.configured else ()),
            *more,
            *(card if self.nic else ()),
        ]

    def _firmware(self, folder: Path) -> list[str]:
        if self.firmware == "bios":
            return []
        secure = self.firmware == "secure"
        code = OVMF / ("OVMF_CODE_4M.secboot.fd" if secure else "OVMF_CODE_4M.fd")
        known = OVMF / ("OVMF_VARS_4M.ms.fd" if secure else "OVMF_VARS_4M.fd")
        if not (code.is_file() and known.is_file()):
            pytest.skip("there is no OVMF here: `apt-get install ovmf`")
        # The firmware writes there.
        own = Path(shutil.copyfile(known, folder / "vars.fd"))
        guarded = ["-global", "driver=cfi.pflash01,property=secure,value=on"] if secure else []
        return [
            *("-drive", f"if=pflash,unit=0,format=raw,readonly=on,file={code}"),
            *("-drive", f"if=pflash,unit=1,format=raw,file={own}"),
            *guarded,
        ]


@dataclass
class Booted:
    """A machine that was started.

    Args:
        client: Speaks with its agent, once that is there.
        caller: What was expected of it.
        process: QEMU.
        console: The file with what it has written on its console.
        greeted: The key by which it has made itself known on its serial port.
    """

    client: AgentClient
    caller: ExpectedAgent
    process: asyncio.subprocess.Process
    console: Path
    greeted: str = ""

    def console_text(self) -> str:
        """Return the text on its console."""
        return self.console.read_text(errors="replace") if self.console.exists() else ""


@contextlib.asynccontextmanager
async def booted(machine: LiveMachine, folder: Path) -> AsyncIterator[Booted]:
    """Boot a machine whose agent is expected here; kill it afterwards."""
    console, port = folder / "console", folder / "port"
    async with CallbackListeners().open(CallbackAddress("127.0.0.1", 0)) as door:
        with door.expect("tare-live-1") as caller:
            settings = {**caller.configuration, "callback": f"{GATEWAY}:{door.address.port}"}
            if machine.serial:
                settings["serial"] = "ttyS1"
            if machine.scratch:
                settings |= scratch_configuration(machine.scratch)
            configuration = folder / "tare-cfg.iso"
            configuration.touch(0o600)
            configuration.write_bytes(configuration_image(settings))
            argv = [*machine.argv(configuration, folder), "-serial", f"file:{console}"]
            if machine.serial:
                argv += ["-serial", f"unix:{port},server=on,wait=off"]
            process = await asyncio.create_subprocess_exec(
                *argv, stdin=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE
            )
            found = Booted(AgentClient(caller.channel, name="live"), caller, process, console)
            try:
                if machine.serial:
                    found.greeted = await _greeted(port, caller)
                yield found
            finally:
                await found.client.close()
                if process.returncode is None:
                    process.kill()
                await process.communicate()


async def _greeted(port: Path, caller: ExpectedAgent) -> str:
    """Take a serial port for the way to the agent, from its greeting on; returns the key."""
    async with asyncio.timeout(GREETING_S):
        while True:
            try:
                reader, writer = await asyncio.open_unix_connection(port)
                break
            except OSError:
                await asyncio.sleep(0.1)
        while not (line := await reader.readline()).startswith(GREETING.encode()):
            assert line, "QEMU has ended"
    caller.channel.connect(StreamChannel(reader, writer))
    return line.decode().removeprefix(GREETING).strip()
