"""Hypervisors that a host is booted with: they run below the kernel from which Tare works."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from tare.platforms.statement import ANY_BOOT, KVM_BOOT, NO_HYPERVISOR, TAKES_HOST

if TYPE_CHECKING:
    from tare.hosts import Host

_WITHOUT = frozenset({"", ANY_BOOT, KVM_BOOT, NO_HYPERVISOR, TAKES_HOST})


@dataclass(frozen=True)
class Details:
    """Facts that a hypervisor below a host's kernel reports about itself.

    Args:
        scheduler: The scheduler it was booted with, by its own name; empty: it has none to choose.
        cpus: How many CPUs the computer has, where the kernel above it sees fewer; 0: as it sees.
    """

    scheduler: str = ""
    cpus: int = 0


NO_DETAILS = Details()


async def no_details(host: Host) -> Details:
    """Return nothing: that it is there is all there is to know."""
    return NO_DETAILS


@dataclass(frozen=True)
class HostHypervisor:
    """A hypervisor below the kernel of a host, which some platform's machines need there.

    Args:
        word: How a statement's ``host_boot`` begins that asks for it, and how the boot menu of a
            host names it: letters and digits. A scheduler follows a colon, as in ``xen:credit``.
        name: What people call it.
        signs: Files of the host to the words that each holds where this hypervisor is running; all
            of them must.
        mark: How an arm is marked that should run without a hypervisor and runs above this one.
        details: Asks it for the rest; only where it was found to be running.
    """

    word: str
    name: str
    signs: Mapping[str, str]
    mark: str
    details: Callable[[Host], Awaitable[Details]] = no_details

    def __post_init__(self) -> None:
        if not self.word.isalnum() or self.word in _WITHOUT:
            raise ValueError(
                f"{self.word!r} is not a hypervisor's name; write only letters and digits"
            )
        if not self.signs:
            raise ValueError(f"{self.name} has no sign that shows whether it is running")


def hypervisor_of(boot: str) -> str:
    """Return the word of the hypervisor that a boot puts below the host's kernel; empty: none."""
    word = boot.partition("@")[0].partition(":")[0]
    return "" if word in _WITHOUT else word


class NeedsHypervisors(Protocol):
    """A platform, as far as hypervisors below a host are concerned."""

    @property
    def host_hypervisors(self) -> tuple[HostHypervisor, ...]:
        """Those that a host must be booted with for its machines."""
        ...


def hypervisors_of(platforms: Iterable[NeedsHypervisors]) -> Mapping[str, HostHypervisor]:
    """Return the hypervisors that these platforms' hosts can be booted with, by their word."""
    return {each.word: each for platform in platforms for each in platform.host_hypervisors}
