"""A host whose ``/sys`` and ``/dev`` are a folder, in which a little of Linux's PCI is played."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tare.hosts import Completed, LocalHost

CARD, OTHER = "0000:03:00.0", "0000:03:00.1"
DRIVER, VFIO = "igbvf", "vfio-pci"


class SriovHost(LocalHost):
    """A host with a folder in place of ``/sys`` and ``/dev``.

    Args:
        folder: The folder.
        takes: Whether vfio-pci takes a device that is meant for it.
    """

    def __init__(self, folder: Path, takes: bool = True) -> None:
        super().__init__()
        self.folder = folder
        self.takes = takes
        self.written: list[tuple[str, bytes]] = []
        for name in (DRIVER, VFIO):
            (self.sys / "bus/pci/drivers" / name).mkdir(parents=True)
        (self.sys / "class/net").mkdir(parents=True)
        (folder / "dev/vfio").mkdir(parents=True)

    @property
    def sys(self) -> Path:
        """What is ``/sys``."""
        return self.folder / "sys"

    def card(self, interface: str, address: str = CARD, functions: int = 0) -> None:
        """Add a card with so many functions, each with an interface of its own that is down."""
        device = self._device(address)
        (device / "sriov_totalvfs").write_text("8\n")
        (self.sys / "class/net" / interface).mkdir()
        (self.sys / "class/net" / interface / "device").symlink_to(device)
        for number in range(functions):
            own = address.replace(":00.", f":1{address[-1]}.")[:-1] + str(number)
            self._function(device, number, own, f"{interface}v{number}")

    def _device(self, address: str) -> Path:
        device = self.sys / "devices" / address
        device.mkdir(parents=True)
        (self.sys / "bus/pci/devices").mkdir(parents=True, exist_ok=True)
        (self.sys / "bus/pci/devices" / address).symlink_to(device)
        return device

    def _function(self, card: Path, number: int, address: str, interface: str) -> None:
        device = self._device(address)
        (card / f"virtfn{number}").symlink_to(device)
        (device / "vendor").write_text("0x8086\n")
        (device / "driver_override").write_text("(null)\n")
        (device / "driver").symlink_to(self.sys / "bus/pci/drivers" / DRIVER)
        groups = self.sys / "kernel/iommu_groups"
        group = groups / str(20 + (len(list(groups.iterdir())) if groups.is_dir() else 0))
        (group / "devices").mkdir(parents=True)
        (group / "devices" / address).symlink_to(device)
        (device / "iommu_group").symlink_to(group)
        own = device / "net" / interface
        own.mkdir(parents=True)
        (own / "flags").write_text("0x1002\n")
        (own / "mtu").write_text("1500\n")

    def device(self, address: str) -> Path:
        """Return a device's folder."""
        return self.sys / "devices" / address

    def driver(self, address: str) -> str:
        """Return the driver that has a device; empty: none."""
        link = self.device(address) / "driver"
        return link.readlink().name if link.is_symlink() else ""

    def _here(self, path: str | Path) -> Path:
        text = str(path)
        inside = text.startswith(("/sys/", "/dev/"))
        return self.folder / text[1:] if inside else Path(text)

    async def run(self, argv: Sequence[str], **how: Any) -> Completed:
        """Run a command that sees the folder."""
        return await super().run([a.replace("/sys/", f"{self.sys}/") for a in argv], **how)

    async def read(self, path: str | Path) -> bytes:
        """Read a file of the folder."""
        return await super().read(self._here(path))

    async def exists(self, path: str | Path) -> bool:
        """Return whether the folder has it."""
        return await super().exists(self._here(path))

    async def write(self, path: str | Path, data: bytes) -> None:
        """Do what Linux does where such a file is written."""
        self.written.append((str(path), data))
        name, text = Path(path).name, data.decode().strip()
        if name == "driver_override":
            self._here(path).write_text(f"{text or '(null)'}\n")
        elif name == "unbind":
            self._bound(text, "")
        elif name == "drivers_probe":
            wanted = (self.device(text) / "driver_override").read_text().strip()
            fits = DRIVER if wanted == "(null)" else wanted
            if fits != VFIO or self.takes:
                self._bound(text, fits)
        else:
            raise AssertionError(f"nobody writes to {path}")

    def _bound(self, address: str, driver: str) -> None:
        link = self.device(address) / "driver"
        group = self.folder / "dev/vfio" / (self.device(address) / "iommu_group").readlink().name
        link.unlink(missing_ok=True)
        group.unlink(missing_ok=True)
        if driver:
            link.symlink_to(self.sys / "bus/pci/drivers" / driver)
        if driver == VFIO:
            group.write_text("")

    def state(self) -> Mapping[str, str]:
        """Return all files and links of the folder, with what they hold."""
        return {
            str(path.relative_to(self.folder)): str(path.readlink())
            if path.is_symlink()
            else path.read_text()
            for path in sorted(self.folder.rglob("*"))
            if path.is_symlink() or path.is_file()
        }
