"""The merging of hosts' events into one stream, in the sequence in which they arrive."""

from __future__ import annotations

from collections.abc import Iterator

from tare.events import (
    ArmEnded,
    BlockFinished,
    BlockStarted,
    Calibrated,
    CpusChanged,
    Decided,
    Event,
    EventLog,
    Fold,
    HostJoined,
    ImageReady,
    Interrupted,
    NoiseMeasured,
    Planned,
    PlatformChecked,
    Preflight,
    RunFinished,
    RunResumed,
    RunStarted,
    Skipped,
)
from tare.fleet.assignment import Way, blocks_in_all
from tare.run.lifecycle.resume_checks import differing_hosts
from tare.study.model.study import Study


class Merger:
    """Appends the events of hosts to those of the run.

    Each host sends its own events that precede the first block. All of them are kept in one event
    for the host, and the run's stream has them once. The controller records the end of blocks.

    Args:
        log: The run's events.
        fold: The fold of these events.
        study: The study.
        hosts: The number of hosts that share the run.
        how: The way in which they share it.
    """

    def __init__(self, log: EventLog, fold: Fold, study: Study, hosts: int, how: Way) -> None:
        self._log = log
        self._fold = fold
        self._study = study
        self._hosts = hosts
        self._how = how
        self._begun: set[int] = set()

    def part_of(self, host: str, worker: str) -> HostPart:
        """Return the receiver of a host's events, for one attempt."""
        return HostPart(self, host, worker)

    def append(self, event: Event) -> None:
        """Append an event unchanged."""
        self._log.append(event)

    def join(self, joined: HostJoined, skipped: list[Skipped], planned: Planned) -> None:
        """Record a host that is ready to measure."""
        known = self._fold.platforms
        new = joined.host not in self._fold.joined
        self._log.append(joined)
        for event in joined.checked:
            if event.arm not in known or (event.usable and not known[event.arm].usable):
                self._log.append(event)
        for skip in skipped:
            self._log.append(skip.model_copy(update={"reason": f"{joined.host}: {skip.reason}"}))
        before = self._fold.planned
        if self._how == "bound":
            if new:
                self._log.append(_with_part(before, planned))
        elif before is None:
            most = blocks_in_all(self._how, self._hosts, planned.blocks_most)
            self._log.append(planned.model_copy(update={"blocks_most": most}))
        elif new and self._how == "split":
            note = unequal(next(iter(self._fold.joined.values())), joined)
            if note:
                self._log.append(before.model_copy(update={"notes": (*before.notes, note)}))

    def block(self, event: BlockStarted, host: str) -> None:
        """Append the start of a block: on its host, or on the first of all its hosts."""
        if self._how != "bound":
            self._log.append(event.model_copy(update={"host": host}))
        elif event.block not in self._begun and event.block not in self._fold.block.finished:
            self._begun.add(event.block)
            self._log.append(event)

    def image(self, event: ImageReady) -> None:
        """Append the image of an arm, once."""
        if (event.arm, event.digest) not in self._fold.images:
            self._log.append(event)

    def condition(self, host: str, event: Preflight) -> None:
        """Append the checks of a host's condition, each with the host's name."""
        checks = (
            check.model_copy(update={"name": f"{check.name} on {host}"}) for check in event.checks
        )
        self._log.append(Preflight(host=host, checks=tuple(checks)))


def _with_part(before: Planned | None, part: Planned) -> Planned:
    """Return the plan of all hosts, with one more host's part of each block."""
    if before is None:
        return part
    return part.model_copy(
        update={
            "cells_per_block": before.cells_per_block + part.cells_per_block,
            "expected_block_s": max(before.expected_block_s, part.expected_block_s),
            "notes": tuple(dict.fromkeys((*before.notes, *part.notes))),
        }
    )


class HostPart:
    """The events of one host in one attempt.

    Args:
        merger: Their receiver.
        host: The host's name.
        worker: The address of its worker.
    """

    def __init__(self, merger: Merger, host: str, worker: str) -> None:
        self._merger = merger
        self._host = host
        self._worker = worker
        self._started: RunStarted | None = None
        self._checked: list[PlatformChecked] = []
        self._skipped: list[Skipped] = []
        self._images: dict[str, str] = {}

    def take(self, event: Event) -> None:
        """Take one more event."""
        match event:
            case RunStarted():
                self._started = event
            case PlatformChecked():
                self._checked.append(event)
            case Skipped():
                self._skipped.append(event)
            case ImageReady():
                self._images[event.arm] = event.digest
                self._merger.image(event)
            case Planned():
                self._join(event)
            case Preflight():
                self._merger.condition(self._host, event)
            case Calibrated() | NoiseMeasured() | CpusChanged():
                self._merger.append(event.model_copy(update={"host": self._host}))
            case BlockStarted():
                self._merger.block(event, self._host)
            case (
                RunResumed()
                | RunFinished()
                | Interrupted()
                | Decided()
                | ArmEnded()
                | BlockFinished()
            ):
                # The controller records these for the run as a whole.
                pass
            case _:
                self._merger.append(event)

    def _join(self, planned: Planned) -> None:
        started = self._started
        joined = HostJoined(
            host=self._host,
            worker=self._worker,
            facts=started.host if started is not None else {},
            versions=started.versions if started is not None else {},
            checked=tuple(self._checked),
            cells_per_block=planned.cells_per_block,
            images=self._images,
        )
        self._merger.join(joined, self._skipped, planned)


def unequal(first: HostJoined, other: HostJoined) -> str:
    """Return a sentence on the differences between a host and the first that joined; empty: none.

    Args:
        first: The event of the first host.
        other: The event of the other host.
    """
    found = [*differing_hosts(first.facts, other.facts, first.host), *_versions(first, other)]
    if not found:
        return ""
    return (
        f"{other.host} shares the blocks with {first.host} but differs from it: "
        f"{'; '.join(found)}. Differences between blocks are in part those of the hosts."
    )


def _versions(first: HostJoined, other: HostJoined) -> Iterator[str]:
    """Yield the differences between the versions of arms on both hosts."""
    known = {event.arm: event for event in first.checked if event.usable}
    found: dict[str, list[str]] = {}
    for event in other.checked:
        if not event.usable or event.arm not in known:
            continue
        before = known[event.arm].versions
        for name, version in event.versions.items():
            if before.get(name, version) != version:
                phrase = f"{name} is {version}, and on {first.host} {before[name]}"
                found.setdefault(phrase, []).append(event.arm)
    for phrase, arms in found.items():
        yield f"{phrase} (arm {', '.join(arms)})"
