"""A domain's disturbances, and its vCPUs' waiting times, from pairs of reports by libvirt."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from tare.events.hypervisor import HypervisorFigure, HypervisorFigures
from tare.hosts.contract import Host

T = TypeVar("T")
RUNNING, PAUSED, SUSPENDED = 1, 3, 7
"""States in ``virDomainState``: the guest runs, is paused, or is suspended."""
PAUSES = {
    1: "by a user",
    2: "for a migration",
    3: "to be saved",
    4: "for a dump",
    5: "by an error of its disk",
    6: "by its watchdog",
    7: "as a snapshot left it",
    9: "for a snapshot",
    10: "as it crashed",
    12: "for a migration",
    13: "for a migration",
}
"""Reasons why a domain is paused (``virDomainPausedReason``)."""
RESUMED = {
    2: "it migrated here",
    3: "it was restored",
    4: "it was reverted to a snapshot",
    6: "its migration was given up",
    7: "saving it was given up",
    8: "it was woken from sleep",
    10: "it migrates still",
    11: "its migration failed",
}
"""Reasons why a domain runs (``virDomainRunningReason``), except Tare's own start and resume."""
OPERATIONS = {
    2: "a save",
    3: "a restore",
    4: "a migration",
    5: "a migration",
    6: "a snapshot",
    7: "a snapshot's revert",
    8: "a dump",
    9: "a backup",
    10: "a snapshot's removal",
}
"""The operations of a domain's jobs (``virDomainJobOperation``), except its start."""
_NO_JOB, _START = 0, 1
_NO_DOMAIN = 42
_KEEP = 4
_SWAPPED = re.compile(r"^VmSwap:\s+(\d+) kB", re.MULTILINE)
SOURCE = "libvirt's vCPU delay: the host's kernel, between a look before the cell and one after it"


@dataclass(frozen=True)
class DomainReport:
    """libvirt's report on a domain at one time.

    Args:
        state: Its state and the reason for it, by libvirt's numbers.
        copies: Its snapshots and checkpoints, one phrase each.
        job: The job in progress, by libvirt's names; empty: none.
        ended: The last job that ended, likewise.
        memory: The memory that its balloon leaves it, in bytes.
        delays: vCPU to nanoseconds for which it was ready on the host while others ran.
    """

    state: tuple[int, int]
    copies: tuple[str, ...] = ()
    job: Mapping[str, Any] = field(default_factory=dict)
    ended: Mapping[str, Any] = field(default_factory=dict)
    memory: int = 0
    delays: Mapping[int, int] = field(default_factory=dict)


def look_at(library: Any, opened: Any, domain: Any) -> DomainReport:
    """Query libvirt about a domain; call it in a thread, because libvirt's calls block.

    Args:
        library: Libvirt's module.
        opened: The open connection.
        domain: The domain.

    Raises:
        libvirtError: There is no such domain, or libvirt does not answer.
    """

    def asked(function: Callable[..., T], *arguments: Any) -> T | None:
        # Ignore calls that this version of libvirt or its library lacks, but not a missing domain.
        try:
            return function(*arguments)
        except AttributeError:
            return None
        except library.libvirtError as error:
            if error.get_error_code() == _NO_DOMAIN:
                raise
            return None

    state, listed = domain.state(), asked(domain.listAllSnapshots) or ()
    copies = [f"snapshot {_label(each.getXMLDesc(0))}" for each in listed]
    marks = asked(lambda: domain.listAllCheckpoints()) or ()
    copies += [f"checkpoint {_label(each.getXMLDesc(0))}" for each in marks]
    # Keep the job's statistics: by default libvirt discards them once a client has read them.
    last = library.VIR_DOMAIN_JOB_STATS_COMPLETED | library.VIR_DOMAIN_JOB_STATS_KEEP_COMPLETED
    counted = asked(opened.domainListGetStats, [domain], library.VIR_DOMAIN_STATS_VCPU) or ()
    statistics: Mapping[str, Any] = next((stats for _, stats in counted), {})
    return DomainReport(
        (int(state[0]), int(state[1])),
        tuple(copies),
        dict(asked(domain.jobStats) or {}),
        dict(asked(domain.jobStats, last) or {}),
        1024 * int(domain.info()[2]),
        delays_in(statistics),
    )


def delays_in(statistics: Mapping[str, Any]) -> dict[int, int]:
    """Return each vCPU's waiting time so far (ns), from ``vcpu.N.delay`` in the statistics."""
    found = {}
    for name, value in statistics.items():
        if (match := re.fullmatch(r"vcpu\.(\d+)\.delay", name)) and isinstance(value, int):
            found[int(match[1])] = value
    return found


def list_disturbances(look: DomainReport, memory: int) -> Iterator[str]:
    """Yield the disturbances of a domain so far, one phrase each.

    Args:
        look: Libvirt's report on it.
        memory: The memory that it was given, in bytes.
    """
    state, why = look.state
    if state == PAUSED:
        yield f"it is paused{' ' if why in PAUSES else ''}{PAUSES.get(why, '')}"
    elif state != RUNNING:
        yield "it sleeps" if state == SUSPENDED else f"it is in libvirt's state {state}"
    elif why in RESUMED:
        yield RESUMED[why]
    yield from look.copies
    if job := _operation(look.job):
        yield f"{job} under way"
    if job := _operation(look.ended):
        # The duration, which libvirt reports in ms, distinguishes two jobs of one kind.
        yield f"{job} that took {look.ended.get('time_elapsed', 'some')} ms"
    # Libvirt was asked for a whole number of KiB.
    if look.memory < memory >> 10 << 10:
        yield f"ballooned: it has {look.memory} bytes of {memory}"


def _operation(job: Mapping[str, Any]) -> str:
    if job.get("type", _NO_JOB) == _NO_JOB:
        return ""
    number = job.get("operation", 0)
    return "" if number == _START else OPERATIONS.get(number, "a job of libvirt's")


def _label(xml: str) -> str:
    copy = ET.fromstring(xml)
    return f"{copy.findtext('name')} of {copy.findtext('creationTime')}"


async def swapped(host: Host, pid: int) -> str:
    """Return how much of a process's memory is swapped out, in words; empty if none is.

    The phrase changes with the amount, so a constant amount counts as one event: swapped pages
    that are not touched disturb nothing.
    """
    try:
        status = (await host.read(f"/proc/{pid}/status")).decode(errors="replace")
    except OSError:
        return ""
    found = _SWAPPED.search(status)
    if found is None or int(found[1]) == 0:
        return ""
    return f"swapped: {found[1]} KiB of its QEMU are on the host's swap"


@dataclass(frozen=True)
class Waits:
    """The waiting times of vCPUs at one reading.

    Args:
        asked: When libvirt was asked (s, Unix time, this computer's clock).
        answered: When the answer came; libvirt read the times between the two.
        delays: vCPU to its waiting time so far, in nanoseconds.
    """

    asked: float
    answered: float
    delays: Mapping[int, int]


@dataclass
class Looks:
    """The last readings about one domain, with at least one before a cell and one after it."""

    _kept: list[Waits] = field(default_factory=list)

    def add(self, asked: float, answered: float, look: DomainReport) -> None:
        """Store the waiting times in one report."""
        self._kept.append(Waits(asked, answered, look.delays))
        del self._kept[:-_KEEP]

    def figures(self, begun: float, ended: float) -> HypervisorFigures | None:
        """Return each vCPU's waiting time, from just before an interval to just after it.

        None if there is no reading on either side of it, or libvirt reported nothing.
        """
        return waited(self._kept, begun, ended)


def waited(looks: Sequence[Waits], begun: float, ended: float) -> HypervisorFigures | None:
    """Return each vCPU's waiting time between the readings around an interval.

    Args:
        looks: The readings, oldest first.
        begun: When the interval began (s, Unix time).
        ended: When it ended (s, Unix time).
    """
    before = [each for each in looks if each.answered <= begun]
    after = [each for each in looks if each.asked >= ended]
    if not before or not after:
        return None
    first, last = before[-1], after[0]
    seconds = last.answered - first.asked
    grown = {
        vcpu: last.delays[vcpu] - first.delays[vcpu]
        for vcpu in sorted(first.delays.keys() & last.delays.keys())
    }
    if seconds <= 0 or not grown or min(grown.values()) < 0:
        return None
    figure = HypervisorFigure(
        "vcpu-delay",
        "how long a vCPU was ready while others had its CPU, per second",
        "s/s",
        tuple(delay * 1e-9 / seconds for delay in grown.values()),
        tuple(grown),
    )
    return HypervisorFigures(SOURCE, round(seconds, 3), "vCPU", (figure,))
