"""The options of a lab host."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from tare.errors import InputError
from tare.study.model.forms import PACKAGE
from tare.study.model.lab_nodes import Uneven, cpus_by_node
from tare.study.model.releases import Release

Hypervisor = Literal["kvm", "xen", "none"]
Scheduler = Literal["credit", "credit2", "rtds"]
WITH_RTDS = "rtds"
"""The value of ``xen`` for the Xen that Tare builds with that scheduler."""

CPU_MODEL = "EPYC"
"""The emulated processor: it has AMD's SVM with nested paging, which QEMU emulates."""

MIB = 1 << 20
GIB = 1 << 30
_LEAST_MEMORY = 512 * MIB
_MOST_CPUS = 64


@dataclass(frozen=True)
class LabOptions:
    """The options of a lab host.

    Args:
        hypervisor: ``kvm``, ``xen``, or ``none`` for the same Linux without either.
        cpus: CPUs of the emulated computer.
        memory: Its memory in bytes.
        scheduler: Xen's scheduler; None leaves Xen's default, credit2.
        deterministic: Whether its time is counted in instructions instead of measured, so that
            the same work takes the same time on every computer. Such a lab has one CPU.
        kernel: Its Linux: ``generic``, ``rt``, a package's name, or a file.
        xen: The file of its Xen; :data:`WITH_RTDS` for the one that Tare builds with that
            scheduler, which ``scheduler: rtds`` implies; empty for Debian's.
        qemu: The file of the QEMU that emulates it; empty for the one on the PATH.
        dom0_memory: Memory of Xen's dom0 in bytes.
        dom0_cpus: CPUs of Xen's dom0, each bound to the computer's CPU of the same number.
        disk: The size of its disk in bytes; the file is sparse.
        xen_arguments: Further arguments of Xen's command line.
        kernel_arguments: Further arguments of Linux's command line.
        release: The distribution's release of its packages; None for this computer's.
        nodes: NUMA nodes; CPUs and memory are distributed evenly.
        packages: Names of further packages for its disk.
        reboots: Whether it boots again if its Linux asks for that; otherwise it ends.

    Raises:
        InputError: A value is not possible.
    """

    hypervisor: Hypervisor = "kvm"
    cpus: int = 2
    memory: int = 4 * GIB
    scheduler: Scheduler | None = None
    deterministic: bool = False
    kernel: str = "generic"
    xen: str = ""
    qemu: str = ""
    dom0_memory: int = 1 * GIB
    dom0_cpus: int = 1
    disk: int = 16 * GIB
    xen_arguments: tuple[str, ...] = ()
    kernel_arguments: tuple[str, ...] = ()
    release: Release | None = None
    nodes: int = 1
    packages: tuple[str, ...] = ()
    reboots: bool = False

    def __post_init__(self) -> None:
        if self.hypervisor not in get_args(Hypervisor):
            raise InputError(
                f"there is no lab with the hypervisor {self.hypervisor!r}",
                f"use one of {', '.join(get_args(Hypervisor))}",
            )
        if not 1 <= self.cpus <= _MOST_CPUS:
            raise InputError(
                f"a lab with {self.cpus} CPUs is not possible", f"use 1 to {_MOST_CPUS}"
            )
        if self.deterministic and self.cpus != 1:
            # QEMU then runs all CPUs in turns, each until its next timer. A CPU that waits for
            # another in a loop waits forever, and Linux does not start its second CPU.
            raise InputError(
                f"a deterministic lab has one CPU, not {self.cpus}",
                "ask for one CPU, or for a lab that is not deterministic",
            )
        self._check_nodes_and_packages()
        if self.memory < _LEAST_MEMORY:
            raise InputError(
                f"a lab with {self.memory // MIB} MiB of memory does not boot",
                f"give it {_LEAST_MEMORY // MIB} MiB or more",
            )
        if self.hypervisor != "xen" and (self.scheduler or self.xen_arguments):
            raise InputError(
                f"a lab with the hypervisor {self.hypervisor} has no Xen to give arguments to",
                "use the hypervisor xen, or leave them away",
            )
        if self.hypervisor == "xen":
            self._check_xen()

    def _check_nodes_and_packages(self) -> None:
        if self.nodes < 1:
            raise InputError(
                f"a lab with {self.nodes} NUMA nodes is not possible",
                "use 1, or more that share its CPUs evenly",
            )
        try:
            cpus_by_node(self.cpus, self.nodes)
        except Uneven as error:
            raise InputError(str(error), error.hint) from None
        for name in self.packages:
            try:
                PACKAGE.require(name)
            except ValueError as error:
                raise InputError(
                    f"a package of the lab {error}", "name packages of its release, such as lvm2"
                ) from None

    def _check_xen(self) -> None:
        if self.scheduler not in (None, *get_args(Scheduler)):
            raise InputError(
                f"Xen has no scheduler {self.scheduler!r} here",
                f"use one of {', '.join(get_args(Scheduler))}",
            )
        if not 1 <= self.dom0_cpus <= self.cpus:
            raise InputError(f"dom0 cannot have {self.dom0_cpus} of {self.cpus} CPUs")
        # Xen and its own tables take some 200 MiB of such a computer.
        if self.dom0_memory + 256 * MIB > self.memory:
            raise InputError(
                f"dom0's {self.dom0_memory // MIB} MiB leave nothing of the lab's "
                f"{self.memory // MIB} MiB for Xen",
                "give the lab more memory, or dom0 less",
            )
