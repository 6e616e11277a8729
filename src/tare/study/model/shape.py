"""The size of a machine: its virtual CPUs, memory and disk."""

from __future__ import annotations

from typing import Annotated, Final, Literal

from pydantic import AfterValidator, BeforeValidator, Field

from tare.study.reading.hosting import StudyPart
from tare.units import Size, format_size

LEAST_MEMORY = 32 << 20
"""Bytes. With less, no Linux kernel with an initramfs boots."""
LEAST_DISK = 32 << 20
"""Bytes. A smaller ext4 has no room for its journal and data."""
MOST_VCPUS = 4096


def _enough_memory(value: int) -> int:
    if value < LEAST_MEMORY:
        meant = f"; a number without a unit counts bytes: write {value}MiB" if value < 65536 else ""
        raise ValueError(
            f"{format_size(value)} is too little memory for any machine; "
            f"give at least {format_size(LEAST_MEMORY)}{meant if value else ''}"
        )
    return value


Memory = Annotated[Size, AfterValidator(_enough_memory)]
"""Bytes, enough for a machine."""


def _disk_or_none(value: int) -> int:
    if value and value < LEAST_DISK:
        raise ValueError(
            f"{format_size(value)} is too small a disk for a file system with a journal; "
            f"give at least {format_size(LEAST_DISK)}, or 0 for none"
        )
    return value


class Shape(StudyPart):
    """The size of a machine."""

    vcpus: int = Field(1, ge=1, le=MOST_VCPUS, description="Number of virtual CPUs.")
    memory: Memory = Field(
        256 << 20, description="Main memory, in bytes or with a unit, at least 32 MiB."
    )
    disk: Annotated[Size, AfterValidator(_disk_or_none)] = Field(
        0,
        description="A disk of the machine's own, at least 32 MiB, for workloads on files: an ext4 "
        "in a file of the host, new for every machine. 0: none.",
    )


ALL: Final = "all"
SPARE: Final = "spare"
SPARED_CPUS = 2
"""The CPUs of a host that `spare` leaves free: one for a client, one for its server."""


def spare_vcpus(shape: int, host_cpus: int) -> int:
    """Return the number of vCPUs that `spare` gives a machine."""
    return max(1, min(shape, host_cpus - SPARED_CPUS))


def _vcpus(value: object) -> object:
    whole = isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= MOST_VCPUS
    if not whole and value not in (ALL, SPARE):
        raise ValueError(f"must be a whole number from 1 to {MOST_VCPUS}, `{ALL}` or `{SPARE}`")
    return value


Vcpus = Annotated[
    Annotated[int, Field(ge=1, le=MOST_VCPUS)] | Literal["all", "spare"], BeforeValidator(_vcpus)
]


def subject_vcpus(wanted: Vcpus | None, slave: int | None, shape: int, host_cpus: int) -> int:
    """Return a subject's number of vCPUs in a scenario.

    Args:
        wanted: The scenario's value for the subject.
        slave: Its value for slaves, if the subject is one.
        shape: The value of the arm's shape.
        host_cpus: Number of CPUs of the host, for `all` and `spare`.
    """
    if wanted == ALL:
        return host_cpus
    if wanted == SPARE:
        return spare_vcpus(shape, host_cpus)
    return wanted or slave or shape
