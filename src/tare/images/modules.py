"""Kernel modules: which ones a machine needs, and the order in which they load.

A package carries no ``modules.dep`` (its installation would generate it), so the order is read
from the modules themselves: the ``.modinfo`` section holds ``depends=`` and ``name=`` strings.
"""

from __future__ import annotations

import gzip
import lzma
import struct
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from tare.images.vmlinux import NotExtractable, decompress_zstd

NEEDS: Mapping[str, tuple[str, ...]] = {
    # The channel's drivers come first, so that the agent can connect early.
    "virtio": ("virtio_pci", "virtio_console", "virtio_net", "virtio_blk"),
    "virtio-mmio": ("virtio_mmio", "virtio_console", "virtio_net", "virtio_blk"),
    # For a guest that runs guests of its own; one of the two fits its processor.
    "outer": ("kvm_amd", "kvm_intel"),
    "vsock": ("vmw_vsock_virtio_transport",),
    # Model-specific registers as files, for the workload `exits`.
    "msr": ("msr",),
    "virtio-scsi": ("virtio_scsi", "sd_mod"),
    "nvme": ("nvme",),
    "e1000": ("e1000",),
    "e1000e": ("e1000e",),
    "rtl8139": ("8139cp",),
    "vmxnet3": ("vmxnet3",),
    "tulip": ("tulip",),
    # The drivers of most cards' virtual functions: Intel's of 1, 10 and 40 Gbit/s up, Mellanox's.
    "virtual-function": ("igbvf", "ixgbevf", "iavf", "mlx5_core"),
    "ahci": ("ahci", "sd_mod"),
    "ide": ("ata_piix", "sd_mod"),
    # Xen's console, buses and platform device are built into every kernel that boots under it.
    "xen": ("xen_netfront", "xen_blkfront"),
    "emulated": ("e1000", "ahci", "ata_piix", "sd_mod"),
    "ext4": ("crc32c_generic", "ext4"),
    # Without some implementation of crc32c the library that erofs needs does not load.
    "erofs": ("crc32c_generic", "erofs", "loop"),
    "squashfs": ("squashfs", "loop"),
}
"""The modules for each need, as :func:`tare.images.guest_image.build_guest_image` names it."""

_SUFFIXES = (".ko", ".ko.xz", ".ko.zst", ".ko.gz")


@dataclass(frozen=True)
class Module:
    """One module: its name with underscores, its file, and the modules it needs."""

    name: str
    path: Path
    depends: tuple[str, ...]
    data: bytes


class ModuleTree:
    """The modules of one kernel.

    Args:
        root: The directory ``/lib/modules/VERSION``, or a copy of it.
    """

    def __init__(self, root: Path) -> None:
        self._files: dict[str, Path] = {}
        for path in sorted(root.rglob("*.ko*")):
            if path.name.endswith(_SUFFIXES):
                self._files[plain_module_name(path)] = path
        lines = _lines(root / "modules.builtin")
        self.builtin = "".join(f"{line}\n" for line in lines)
        """The text of ``modules.builtin``, which lists the drivers built into the kernel."""
        self._builtin = {plain_module_name(line) for line in lines}
        self._read: dict[str, Module] = {}

    def missing(self, names: Iterable[str]) -> tuple[str, ...]:
        """Return those of ``names`` that are neither modules of this kernel nor built in."""
        return tuple(
            name
            for name in names
            if _plain(name) not in self._files and _plain(name) not in self._builtin
        )

    def module(self, name: str) -> Module:
        """Read one module.

        Raises:
            KeyError: There is no such module.
            NotExtractable: Its file cannot be decompressed here.
        """
        name = _plain(name)
        if name not in self._read:
            path = self._files[name]
            data = _content(path)
            self._read[name] = Module(name, path, _depends(data), data)
        return self._read[name]

    def sort_by_dependency(self, names: Iterable[str]) -> tuple[Module, ...]:
        """Return the modules and their dependencies, each after those it depends on.

        Built-in modules are left out, and so are missing ones (see :meth:`missing`).
        """
        ordered: dict[str, Module] = {}
        under_way: set[str] = set()

        def add(name: str) -> None:
            if name in ordered or name in under_way or name not in self._files:
                return
            under_way.add(name)
            module = self.module(name)
            for needed in module.depends:
                add(needed)
            ordered[name] = module

        for name in names:
            add(_plain(name))
        return tuple(ordered.values())


def dependencies(file: Path) -> tuple[str, ...]:
    """Return the names of the modules that a module's file needs.

    Raises:
        NotExtractable: It is not a module, or it cannot be decompressed.
    """
    return _depends(_content(file))


def plain_module_name(file: str | Path) -> str:
    """Return a module's name, as the kernel lists it, from its name or its file."""
    return _plain(Path(file).name.split(".ko")[0])


def _depends(module: bytes) -> tuple[str, ...]:
    (listed, *_) = modinfo(module).get("depends", ("",))
    return tuple(_plain(part) for part in listed.split(",") if part)


def modinfo(module: bytes) -> dict[str, tuple[str, ...]]:
    """Return the ``key=value`` strings of a module's ``.modinfo`` section.

    Args:
        module: An uncompressed 64-bit little-endian ELF object.

    Raises:
        NotExtractable: It is not one, or it has no such section.
    """
    if module[:6] != b"\x7fELF\x02\x01":
        raise NotExtractable("it is not a 64-bit little-endian ELF module")
    if len(module) < 64:
        raise NotExtractable("it is cut short")
    (table,) = struct.unpack_from("<Q", module, 0x28)
    size, count, names_at = struct.unpack_from("<HHH", module, 0x3A)

    def section(index: int) -> tuple[int, int, int]:
        name, _, _, _, offset, length = struct.unpack_from("<IIQQQQ", module, table + index * size)
        return name, offset, length

    try:
        names = section(names_at)[1]
        for index in range(count):
            name, offset, length = section(index)
            if module.startswith(b".modinfo\0", names + name):
                return _pairs(module[offset : offset + length])
    except struct.error as error:
        raise NotExtractable("its section table is damaged") from error
    raise NotExtractable("it has no .modinfo section")


def _pairs(section: bytes) -> dict[str, tuple[str, ...]]:
    found: dict[str, tuple[str, ...]] = {}
    for part in section.split(b"\0"):
        key, equals, value = part.decode(errors="replace").partition("=")
        if equals:
            found[key] = (*found.get(key, ()), value)
    return found


def _content(path: Path) -> bytes:
    data = path.read_bytes()
    try:
        match path.suffix:
            case ".xz":
                return lzma.decompress(data)
            case ".gz":
                return gzip.decompress(data)
            case ".zst":
                return decompress_zstd(data)
            case _:
                return data
    except (lzma.LZMAError, zlib.error, OSError, EOFError) as error:
        raise NotExtractable(f"{path.name} is damaged: {error}") from error


def _plain(name: str) -> str:
    return name.replace("-", "_")


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text().splitlines()
    except OSError:
        return []
