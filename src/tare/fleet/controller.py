"""Carry a study out on all hosts of a cluster at once: the one process that knows the whole run."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from contextlib import suppress
from typing import Literal

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
from tare.fleet.account import shared_account
from tare.fleet.cluster import Attempt
from tare.fleet.dealing import Dealing, Way
from tare.fleet.failing import ended_on, newly_failed
from tare.fleet.faults import (
    ClusterGone,
    HostGone,
    PartFailed,
    StaysAway,
    fault_of,
    require_versions,
)
from tare.fleet.measured import Measured
from tare.fleet.merging import HostPart, Merger
from tare.fleet.retrying import Retries, told, why_given_up
from tare.fleet.setup import FleetSetup
from tare.fleet.shipping import receive
from tare.fleet.wire import (
    Assignment,
    Block,
    End,
    Ended,
    FilePiece,
    FromHost,
    Happened,
    Hello,
    Progress,
    Said,
)
from tare.run.lifecycle.account import Status, require_worth, run_finished
from tare.run.lifecycle.folder import RunFolder
from tare.run.lifecycle.interrupt import listening
from tare.run.lifecycle.resume_command import resuming
from tare.run.lifecycle.session import new_run_id
from tare.run.lifecycle.setup import Decision
from tare.study.model.study import Study
from tare.units import format_duration


class Controller:
    """Deals the blocks of one run out.

    Args:
        setup: What it is carried out with.
        study: What is measured.
        started: The run's first event.
        deal: Which host measures which block.
        how: How the hosts share the run.
        folder: The run's folder.
        log: Its events.
        fold: What they add up to.
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
        self._measured = Measured(fold)
        log.subscribe(self._measured.take)
        self._waiting: dict[str, Attempt] = {}
        self._failed = ""
        self._attempts: dict[str, Attempt] = {}
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

    async def carry_out(self) -> RunFinished | None:
        """Measure until it is decided to stop.

        Returns:
            The last event, or None when the run was interrupted and can be resumed.
        """
        self._require_worth()
        serving = [asyncio.create_task(self._serve(host)) for host in self._hosts]
        with listening(self, self._folder.path, resuming(self._folder.path, self._started)):
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
        """Have a host measure for as long as there are blocks for it."""
        while (block := await self._block_for(host)) is not None:
            pause_s = 0.0
            try:
                await self._wait_for(host)
                await self._attempt(host, block)
                continue
            except (HostGone, PartFailed) as failed:
                again_s = self._retries[host].pause_after(failed)
                self._setup.say(told(host, failed, again_s))
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
        """Wait before a host is tried again, for as long as anything is left to measure."""
        ends = time.monotonic() + seconds
        while (left_s := ends - time.monotonic()) > 0 and not self._over:
            if self._deal.idle:
                return
            await asyncio.sleep(min(0.5, left_s))

    async def _block_for(self, host: str) -> int | None:
        """Return the next block for a host once there is one; None when there will be no more."""
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
        """Wait until a worker stands for a host.

        Raises:
            StaysAway: None does within the time that it is given.
        """
        began, told = time.monotonic(), False
        while host not in await self._setup.cluster.hosts():
            if time.monotonic() - began > self._setup.patience_s or self._over:
                raise StaysAway(
                    f"no worker stood for {host} in {format_duration(self._setup.patience_s)}"
                )
            if not told:
                self._setup.say(
                    f"waiting for a worker that stands for {host}, for at most "
                    f"{format_duration(self._setup.patience_s)}; it is started by: "
                    f"tare worker --host {host} ADDRESS"
                )
                told = True
            await asyncio.sleep(0.5)

    def _give_up(self, host: str, reason: str) -> None:
        blocks = self._deal.give_up(host)
        self._lost += len(blocks)
        self._log.append(HostLost(host=host, reason=reason, blocks=blocks))
        if self._how == "bound":
            # The others may have done their parts of the block that is under way.
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
            await attempt.tell(self._order(block, host))
            part = None
            async for message in attempt.messages():
                if isinstance(message, Hello):
                    require_versions(host, message.versions)
                    part = self._merger.part_of(host, message.worker)
                elif isinstance(message, Ended):
                    if message.reason and not self._asked:
                        raise fault_of(message)
                    return
                elif isinstance(message, Said):
                    self._setup.say(f"{host}: {message.sentence}")
                elif part is not None:
                    await self._take(part, attempt, message)
        finally:
            await attempt.leave()

    async def _take(self, part: HostPart, attempt: Attempt, message: FromHost) -> None:
        match message:
            case Happened():
                part.take(message.event)
                if isinstance(message.event, CellFinished):
                    self._retries[attempt.host].measured()
                if isinstance(message.event, BlockFinished):
                    await self._after(message.event.block, attempt)
            case FilePiece():
                receive(message, self._folder.path)
            case Progress():
                self._setup.on_progress(message.cell, message.done, message.fields)
            case _:
                pass

    async def _after(self, block: int, attempt: Attempt) -> None:
        """Decide after a block, and tell its host what to do next."""
        self._deal.done(block, attempt.host)
        self._end_block(block)
        self._changed.set()
        self._waiting[attempt.host] = attempt
        await self._deal_on()

    def _end_block(self, block: int) -> None:
        """End a block that is measured whole, and decide whether another is wanted."""
        if not block or block in self._fold.block.finished or not self._deal.whole(block):
            return
        self._log.append(BlockFinished(block=block))
        self._end_failing_arms(block)
        decision = self._over_budget() or self._judged()
        if decision is not None:
            self._log.append(Decided(block=block, go_on=decision.go_on, reason=decision.reason))
            if not decision.go_on:
                self._deal.close()
                self._withdraw()

    async def _deal_on(self) -> None:
        """Tell the hosts that have ended a block what to do next, as far as that is known."""
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
            await _tell(attempt, End() if following is None else self._order(following, host))

    def _order(self, block: int, host: str) -> Block:
        # What another host measured of a block compares with nothing that this one measures.
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
        """End the run where the arms that have ended leave it nothing to compare, or are strict."""
        on_all = [each for each in self._fold.arms_ended if self._setup.strict or not each.host]
        try:
            require_worth(on_all, self._study.baseline, strict=self._setup.strict)
        except TareError as error:
            self._failed = self._failed or error.message
            self._deal.close()
            self._changed.set()
            self._tell_all("finish")

    def _judged(self) -> Decision | None:
        """Return what the values so far say; None while some host has too few blocks."""
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
        # The terminal may be gone, or the disk full: that keeps nobody from stopping.
        with suppress(OSError):
            self._log.append(Interrupted(finishing=how == "finish", reason=reason))
        self._deal.close()
        self._changed.set()
        self._tell_all(how)

    def _tell_all(self, how: Literal["finish", "stop"]) -> None:
        for attempt in self._attempts.values():
            self._tell_soon(attempt, End(kind=how))
        self._withdraw()

    def _withdraw(self) -> None:
        """Wait for nobody who has not begun, and has nothing to finish."""
        for attempt in self._attempts.values():
            if not attempt.begun:
                attempt.withdraw()
                # It may begin at this moment.
                self._tell_soon(attempt, End(kind="stop"))

    def _tell_soon(self, attempt: Attempt, order: End) -> None:
        telling = asyncio.create_task(_tell(attempt, order))
        self._orders.add(telling)
        telling.add_done_callback(self._orders.discard)

    def _finish(self) -> RunFinished:
        baseline = self._study.baseline
        status: Status = "complete"
        reason = self._fold.decided.reason if self._fold.decided else ""
        if self._failed:
            status, reason = "failed", self._failed
        elif lost := self._lost + self._deal.left:
            status = "failed"
            reason = f"{lost} blocks of hosts that stayed away were never measured"
        cells, wall_s = shared_account(self._fold, self._study), time.monotonic() - self._began
        finished = run_finished(cells, self._fold, baseline, status, reason, wall_s)
        self._log.append(finished)
        return finished


async def _tell(attempt: Attempt, order: End | Block) -> None:
    # A host that is gone by now needs no telling.
    with suppress(OSError, TareError):
        await attempt.tell(order)
