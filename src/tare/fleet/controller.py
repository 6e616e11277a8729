"""The controller of a run on a cluster: it assigns blocks to hosts, and merges their events."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Literal

from tare.errors import TareError
from tare.events import (
    BlockFinished,
    CellFinished,
    Decided,
    EventLog,
    Fold,
    HostLost,
    Interrupted,
    RunFinished,
    RunStarted,
)
from tare.fleet.assignment import Dealing, Way
from tare.fleet.cluster import Cluster, PartAttempt
from tare.fleet.faults import (
    ClusterGone,
    HostGone,
    PartFailed,
    StaysAway,
    fault_of,
    require_versions,
)
from tare.fleet.file_transfer import receive
from tare.fleet.merging import HostPart, Merger
from tare.fleet.retrying import Pauses, Retries, failure_text, why_given_up
from tare.fleet.shared_cells import FinishedCells, ended_on, newly_failed, shared_account
from tare.fleet.wire import (
    Assignment,
    Block,
    End,
    Ended,
    FilePiece,
    FromHost,
    Happened,
    Hello,
    Notice,
    Progress,
)
from tare.run.lifecycle.cell_counts import Status, require_worth, run_finished
from tare.run.lifecycle.folder import RunFolder, resume_command
from tare.run.lifecycle.interrupt import listening
from tare.run.lifecycle.session import new_run_id
from tare.run.lifecycle.setup import Decide, Decision
from tare.study.model.study import Study
from tare.units import format_duration


@dataclass(frozen=True)
class FleetSetup:
    """The cluster and the callbacks of a shared run.

    Args:
        cluster: The cluster of the hosts' workers.
        decide: Decides after each block whether to continue.
        on_progress: Receives progress within a cell.
        say: Shows the user a sentence.
        patience_s: Seconds that a host may be away before its blocks are given to others.
        strict: Whether the run ends as soon as an arm does.
        pauses: The pauses before a failed host is tried again.
    """

    cluster: Cluster
    decide: Decide
    on_progress: Callable[[str, float, Mapping[str, Any]], None]
    say: Callable[[str], None]
    patience_s: float
    strict: bool = False
    pauses: Pauses = field(default_factory=Pauses)


class Controller:
    """Assigns the blocks of one run to its hosts.

    Args:
        setup: The cluster and the callbacks.
        study: The study.
        started: The run's first event.
        deal: The assignment of blocks to hosts.
        how: The way in which the hosts share the run.
        folder: The run's folder.
        log: Its events.
        fold: The fold of its events.
    """

    def __init__(
        self,
        setup: FleetSetup,
        study: Study,
        started: RunStarted,
        deal: Dealing,
        how: Way,
        folder: RunFolder,
        log: EventLog,
        fold: Fold,
    ) -> None:
        self._setup = setup
        self._study = study
        self._started = started
        self._deal = deal
        self._folder = folder
        self._log = log
        self._fold = fold
        self._began = time.monotonic() - fold.wall_s
        self._hosts = tuple(started.host)
        self._retries = {host: Retries(setup.pauses) for host in self._hosts}
        self._how = how
        self._merger = Merger(log, fold, study, len(self._hosts), how)
        self._measured = FinishedCells(fold)
        log.subscribe(self._measured.take)
        self._waiting: dict[str, PartAttempt] = {}
        self._failed = ""
        self._attempts: dict[str, PartAttempt] = {}
        self._changed = asyncio.Event()
        self._asked: Literal["", "finish", "stop"] = ""
        self._lost = 0
        self._orders: set[asyncio.Task[None]] = set()

    def polite(self) -> None:
        """Finish the current cells, then stop; the second request stops now."""
        if self._asked:
            self.urgent("Ctrl-C twice")
            return
        self._ask("finish", "Ctrl-C")

    def urgent(self, reason: str) -> None:
        """Stop what is running; everything created is still removed."""
        if self._asked != "stop":
            self._ask("stop", reason)

    @property
    def _over(self) -> bool:
        """Whether the run ends before all blocks are measured."""
        return bool(self._asked or self._failed)

    async def run(self) -> RunFinished | None:
        """Measure until a decision to stop.

        Returns:
            The last event, or None when the run was interrupted and can be resumed.
        """
        self._require_worth()
        serving = [asyncio.create_task(self._serve(host)) for host in self._hosts]
        with listening(self, self._folder.path, resume_command(self._folder.path, self._started)):
            try:
                await asyncio.gather(*serving)
            except ClusterGone as gone:
                self._log.append(Interrupted(finishing=False, reason=gone.message))
                return None
            finally:
                for task in serving:
                    task.cancel()
                await asyncio.gather(*serving, return_exceptions=True)
        return None if self._asked else self._finish()

    async def _serve(self, host: str) -> None:
        """Let a host measure while there are blocks for it."""
        while (block := await self._block_for(host)) is not None:
            pause_s = 0.0
            try:
                await self._wait_for(host)
                await self._attempt(host, block)
                continue
            except (HostGone, PartFailed) as failed:
                again_s = self._retries[host].pause_after(failed)
                self._setup.say(failure_text(host, failed, again_s))
                if again_s is None:
                    self._give_up(host, why_given_up(failed))
                    return
                pause_s = again_s
            except StaysAway as away:
                if not self._over:
                    self._give_up(host, away.message)
                return
            finally:
                self._attempts.pop(host, None)
                self._waiting.pop(host, None)
                self._deal.give_back(host)
                self._changed.set()
                await self._deal_on()
            await self._pause(pause_s)

    async def _pause(self, seconds: float) -> None:
        """Wait before a host is tried again, while anything is left to measure."""
        ends = time.monotonic() + seconds
        while (left_s := ends - time.monotonic()) > 0 and not self._over:
            if self._deal.idle:
                return
            await asyncio.sleep(min(0.5, left_s))

    async def _block_for(self, host: str) -> int | None:
        """Wait for the next block for a host; return None if there will be no more."""
        while not self._asked:
            if (block := self._deal.take(host)) is not None:
                return block
            if self._deal.idle:
                break
            self._changed.clear()
            await self._changed.wait()
        self._changed.set()
        return None

    async def _wait_for(self, host: str) -> None:
        """Wait until a host has a worker.

        Raises:
            StaysAway: It has none within the time limit.
        """
        began, announced = time.monotonic(), False
        while host not in await self._setup.cluster.hosts():
            if time.monotonic() - began > self._setup.patience_s or self._over:
                raise StaysAway(
                    f"{host} had no worker for {format_duration(self._setup.patience_s)}"
                )
            if not announced:
                self._setup.say(
                    f"waiting for a worker of {host}, for at most "
                    f"{format_duration(self._setup.patience_s)}; start it: "
                    f"tare worker --host {host} ADDRESS"
                )
                announced = True
            await asyncio.sleep(0.5)

    def _give_up(self, host: str, reason: str) -> None:
        blocks = self._deal.give_up(host)
        self._lost += len(blocks)
        self._log.append(HostLost(host=host, reason=reason, blocks=blocks))
        if self._how == "bound":
            # The others may have finished their parts of the current block.
            self._end_block(self._fold.block.number)

    async def _attempt(self, host: str, block: int) -> None:
        joined = self._fold.joined.get(host)
        attempt = await self._setup.cluster.begin(
            host,
            Assignment(
                run=new_run_id(),
                study=self._started.study,
                source_path=self._started.study_path,
                source_sha256=self._started.study_sha256,
                seed=self._started.seed,
                bound=host if self._how == "bound" else "",
                before=joined,
            ),
        )
        self._attempts[host] = attempt
        try:
            if self._over:
                # It was not there yet when all were notified.
                return
            await attempt.send(self._order(block, host))
            part = None
            async for message in attempt.messages():
                if isinstance(message, Hello):
                    require_versions(host, message.versions)
                    part = self._merger.part_of(host, message.worker)
                elif isinstance(message, Ended):
                    if message.reason and not self._asked:
                        raise fault_of(message)
                    return
                elif isinstance(message, Notice):
                    self._setup.say(f"{host}: {message.sentence}")
                elif part is not None:
                    await self._take(part, attempt, message)
        finally:
            await attempt.leave()

    async def _take(self, part: HostPart, attempt: PartAttempt, message: FromHost) -> None:
        match message:
            case Happened():
                part.take(message.event)
                if isinstance(message.event, CellFinished):
                    self._retries[attempt.host].measured()
                if isinstance(message.event, BlockFinished):
                    await self._decide_after(message.event.block, attempt)
            case FilePiece():
                receive(message, self._folder.path)
            case Progress():
                self._setup.on_progress(message.cell, message.done, message.fields)
            case _:
                pass

    async def _decide_after(self, block: int, attempt: PartAttempt) -> None:
        """Decide after a block, and send its host the next one."""
        self._deal.done(block, attempt.host)
        self._end_block(block)
        self._changed.set()
        self._waiting[attempt.host] = attempt
        await self._deal_on()

    def _end_block(self, block: int) -> None:
        """Record the end of a completed block, and decide whether to measure another."""
        if not block or block in self._fold.block.finished or not self._deal.whole(block):
            return
        self._log.append(BlockFinished(block=block))
        self._end_failing_arms(block)
        decision = self._over_budget() or self._judged()
        if decision is not None:
            self._log.append(Decided(block=block, go_on=decision.continues, reason=decision.reason))
            if not decision.continues:
                self._deal.close()
                self._withdraw()

    async def _deal_on(self) -> None:
        """Send the next block to hosts that have finished one, as far as it is known."""
        for host, attempt in list(self._waiting.items()):
            if self._asked:
                return
            if self._waiting.get(host) is not attempt:
                # Notified meanwhile, while another was being notified.
                continue
            following = self._deal.take(host)
            if following is None and self._deal.awaits(host):
                continue
            del self._waiting[host]
            await _send(attempt, End() if following is None else self._order(following, host))

    def _order(self, block: int, host: str) -> Block:
        # Cells that another host measured of a block are not comparable with those of this one.
        stays = self._fold.block.hosts.get(block, host) == host
        settled = self._measured.settled(block) if stays else ()
        return Block(number=block, settled=settled, ended=tuple(sorted(ended_on(self._fold, host))))

    def _end_failing_arms(self, block: int) -> None:
        """End the arms that have failed too often: on the block's host, or on all."""
        host = self._deal.owner(block)
        before = reversed(self._fold.block.finished)
        line = (each for each in before if self._deal.owner(each) == host)
        arms = tuple(self._study.arms)
        for ended in newly_failed(self._measured, self._fold, arms, line, host):
            self._log.append(ended)
            if ended.arm == self._study.baseline and host and not self._setup.strict:
                self._give_up(host, f"every cell of its baseline {ended.arm} failed")
        self._require_worth()

    def _require_worth(self) -> None:
        """End the run if ended arms leave nothing to compare, or with ``strict``."""
        on_all = [each for each in self._fold.arms_ended if self._setup.strict or not each.host]
        try:
            require_worth(on_all, self._study.baseline, strict=self._setup.strict)
        except TareError as error:
            self._failed = self._failed or error.message
            self._deal.close()
            self._changed.set()
            self._send_to_all("finish")

    def _judged(self) -> Decision | None:
        """Return the decision on the values so far; None while some host has too few blocks."""
        finished = self._fold.block.finished
        rounds = len(finished)
        if self._deal.owner(1):
            counts = Counter(map(self._deal.owner, finished))
            rounds = min(counts[host] for host in self._hosts)
        return self._setup.decide(self._study, self._fold, rounds) if rounds else None

    def _over_budget(self) -> Decision | None:
        blocks = self._study.blocks
        spent_s = time.monotonic() - self._began
        enough = len(self._fold.block.finished) >= blocks.least
        if blocks.budget is None or not enough or spent_s < blocks.budget:
            return None
        return Decision(False, f"the budget of {format_duration(blocks.budget)} is spent")

    def _ask(self, how: Literal["finish", "stop"], reason: str) -> None:
        self._asked = how
        # The run stops even if the terminal is gone or the disk is full.
        with suppress(OSError):
            self._log.append(Interrupted(finishing=how == "finish", reason=reason))
        self._deal.close()
        self._changed.set()
        self._send_to_all(how)

    def _send_to_all(self, how: Literal["finish", "stop"]) -> None:
        for attempt in self._attempts.values():
            self._send_soon(attempt, End(kind=how))
        self._withdraw()

    def _withdraw(self) -> None:
        """Stop waiting for attempts that have not begun, and have nothing to finish."""
        for attempt in self._attempts.values():
            if not attempt.begun:
                attempt.withdraw()
                # It may begin at this moment.
                self._send_soon(attempt, End(kind="stop"))

    def _send_soon(self, attempt: PartAttempt, order: End) -> None:
        sending = asyncio.create_task(_send(attempt, order))
        self._orders.add(sending)
        sending.add_done_callback(self._orders.discard)

    def _finish(self) -> RunFinished:
        baseline = self._study.baseline
        status: Status = "complete"
        reason = self._fold.decided.reason if self._fold.decided else ""
        if self._failed:
            status, reason = "failed", self._failed
        elif lost := self._lost + self._deal.left:
            status = "failed"
            reason = f"{lost} blocks of hosts that were away were never measured"
        cells, wall_s = shared_account(self._fold, self._study), time.monotonic() - self._began
        finished = run_finished(cells, self._fold, baseline, status, reason, wall_s)
        self._log.append(finished)
        return finished


async def _send(attempt: PartAttempt, order: End | Block) -> None:
    # A host that is gone needs no message.
    with suppress(OSError, TareError):
        await attempt.send(order)
