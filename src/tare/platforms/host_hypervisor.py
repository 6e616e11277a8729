"""Hypervisors with which a host is booted: they run below the kernel that Tare uses there."""

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
        scheduler: The scheduler with which it was booted, by its own name; empty: it offers no
            choice.
        cpus: The computer's number of CPUs, if the kernel above sees fewer; 0: the kernel sees all.
    """

    scheduler: str = ""
    cpus: int = 0


NO_DETAILS = Details()


async def no_details(host: Host) -> Details:
    """Return no details, for a hypervisor that reports nothing about itself."""
    return NO_DETAILS


@dataclass(frozen=True)
class HostHypervisor:
    """A hypervisor below the kernel of a host, which some platform's machines need there.

    Args:
        word: The word with which a statement's ``host_boot`` asks for it, and by which the boot
            menu of a host names it: letters and digits. A scheduler follows a colon, as in
            ``xen:credit``.
        name: Its usual name.
        signs: Files of the host, each with a text that it contains if this hypervisor is running;
            all of them must match.
        mark: The mark of an arm that should run without a hypervisor but runs above this one.
        details: Asks it for more details; called only after it was found running.
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
    """Return the word of the hypervisor in a boot entry's word; empty if it has none."""
    word = boot.partition("@")[0].partition(":")[0]
    return "" if word in _WITHOUT else word


class NeedsHypervisors(Protocol):
    """A platform, seen only as one that needs hypervisors below its host."""

    @property
    def host_hypervisors(self) -> tuple[HostHypervisor, ...]:
        """The hypervisors; one of them must run below the host for the platform's machines."""
        ...


def hypervisors_of(platforms: Iterable[NeedsHypervisors]) -> Mapping[str, HostHypervisor]:
    """Return the hypervisors that these platforms' hosts can be booted with, by their word."""
    return {each.word: each for platform in platforms for each in platform.host_hypervisors}
