"""An arm of the same shape as a virtual machine elsewhere, and what of that it has not."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import yaml
from pydantic import ValidationError

from tare.errors import InputError
from tare.platforms.imported.numbers import whole
from tare.platforms.qemu.disk_options import DiskOptions
from tare.platforms.qemu.options import QemuOptions
from tare.refusals import message_of
from tare.study.quantities import format_size
from tare.study.shape import Shape

LONGEST = 4 << 20
"""Bytes of a description; a larger file is none."""
PARAVIRTUAL, EMULATED = "paravirtual", "emulated"
NICS = {"virtio": PARAVIRTUAL, "e1000": EMULATED}
"""The network cards that each kind of devices brings along."""
OTHER_NICS = ("e1000e", "rtl8139", "vmxnet3", "tulip")
"""Those that the option `nic` names; of what is none of these, nothing is carried over."""
FORMATS = ("raw", "qcow2")
"""What a disk's file can be, in the words of the option `disk-format`."""
PARAVIRTUAL_BUSES = frozenset({"virtio", "scsi", "nvme"})
BUSES = {
    "virtio": "virtio-blk",
    "scsi": "virtio-scsi",
    "nvme": "nvme",
    "sata": "ahci",
    "ide": "ide",
}
"""QEMU's word for a disk's bus to that of the option `disk-bus`."""
CACHE_OF_QEMU = "writeback"
"""How QEMU caches a disk of which nothing is said (qemu-system-x86_64(1), ``-drive cache=``)."""
CPU_OF_QEMU = "qemu64"
"""The processor that QEMU's x86 machines have where none is said, under KVM too."""
_NO_SLUG = re.compile(r"[^a-z0-9._-]+")
_CACHES = ("none", "writeback", "writethrough", "directsync", "unsafe")
_AIO = ("threads", "native", "io_uring")
_BOARDS = (
    (re.compile(r"pc-q35"), "q35"),
    # Before QEMU 1.3 the older one's versions were without its chipset's name.
    (re.compile(r"pc-(?:i440fx|[01]\.\d)"), "pc"),
)
_UNPRINTABLE = re.compile(r"[^ -~]+")


@dataclass
class Found:
    """What a description says, gathered while it is read.

    Args:
        name: What the machine is called.
        vcpus: How many it has; None: not said.
        memory: Its memory in bytes; None: not said.
        disk: The size of its first disk in bytes; None: not said.
        options: Options of the platform ``qemu``, by their names in Python.
        left: What is not carried over, a few words each.
        pinned: Whether each vCPU has a CPU of its own, which a scenario says.
    """

    name: str = ""
    vcpus: int | None = None
    memory: int | None = None
    disk: int | None = None
    options: dict[str, Any] = field(default_factory=dict)
    left: list[str] = field(default_factory=list)
    pinned: bool = False
    _disks: int = 0
    _nics: int = 0
    _bus: str = ""
    _card: str = ""
    _scsi: dict[str, Any] = field(default_factory=dict)

    def leave(self, what: str, why: str = "") -> None:
        """Note that something is not carried over.

        Args:
            what: In the words of the description.
            why: The reason or what to write instead; may be empty.
        """
        # Its words are an outsider's: they are shown on one line, without control characters.
        plain = _UNPRINTABLE.sub(" ", what).strip()[:200]
        why = "".join(char if char.isprintable() else " " for char in why)
        said = f"{plain}: {why}" if why else plain
        if said not in self.left:
            self.left.append(said)

    def board(self, word: str) -> None:
        """Take a mainboard's name such as ``pc-q35-7.2``."""
        known = {"q35": "q35", "pc": "pc", "microvm": "microvm"}
        kind = next((mine for form, mine in _BOARDS if form.match(word)), known.get(word, ""))
        if not kind:
            self.leave(f"mainboard {word}")
            return
        self.options["machine"] = kind
        if kind != word:
            self.leave(f"mainboard {word}", f"the newest `{kind}` of the host's QEMU is taken")

    @property
    def disks(self) -> int:
        """How many disks were taken so far."""
        return self._disks

    def add_disk(self, bus: str, cache: str = "", aio: str = "", size: int | None = None) -> None:
        """Take a disk: the first is carried over, without what is on it.

        Args:
            bus: As QEMU calls it: ``virtio``, ``scsi``, ``sata``, ``ide``, ``nvme``.
            cache: Its cache mode; empty: not said.
            aio: How it is driven; empty: not said.
            size: In bytes; None: not said.
        """
        self._disks += 1
        if self._disks > 1:
            self.leave(f"disk {self._disks} on {bus}", "a machine of Tare's has one disk")
            return
        self.disk = size
        self._bus = bus
        self._one_of("disk_cache", cache, _CACHES)
        self._one_of("disk_aio", aio, _AIO)

    def disk_kept_as(self, form: str) -> None:
        """Take the format of the disk's file, such as ``qcow2``."""
        if form in FORMATS:
            if form != "raw":
                self.options["disk_format"] = form
        else:
            self.leave(f"disk format {form}", "raw is taken")

    def add_nic(self, model: str, queues: int | None = None) -> bool:
        """Take a network interface, as far as Tare's machines have it.

        Args:
            model: As QEMU calls it; ``virtio`` for all of its names.
            queues: Its pairs of queues; None: not said.

        Returns:
            Whether it is the first, of which more may be taken.
        """
        self._nics += 1
        if self._nics > 1:
            self.leave(f"network interface {self._nics} ({model})", "a machine of Tare's has one")
            return False
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

    def serve_scsi(self, queues: int | None, thread: bool) -> None:
        """Take what a controller of virtio-scsi says, in case that the disk is on it.

        Args:
            queues: How many it has; None: not said.
            thread: Whether it has a thread of its own.
        """
        if queues:
            self._scsi.setdefault("disk_queues", queues)
        if thread:
            self._scsi["iothread"] = True

    def bind_memory(self, nodes: str) -> None:
        """Take the NUMA nodes that the memory comes from, as a list such as ``0`` or ``0-1``."""
        if (node := whole(nodes)) is not None:
            self.options["numa_node"] = node
        else:
            self.leave(f"memory of the NUMA nodes {nodes}", "write `numa-node`, which is one")

    def schedule(self, **said: Any) -> None:
        """Take how the machine is scheduled, by the names of the option `scheduling`."""
        self.options.setdefault("scheduling", {}).update(said)

    def settle(self) -> None:
        """Choose the kind of devices by the network card, and the disk's bus beside it."""
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
        # On q35 QEMU attaches an `ide-hd` to the mainboard's AHCI.
        wanted = BUSES[self._bus] if (self._bus, board) != ("ide", "q35") else "ahci"
        # What the kind of devices brings along need not be said.
        usual = DiskOptions.model_construct(
            devices=self.options["devices"], machine=board, disk_bus="auto"
        ).bus
        if wanted != usual:
            self.options["disk_bus"] = wanted

    def _one_of(self, option: str, said: str, known: tuple[str, ...]) -> None:
        if said in known:
            self.options[option] = said
        elif said not in ("", "default", "on"):
            self.leave(f"{option.replace('_', ' ')} {said}")


@dataclass(frozen=True)
class Arm:
    """An arm as a study has it, and what of its model was left out."""

    name: str
    said: Mapping[str, Any]
    left: tuple[str, ...]
    pinned: bool = False

    def text(self) -> str:
        """Return it as YAML; what is left out stands below, as comments."""
        study: dict[str, Any] = {"arms": {self.name: dict(self.said)}}
        if self.pinned:
            study["scenarios"] = {"pinned": {"subject": {"cpus": "pinned"}}}
        arm = yaml.safe_dump(study, sort_keys=False)
        if not self.left:
            return str(arm)
        lines = "".join(f"# - {each}\n" for each in self.left)
        return f"{arm}# Not carried over:\n{lines}"


def arm_of(found: Found, source: str) -> Arm:
    """Return the arm of the platform ``qemu`` that comes nearest to what a description says.

    Args:
        found: What was gathered.
        source: The description's file, for messages.

    Raises:
        InputError: It describes no machine.
    """
    if found.vcpus is None and found.memory is None and not found.options:
        raise InputError(f"{source}: describes no virtual machine")
    found.settle()
    options = _valid(found, source)
    shape = {"vcpus": found.vcpus, "memory": found.memory, "disk": found.disk}
    size = {key: value for key, value in shape.items() if value}
    try:
        Shape.model_validate(size)
    except ValidationError as error:
        raise InputError(f"{source}: {_first(error)}") from None
    said: dict[str, Any] = {"platform": "qemu"}
    said |= {name.replace("_", "-"): value for name, value in options.items()}
    if size:
        said["shape"] = {
            key: value if key == "vcpus" else _size(value) for key, value in size.items()
        }
    if found.disk is None:
        found.leave("the disk's size and content", "write `shape: {disk: 10GiB}` for a new one")
    else:
        found.leave("the disk's content", "each machine gets a new disk")
    name = _NO_SLUG.sub("-", found.name.lower()).strip("-._")[:40] or "imported"
    return Arm(name, said, tuple(found.left), found.pinned)


def _valid(found: Found, source: str) -> dict[str, Any]:
    """Return the options that go together; one that does not is left out with the reason."""
    options = dict(found.options)
    options.setdefault("accelerator", "kvm")
    while True:
        try:
            QemuOptions.model_validate(options)
        except ValidationError as error:
            blamed = _blamed(error, options)
            if blamed is None:
                raise InputError(f"{source}: {_first(error)}") from None
            found.leave(f"{blamed.replace('_', '-')} {options.pop(blamed)}", _first(error))
            continue
        return options


def _blamed(error: ValidationError, options: Mapping[str, Any]) -> str | None:
    """Return which option is to go for the others to be whole."""
    place = error.errors()[0]["loc"]
    if place and place[0] in options:
        return str(place[0])
    words = _first(error)
    return next((name for name in options if f"{name.replace('_', '-')}" in words), None)


def _first(error: ValidationError) -> str:
    return message_of(error.errors()[0])


def _size(value: int) -> str | int:
    text = format_size(value).replace(" ", "")
    units = {"TiB": 1 << 40, "GiB": 1 << 30, "MiB": 1 << 20, "KiB": 1 << 10}
    for unit, factor in units.items():
        if value % factor == 0 and text.endswith(unit) and text == f"{value // factor}{unit}":
            return text
    return value
