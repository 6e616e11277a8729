"""The hypervisor below a host's kernel, and the mark of an arm that is measured there."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from tare.platforms.contract import ANY_BOOT, NO_HYPERVISOR
from tare.platforms.host_hypervisor import (
    NO_DETAILS,
    Details,
    HostHypervisor,
    NeedsHypervisors,
    hypervisor_of,
    hypervisors_of,
)
from tare.study.model.releases import release_words

if TYPE_CHECKING:
    from tare.hosts import Host
    from tare.platforms.contract import Platform
    from tare.study.model.releases import Release

AS_IT_IS = ""
"""The boot of a host that Tare never reboots."""


@dataclass(frozen=True)
class RunningHypervisor:
    """The hypervisor that a host currently runs.

    Args:
        below: The hypervisor below its kernel; None: there is none.
        details: The details that the hypervisor reports.
    """

    below: HostHypervisor | None = None
    details: Details = NO_DETAILS

    @property
    def words(self) -> str:
        """The hypervisor below the host's kernel; empty: none."""
        return self.below.name if self.below else ""

    def is_(self, boot: str) -> bool:
        """Return whether machines that need ``boot`` can run now."""
        if boot == ANY_BOOT:
            return True
        wanted = hypervisor_of(boot)
        _, _, scheduler = boot.partition(":")
        if self.below is None or not wanted:
            return self.below is None and not wanted
        return self.below.word == wanted and scheduler in ("", self.details.scheduler)

    def __str__(self) -> str:
        if self.below is None:
            return WITHOUT
        return f"{self.words} (scheduler {self.details.scheduler or 'unknown'})"


WITHOUT = "a kernel with no hypervisor below it"


def boot_words(boot: str, known: Mapping[str, HostHypervisor]) -> str:
    """Return a phrase for the boot that a host needs.

    Args:
        boot: The boot as a platform's statement names it.
        known: All known hypervisors, by name.
    """
    word = hypervisor_of(boot)
    if not word:
        return WITHOUT
    name = known[word].name if word in known else word
    _, _, scheduler = boot.partition(":")
    return f"{name} with its scheduler {scheduler}" if scheduler else name


async def running(host: Host, known: Mapping[str, HostHypervisor]) -> RunningHypervisor:
    """Find the hypervisor below the host's kernel, with the details that it reports.

    Args:
        host: The host.
        known: The hypervisors that can be recognised, by name.
    """
    for each in known.values():
        if await _shows(host, each.signs):
            return RunningHypervisor(each, await each.details(host))
    return RunningHypervisor()


async def _shows(host: Host, signs: Mapping[str, str]) -> bool:
    try:
        return all([words.encode() in await host.read(file) for file, words in signs.items()])
    except OSError:
        return False


def booted_here(known: Mapping[str, HostHypervisor]) -> str:
    """Return the name of the hypervisor below the kernel of this computer; empty: none."""
    return next((each.name for each in known.values() if _shows_here(each.signs)), "")


def _shows_here(signs: Mapping[str, str]) -> bool:
    try:
        return all(words.encode() in Path(file).read_bytes() for file, words in signs.items())
    except OSError:
        return False


def marks(*of: str) -> str:
    """Join several marks of an arm; return an empty text if there are none."""
    return " and ".join(filter(None, of))


def mark_of(
    platform: Platform[Any],
    options: Any,
    boot: str,
    hypervisor: str,
    platforms: Iterable[NeedsHypervisors],
) -> str:
    """Return the mark of an arm on a host; empty if it runs where it belongs.

    Args:
        platform: The arm's platform.
        options: The arm's options.
        boot: How the host is booted for the arm.
        hypervisor: The hypervisor below the host's kernel, if it is not booted for the arm.
        platforms: All platforms. They are listed only if there is a hypervisor to recognise.
    """
    stated = platform.stated(options)
    _, _, release = boot.partition("@")
    if release and stated.emulated:
        words = release_words(cast("Release", release))
        return f"on the emulator of {words}, whose own speed is part of the result"
    if stated.host_boot != NO_HYPERVISOR:
        return ""
    word = hypervisor_of(boot)
    name = hypervisor if boot in (ANY_BOOT, AS_IT_IS) else ""
    if not (word or name):
        return ""
    for each in hypervisors_of(platforms).values():
        if name in (each.name, "") and word in (each.word, ""):
            return each.mark
    return ""
