"""The arm that is closest to a described machine, and the study that measures it."""

from __future__ import annotations

import os
import re
import textwrap
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from tare.errors import InputError
from tare.platforms.imported.model import Description
from tare.platforms.imported.parsing import cpu_set
from tare.refusals import message_of
from tare.study.model.shape import LEAST_DISK, LEAST_MEMORY, Shape
from tare.units import format_size

MEASURED_DISK = 1 << 30
"""The largest size of the study's disk in bytes: a disk's speed hardly depends on its size."""
MEMORY_PART = 3, 4
"""The largest part of a host's memory for the study's machines: numerator and denominator."""
WIDTH = 110
LOADS: Mapping[str, Mapping[str, Any]] = {
    "tick": {"samples": 20000},
    "switch": {"threads": [2, 100], "samples": 50000},
    "memory-bandwidth": {"duration": "50ms"},
    "numeric-sort": {"duration": "0.5s"},
}
DISK_LOAD: Mapping[str, Any] = {
    "workload": "filebench",
    "work": "random-read",
    "duration": "2s",
    "threads": 2,
}
_NO_SLUG = re.compile(r"[^a-z0-9._-]+")


@dataclass(frozen=True)
class Room:
    """The CPUs and memory that this host has for a machine.

    Args:
        cpus: The numbers of its CPUs.
        memory: Its memory in bytes.
        nodes: The numbers of its NUMA nodes.
        kvm: Whether it has KVM.
    """

    cpus: frozenset[int]
    memory: int
    nodes: frozenset[int] = frozenset({0})
    kvm: bool = True


def room_here() -> Room:
    """Find the CPUs, memory and NUMA nodes of this host, and whether it has KVM."""
    nodes = Path("/sys/devices/system/node/online")
    online = cpu_set(nodes.read_text()) if nodes.exists() else None
    return Room(
        frozenset(os.sched_getaffinity(0)),
        os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        frozenset(online or (0,)),
        os.access("/dev/kvm", os.R_OK | os.W_OK),
    )


@dataclass(frozen=True)
class Arm:
    """An arm in a study's form, and the parts of the description that were left out.

    Args:
        name: The arm's name.
        settings: The arm's options in a study's form.
        left: The parts of the description that are not carried over, with reasons.
        pinned: Whether each vCPU has its own CPU.
        carried: The parts of the description that were read.
        aside: The parts that are not carried over but have no effect on a measurement.
        has_disk: Whether the machine has a disk.
    """

    name: str
    settings: Mapping[str, Any]
    left: tuple[str, ...]
    pinned: bool = False
    carried: tuple[str, ...] = ()
    aside: tuple[str, ...] = ()
    has_disk: bool = False

    def text(self) -> str:
        """Return the arm as YAML, followed by comments that list the parts not carried over."""
        study: dict[str, Any] = {"arms": {self.name: dict(self.settings)}}
        if self.pinned:
            study["scenarios"] = {"pinned": {"subject": {"cpus": "pinned"}}}
        return yaml.safe_dump(study, sort_keys=False) + self._comments()

    def study(self, room: Room) -> str:
        """Return a study that compares the machine with the bare host, as YAML.

        Args:
            room: The CPUs and memory of this host; they limit the shape of all arms.
        """
        shape, options, lacking = self._fitting(room)
        arms: dict[str, Any] = {"bare": {"platform": "bare"}, "bare-again": {"twin-of": "bare"}}
        arms[f"{self.name}-vm" if self.name in arms else self.name] = options
        study: dict[str, Any] = {
            "study": _slug(self.name),
            "title": f"What the machine {self.name} costs",
            "baseline": "bare",
            "blocks": {"least": 8, "most": 8},
            "shape": shape,
            "arms": arms,
        }
        if self.pinned:
            study["scenarios"] = {"pinned": {"subject": {"cpus": "pinned"}}}
        study["workloads"] = {load: dict(settings) for load, settings in LOADS.items()}
        if "disk" in shape:
            study["workloads"]["disk"] = dict(DISK_LOAD)
        head = "# Made by `tare import`. Run it with `tare run FILE`.\n"
        head += "".join(f"# NOTE: {each}\n" for each in lacking)
        return head + yaml.safe_dump(study, sort_keys=False) + self._comments()

    def _fitting(self, room: Room) -> tuple[dict[str, Any], dict[str, Any], list[str]]:
        """Return the shape and options that fit this host, and notes on what the host lacks."""
        options = {key: value for key, value in self.settings.items() if key != "shape"}
        wanted = Shape.model_validate(dict(self.settings.get("shape", {})))
        lacking: list[str] = []
        vcpus, memory = min(wanted.vcpus, len(room.cpus)), wanted.memory
        part, whole = MEMORY_PART
        most = (room.memory * part // whole) >> 20 << 20
        if vcpus < wanted.vcpus:
            lacking.append(
                f"the machine has {wanted.vcpus} vCPUs and this host {len(room.cpus)} CPUs: all "
                f"arms have {vcpus}. On a host with more CPUs, write "
                f"`shape: {{vcpus: {wanted.vcpus}}}`."
            )
        if memory > most:
            lacking.append(
                f"the machine has {format_size(memory)} of memory and this host "
                f"{format_size(room.memory)}: all arms have {format_size(most)}. On a host with "
                f"more memory, write `shape: {{memory: {_size(memory)}}}`."
            )
            memory = most
        shape: dict[str, Any] = {"vcpus": vcpus, "memory": _size(memory)}
        if self.has_disk:
            disk = max(LEAST_DISK, min(wanted.disk or MEASURED_DISK, MEASURED_DISK))
            shape["disk"] = _size(disk)
            if wanted.disk > disk:
                lacking.append(
                    f"the machine's disk has {format_size(wanted.disk)}: a disk of "
                    f"{format_size(disk)} is enough to measure its speed."
                )
        lacking += _without_places(options, room, vcpus)
        if options.get("hugepages") and (pages := _pages(memory, options)):
            lacking.append(f"huge pages must be free on this host: {pages}.")
        if options.get("accelerator") == "kvm" and not room.kvm:
            lacking.append("this host has no KVM: the machine's arm is skipped here.")
        return shape, options, lacking

    def _comments(self) -> str:
        lines = "# Not carried over:\n" if self.left else ""
        lines += "".join(f"# - {each}\n" for each in self.left)
        if self.aside:
            lines += "# Not carried over either, as nothing that Tare measures uses it:\n"
            lines += _comment("; ".join(self.aside), "#   ", "#   ")
        return lines


def _comment(text: str, first: str, further: str) -> str:
    lines = textwrap.wrap(
        text,
        WIDTH,
        initial_indent=first,
        subsequent_indent=further,
        break_long_words=False,
        break_on_hyphens=False,
    )
    return "".join(f"{line}\n" for line in lines)


def _without_places(options: dict[str, Any], room: Room, vcpus: int) -> list[str]:
    """Remove options that name CPUs or a NUMA node that this host lacks; return the reasons."""
    reasons = []
    for option in ("emulator-cpus", "iothread-cpus"):
        cpus = options.get(option)
        if cpus == "other" and vcpus >= len(room.cpus):
            del options[option]
            reasons.append(f"`{option}: other` is left out: the vCPUs have all CPUs of this host.")
        if isinstance(cpus, list) and (missing := sorted(set(cpus) - room.cpus)):
            del options[option]
            numbers = ", ".join(map(str, missing))
            reasons.append(f"`{option}: {cpus}` is left out: this host has no CPU {numbers}.")
    node = options.get("numa-node")
    if node is not None and node not in room.nodes:
        del options["numa-node"]
        reasons.append(f"`numa-node: {node}` is left out: this host has no such NUMA node.")
    return reasons


def _pages(memory: int, options: Mapping[str, Any]) -> str:
    size = options.get("hugepage-size") or 2 << 20
    kib = size >> 10
    count = -(-memory // size)
    return f"echo {count} > /sys/kernel/mm/hugepages/hugepages-{kib}kB/nr_hugepages"


def arm_of(found: Description, source: str) -> Arm:
    """Return the arm that is closest to a description.

    Args:
        found: The description read so far.
        source: The description's file, for messages.

    Raises:
        InputError: The description contains no machine, or one that no arm can have.
    """
    nothing = found.vcpus is None and found.memory is None and not found.options
    if nothing and not found.described:
        raise InputError(f"{source}: describes no virtual machine")
    found.settle()
    options = _valid(found, source)
    shape = {"vcpus": found.vcpus, "memory": found.memory, "disk": found.disk}
    if shape["disk"] is not None and 0 < shape["disk"] < LEAST_DISK:
        found.leave(f"a disk of {format_size(shape['disk'])}", "Tare's have at least 32 MiB")
        shape["disk"] = None
    if shape["memory"] is not None and 0 < shape["memory"] < LEAST_MEMORY:
        found.leave(f"memory of {format_size(shape['memory'])}", "Tare's have at least 32 MiB")
        shape["memory"] = None
    size = {key: value for key, value in shape.items() if value}
    try:
        Shape.model_validate(size)
    except ValidationError as error:
        raise InputError(f"{source}: {_first(error)}") from None
    settings: dict[str, Any] = {"platform": found.platform}
    settings |= {name.replace("_", "-"): value for name, value in options.items()}
    if size:
        settings["shape"] = {
            key: value if key == "vcpus" else _size(value) for key, value in size.items()
        }
    if found.disk is None:
        found.leave("the disk's size and content", "write `shape: {disk: 10GiB}` for a new one")
    else:
        found.leave("the disk's content", "each machine gets a new disk")
    name = _slug(found.name)
    ledger = found.ledger
    has_disk = bool(found.disks) or found.disk is not None
    return Arm(
        name,
        settings,
        tuple(ledger.left),
        found.pinned,
        tuple(ledger.carried),
        tuple(ledger.aside),
        has_disk,
    )


def _slug(name: str) -> str:
    return _NO_SLUG.sub("-", name.lower()).strip("-._")[:40].strip("-._") or "imported"


def _valid(found: Description, source: str) -> dict[str, Any]:
    """Return the options that are valid together; leave out invalid ones with the reason."""
    options = dict(found.options)
    while True:
        try:
            found.model.model_validate(options)
        except ValidationError as error:
            blamed = _blamed(error, options)
            if blamed is None:
                raise InputError(f"{source}: {_first(error)}") from None
            found.leave(f"{blamed.replace('_', '-')} {options.pop(blamed)}", _first(error))
            continue
        return options


def _blamed(error: ValidationError, options: Mapping[str, Any]) -> str | None:
    """Return the option that a validation error is about; None if it is not known."""
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
