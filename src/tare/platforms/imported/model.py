"""A description of a virtual machine, translated to an arm's options."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from pydantic import BaseModel

from tare.platforms.imported.notes import ImportNotes, Values
from tare.platforms.imported.parsing import parse_whole_number
from tare.platforms.qemu.disk_options import DiskOptions
from tare.platforms.qemu.options import QemuOptions

LONGEST = 4 << 20
"""The longest description, in bytes; a longer file is not considered a description."""
PARAVIRTUAL, EMULATED = "paravirtual", "emulated"
NICS = {"virtio": PARAVIRTUAL, "e1000": EMULATED}
"""The kind of devices that each network card belongs to."""
OTHER_NICS = ("e1000e", "rtl8139", "vmxnet3", "tulip")
"""The cards that the option `nic` can name; no other card is carried over."""
FORMATS = ("raw", "qcow2")
"""The formats of a disk's file, as the option `disk-format` names them."""
PARAVIRTUAL_BUSES = frozenset({"virtio", "scsi", "nvme"})
BUSES = {
    "virtio": "virtio-blk",
    "scsi": "virtio-scsi",
    "nvme": "nvme",
    "sata": "ahci",
    "ide": "ide",
}
"""The bus in the option `disk-bus`, by QEMU's name for the bus."""
CACHE_OF_QEMU = "writeback"
"""QEMU's default cache mode of a disk (qemu-system-x86_64(1), ``-drive cache=``)."""
FIRMWARE = "UEFI firmware", "the kernel is booted directly"
BOOTS = "what it boots", "the kernel of the study is booted"
ONE_DISK = "Tare's machines have one disk"
_CACHES = ("none", "writeback", "writethrough", "directsync", "unsafe")
_AIO = ("threads", "native", "io_uring")
_BOARDS = (
    (re.compile(r"pc-q35"), "q35"),
    # Before QEMU 1.3, the versions of the older mainboard did not name the chipset.
    (re.compile(r"pc-(?:i440fx|[01]\.\d)"), "pc"),
)
_LAST = 1 << 30


@dataclass
class Disk:
    """A disk of a description.

    Args:
        bus: The bus by QEMU's name: ``virtio``, ``scsi``, ``sata``, ``ide``, ``nvme``.
        cache: The cache mode; empty: not given.
        aio: The way QEMU does I/O on it; empty: not given.
        size: The size in bytes; None: not given.
        kept: The format of its file, or ``block`` for a block device; empty: not given.
        queues: The number of queues; None: not given.
        thread: The name of its I/O thread; empty: it has no I/O thread of its own.
        boot: Its position in the boot order; None: not given.
        notes: The parts that are not carried over if this disk is, with reasons.
    """

    bus: str
    cache: str = ""
    aio: str = ""
    size: int | None = None
    kept: str = ""
    queues: int | None = None
    thread: str = ""
    boot: int | None = None
    notes: list[tuple[str, str]] = field(default_factory=list)

    def leave(self, what: str, why: str = "") -> None:
        """Note that a part of this disk is not carried over."""
        self.notes.append((what, why))


@dataclass
class Description:
    """The contents of a description, collected while it is read.

    Args:
        name: The machine's name.
        vcpus: The number of vCPUs; None: not given.
        memory: The memory size in bytes; None: not given.
        disk: The size of the disk that is carried over, in bytes; None: not given.
        options: Options of the platform, by their names in Python.
        pinned: Whether each vCPU has its own CPU, which becomes a scenario.
        platform: The platform that the options belong to.
        model: The class of the options.
        attaches: Whether the options can say how disk and network card are attached.
        described: Whether the description certainly describes a virtual machine.
    """

    name: str = ""
    vcpus: int | None = None
    memory: int | None = None
    disk: int | None = None
    options: dict[str, Any] = field(default_factory=dict)
    pinned: bool = False
    platform: str = "qemu"
    model: type[BaseModel] = QemuOptions
    attaches: bool = True
    described: bool = False
    disks: list[Disk] = field(default_factory=list)
    ledger: ImportNotes = field(default_factory=ImportNotes)
    _nics: int = 0
    _bus: str = ""
    _card: str = ""
    _scsi: dict[str, Any] = field(default_factory=dict)
    _nodes: dict[str, None] = field(default_factory=dict)

    def leave(self, what: str, why: str = "") -> None:
        """Note that a part is not carried over; see :meth:`ImportNotes.leave`."""
        self.ledger.leave(what, why)

    def carry(self, what: str) -> None:
        """Note that a part was read."""
        self.ledger.carry(what)

    def set_aside(self, what: str) -> None:
        """Note that a part is not carried over, but has no effect on a measurement."""
        self.ledger.set_aside(what)

    def close_each(
        self,
        values: Values,
        why: Callable[[str, str], str | None],
        words: Callable[[str, str], str] | None = None,
    ) -> None:
        """List all values of a whole source; see :meth:`ImportNotes.close_each`."""
        self.ledger.close_each(values, why, words)

    def close(
        self, part: Values, why: Mapping[str, str] | None = None, aside: Collection[str] = ()
    ) -> None:
        """List all unread values of a part; see :meth:`ImportNotes.close`."""
        self.ledger.close(part, why, aside)

    def board(self, word: str) -> None:
        """Import a mainboard by a name such as ``pc-q35-7.2``."""
        known = {"q35": "q35", "pc": "pc", "microvm": "microvm"}
        kind = next((mine for form, mine in _BOARDS if form.match(word)), known.get(word, ""))
        if not kind:
            self.leave(f"mainboard {word}", f"`{self.options.get('machine', 'q35')}` is taken")
            return
        self.options["machine"] = kind
        self.carry(f"mainboard {word}")
        if kind != word:
            self.leave(f"mainboard {word}", f"the newest `{kind}` of the host's QEMU is taken")

    def add_disk(self, disk: Disk) -> None:
        """Add a disk; only the one that boots first is carried over, without its content."""
        self.disks.append(disk)

    @property
    def chosen_disk(self) -> Disk | None:
        """The disk that is carried over: the first in the boot order, else the first."""
        return min(
            self.disks, key=lambda disk: _LAST if disk.boot is None else disk.boot, default=None
        )

    def add_nic(self, model: str, queues: int | None = None) -> bool:
        """Import a network interface, to the extent that Tare's machines support it.

        Args:
            model: The model by QEMU's name; ``virtio`` for all of its variants.
            queues: The number of queue pairs; None: not given.

        Returns:
            Whether it is the first interface; only the first may have more settings.
        """
        self._nics += 1
        if self._nics > 1:
            self.leave(f"network interface {self._nics} ({model})", "a machine of Tare's has one")
            return False
        self.carry(f"network interface {model}")
        if model in NICS:
            self._card = NICS[model]
        elif model in OTHER_NICS:
            self.options["nic"] = model
        else:
            known = ", ".join((*NICS, *OTHER_NICS))
            self.leave(f"network interface {model}", f"Tare has {known}")
        if queues is not None and queues > 1:
            self.options["nic_queues"] = queues
        return True

    def serve_scsi(self, queues: int | None, thread: str) -> None:
        """Import the settings of a virtio-scsi controller; they apply if the disk is on it.

        Args:
            queues: The number of queues; None: not given.
            thread: The name of its I/O thread; empty: it has no I/O thread of its own.
        """
        if queues:
            self._scsi.setdefault("disk_queues", queues)
        if thread:
            self._scsi["iothread"] = True

    def bind_memory(self, nodes: str) -> None:
        """Import the NUMA nodes of the memory, as a list such as ``0`` or ``0-1``."""
        self._nodes.setdefault(nodes)
        node = parse_whole_number(nodes)
        if node is not None and len(self._nodes) == 1:
            self.options["numa_node"] = node
        else:
            self.options.pop("numa_node", None)
            listed = ", ".join(self._nodes)
            self.leave(f"memory of the NUMA nodes {listed}", "write `numa-node`, which is one")

    def schedule(self, **settings: Any) -> None:
        """Import scheduling settings, by their names in the option `scheduling`."""
        self.options.setdefault("scheduling", {}).update(settings)

    def huge_pages(self, size: int | None = None) -> None:
        """Record that the memory consists of huge pages; their size is in bytes."""
        self.options["hugepages"] = True
        # Tare always touches huge pages before the start.
        self.options.pop("prealloc", None)
        if size is not None:
            self.options["hugepage_size"] = size

    def touch_memory(self) -> None:
        """Record that all memory is touched before the machine starts."""
        if "hugepages" not in self.options:
            self.options["prealloc"] = True

    def settle(self) -> None:
        """Choose the disk and its bus, and the kind of devices by the network card."""
        if not self.attaches:
            return
        self.options.setdefault("accelerator", "kvm")
        self._settle_disk()
        if self._bus == "scsi":
            self.options |= self._scsi
        if not self._bus and not self._card:
            if "nic" in self.options:
                self.options["devices"] = EMULATED
            return
        disk = PARAVIRTUAL if self._bus in PARAVIRTUAL_BUSES else EMULATED
        self.options["devices"] = self._card or disk
        if self._bus not in BUSES:
            if self._bus:
                self.leave(f"disk on {self._bus}", "the usual bus is taken")
            return
        board = self.options.get("machine", "q35")
        # On q35, QEMU attaches an `ide-hd` to the mainboard's AHCI controller.
        wanted = BUSES[self._bus] if (self._bus, board) != ("ide", "q35") else "ahci"
        # Leave the bus out if it is the default for the kind of devices.
        usual = DiskOptions.model_construct(
            devices=self.options["devices"], machine=board, disk_bus="auto"
        ).bus
        if wanted != usual:
            self.options["disk_bus"] = wanted

    def _settle_disk(self) -> None:
        chosen = self.chosen_disk
        for number, disk in enumerate(self.disks, start=1):
            if disk is not chosen:
                self.leave(f"disk {number} on {disk.bus}", ONE_DISK)
        if chosen is None:
            return
        self.disk, self._bus = chosen.size, chosen.bus
        self._take_known("disk_cache", chosen.cache, _CACHES)
        self._take_known("disk_aio", chosen.aio, _AIO)
        if chosen.kept == "block":
            self.options["disk_format"] = "block"
            self.leave("a block device of the host", "a loop device over a new file is taken")
        elif chosen.kept in FORMATS:
            if chosen.kept != "raw":
                self.options["disk_format"] = chosen.kept
        elif chosen.kept:
            self.leave(f"disk format {chosen.kept}", "raw is taken")
        if chosen.queues:
            self.options["disk_queues"] = chosen.queues
        if chosen.thread:
            self.options["iothread"] = True
        for what, why in chosen.notes:
            self.leave(what, why)

    def _take_known(self, option: str, value: str, known: tuple[str, ...]) -> None:
        if value in known:
            self.options[option] = value
        elif value not in ("", "default", "on"):
            self.leave(f"{option.replace('_', ' ')} {value}")
