"""Makes one run's stream of events of what its hosts say, in the order in which they say it."""

from __future__ import annotations

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
    Planned,
    PlatformChecked,
    Preflight,
    RunFinished,
    RunResumed,
    RunStarted,
    Skipped,
)
from tare.fleet.dealing import Way, blocks_in_all
from tare.fleet.equal import unequal
from tare.study.model.study import Study


class Merger:
    """Appends what hosts say to the run's events.

    Of what goes before the first block, each host tells its own: all of it is kept in one event
    for the host, and the run's events say it once. When a block ends is the controller's to say.

    Args:
        log: The run's events.
        fold: What they add up to.
        study: What is measured.
        hosts: How many hosts share the run.
        how: How they share it.
    """

    def __init__(self, log: EventLog, fold: Fold, study: Study, hosts: int, how: Way) -> None:
        self._log = log
        self._fold = fold
        self._study = study
        self._hosts = hosts
        self._how = how
        self._begun: set[int] = set()

    def part_of(self, host: str, worker: str) -> HostPart:
        """Return where what a host says goes, for one attempt."""
        return HostPart(self, host, worker)

    def append(self, event: Event) -> None:
        """Append an event as it is."""
        self._log.append(event)

    def join(self, joined: HostJoined, skipped: list[Skipped], planned: Planned) -> None:
        """Take note of a host that is ready to measure."""
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
        """Append that a block has begun: on a host, or on the first of all its hosts."""
        if self._how != "bound":
            self._log.append(event.model_copy(update={"host": host}))
        elif event.block not in self._begun and event.block not in self._fold.block.finished:
            self._begun.add(event.block)
            self._log.append(event)

    def image(self, event: ImageReady) -> None:
        """Append what an arm boots, once."""
        if (event.arm, event.digest) not in self._fold.images:
            self._log.append(event)

    def condition(self, host: str, event: Preflight) -> None:
        """Append what a host looks like, each check with the host's name."""
        checks = (
            check.model_copy(update={"name": f"{check.name} on {host}"}) for check in event.checks
        )
        self._log.append(Preflight(host=host, checks=tuple(checks)))


def _with_part(before: Planned | None, part: Planned) -> Planned:
    """Return what is planned of all hosts, with one more host's part of each block."""
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
    """What one host says in one attempt.

    Args:
        merger: Where it goes.
        host: The host's name.
        worker: The address of what speaks for it.
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
        """Account for one more event."""
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
            case Calibrated() | CpusChanged():
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
                # The controller's to say, of the run as a whole.
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
