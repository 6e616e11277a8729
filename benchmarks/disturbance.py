"""Found against injected: a hog of known period and length, and a quota, on a subject's CPU.

See `tare help spikes` for the method.
"""

from __future__ import annotations

import argparse
import asyncio
import secrets
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from benchmarks._disturb import (
    SUBJECTS,
    Disturbed,
    Hog,
    Quota,
    Subject,
    disturb,
)
from benchmarks._results import Fact, Goal, Result, finish, machine_facts
from benchmarks._runs import Unmeasured
from tare.analysis.topics.host_track import Cause
from tare.analysis.topics.spike_cells import explained
from tare.analysis.topics.spikes import Spike
from tare.errors import InputError
from tare.hosts import Ledger, clean, host_lock, ledger_path
from tare.run.lifecycle.session import local_context
from tare.run.probes.host_trace import host_tracing

TOTAL_WITHIN = 0.02
LENGTH_WITHIN_NS = 10_000
LENGTH_WITHIN_SHARE = 0.01
RIGHT_CULPRIT = 0.95
LEAST_EXTRA_NS = 100_000
"""Shorter ones are side effects of the disturber: a wake-up, a thread that began."""
PATTERNS: tuple[Hog | Quota, ...] = (
    Hog(0.02, 0.001, 100),
    Hog(0.05, 0.005, 60),
    Quota(0.3, 0.1, 4.0),
)
Row = tuple[str, ...]
HEADER: Row = (
    "subject", "pattern", "injected", "found", "injected total", "found total", "differs",
    "worst length", "in tolerance", "right culprit", "all explained", "clock error",
)  # fmt: skip


@dataclass(frozen=True)
class Found:
    """What was found of what was injected; times in nanoseconds."""

    injected: int
    found: int
    least_ns: float
    most_ns: float
    found_ns: float
    right_ns: float
    errors_ns: tuple[float, ...]
    lengths_within: int

    @property
    def differs(self) -> float:
        """By what share the total is from all that can be true."""
        near = min(max(self.found_ns, self.least_ns), self.most_ns)
        return self.found_ns / near - 1 if near else 0.0

    @property
    def right(self) -> float:
        """Share of the injected time that was attributed to its culprit."""
        return self.right_ns / self.least_ns if self.least_ns else 0.0


def find(done: Disturbed, of_culprit: Callable[[Cause], bool]) -> Found:
    """Compare what was injected with what Tare attributes to its culprit.

    A disturbance is found where a gap with a part of the culprit's contains its middle; its length
    is that part. A part of the culprit's in any other gap counts as found too, so one too many
    shows. What the beginning or the end of the measurement cuts in two is left out on both sides.
    """
    spikes = [
        spike
        for spike in done.cell.spikes
        if not any(
            each.begin_ns < spike.end_ns and each.end_ns > spike.begin_ns for each in done.cut
        )
    ]
    theirs = {
        spike.number: sum(taken for cause, taken in spike.parts if of_culprit(cause))
        for spike in spikes
    }
    hits: dict[int, int] = {}
    for each in done.injected:
        number = _containing(spikes, each.middle_ns)
        if number is not None and theirs[number]:
            hits[number] = hits.get(number, 0) + each.least_ns
    errors, right, within = [], 0.0, 0
    for each in done.injected:
        number = _containing(spikes, each.middle_ns)
        found = 0.0
        if number is not None and number in hits:
            # Two within one gap, while something else ran in between, share what was found.
            found = theirs[number] * each.least_ns / hits[number]
        error = each.error_ns(found)
        errors.append(error)
        right += min(found, each.least_ns)
        within += abs(error) <= LENGTH_WITHIN_NS + LENGTH_WITHIN_SHARE * each.least_ns
    extra = sum(taken > LEAST_EXTRA_NS for number, taken in theirs.items() if number not in hits)
    return Found(
        injected=len(done.injected),
        found=sum(error > -each.least_ns for error, each in zip(errors, done.injected, strict=True))
        + extra,
        least_ns=float(sum(each.least_ns for each in done.injected)),
        most_ns=float(sum(each.most_ns for each in done.injected)),
        found_ns=float(sum(theirs.values())),
        right_ns=right,
        errors_ns=tuple(errors),
        lengths_within=within,
    )


def _containing(spikes: Sequence[Spike], at_ns: int) -> int | None:
    for spike in spikes:
        if spike.begin_ns <= at_ns <= spike.end_ns:
            return spike.number
    return None


def culprit(pattern: Hog | Quota) -> Callable[[Cause], bool]:
    """Return a test for the causes that a pattern is responsible for."""
    if isinstance(pattern, Hog):
        return lambda cause: "(tare-hog)" in cause.who
    return lambda cause: cause.kind == "host throttling"


def goals_of(subject: Subject, pattern: Hog | Quota, found: Found) -> list[Goal]:
    """Return the goals of one subject and pattern."""
    what, peer = f"{subject.name}, {pattern}", "what was injected"
    worst = max(map(abs, found.errors_ns), default=0.0) / 1e3
    return [
        Goal(f"{what}: count differs by", peer, 0, abs(found.found - found.injected), ""),
        Goal(f"{what}: total differs by", peer, TOTAL_WITHIN * 100, abs(found.differs) * 100, "%"),
        Goal(
            f"{what}: attributed to the right culprit", peer, RIGHT_CULPRIT * 100,
            found.right * 100, "%", sense="at least",
        ),
        Goal(
            f"{what}: lengths within 10 µs plus 1 %", peer, 100.0,
            100.0 * found.lengths_within / max(1, found.injected), "%", sense="at least",
            detail=f"the worst is off by {worst:.1f} µs",
        ),
    ]  # fmt: skip


def against_stamps(what: str, done: Disturbed, found: Found) -> Fact:
    """Return by how much the total is above the hog's own stamps: the switches to it and back."""
    stamped_ns = sum(each.end_ns - each.begin_ns for each in done.injected)
    differs = found.found_ns / stamped_ns - 1 if stamped_ns else 0.0
    return Fact(f"{what}: total above the hog's own stamps", differs * 100, "%")


def row_of(subject: Subject, pattern: Hog | Quota, found: Found, done: Disturbed) -> Row:
    """Return one line of the table."""
    matched = done.cell.matched
    assert matched is not None
    worst = max(map(abs, found.errors_ns), default=float("nan")) / 1e3
    share = explained([done.cell]).share_of_time
    return (
        subject.name,
        str(pattern),
        str(found.injected),
        str(found.found),
        f"{found.least_ns / 1e6:.2f} to {found.most_ns / 1e6:.2f} ms",
        f"{found.found_ns / 1e6:.2f} ms",
        f"{found.differs:+.2%}",
        f"{worst:.1f} µs" if found.errors_ns else "",
        f"{found.lengths_within}/{found.injected}" if found.errors_ns else "",
        f"{found.right:.1%}",
        f"{share:.1%}" if share is not None else "",
        f"{done.cell.clock_error_ns / 1e3:.1f} → {matched.error_ns / 1e3:.2f} µs",
    )


def table(rows: Sequence[Row]) -> str:
    """Return rows under their header, as text."""
    all_rows = [HEADER, *rows]
    widths = [max(len(row[column]) for row in all_rows) for column in range(len(HEADER))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in all_rows
    )


async def carry_out(
    subjects: Sequence[Subject], patterns: Sequence[Hog | Quota]
) -> tuple[list[Goal], list[Row], list[Fact]]:
    """Disturb every subject by every pattern."""
    goals: list[Goal] = []
    rows: list[Row] = []
    facts: list[Fact] = []
    run = f"bench-{secrets.token_hex(3)}"
    with host_lock(run):
        ledger = Ledger(ledger_path(run))
        context = local_context(ledger)
        cpu = context.host.topology().online[-1]
        try:
            async with host_tracing(context) as tracing:
                for subject in subjects:
                    for pattern in patterns:
                        what = f"{subject.name}, {pattern}"
                        print(f"  {what}", flush=True)
                        try:
                            done = await disturb(context, tracing, subject, pattern, cpu)
                        except Unmeasured as why:
                            goals.append(
                                Goal(f"{what}: measured", "what was injected", 1, None, "",
                                     sense="at least", detail=str(why))
                            )  # fmt: skip
                            continue
                        found = find(done, culprit(pattern))
                        goals += goals_of(subject, pattern, found)
                        rows.append(row_of(subject, pattern, found, done))
                        facts.append(
                            Fact(f"{what}: time lost, as the subject alone sees it",
                                 float(done.value["stolen_s"]) * 1e3, "ms")
                        )  # fmt: skip
                        if isinstance(pattern, Hog):
                            facts.append(against_stamps(what, done, found))
                        else:
                            nominal = (1 - pattern.share) * float(done.value["seconds"]) * 1e3
                            facts.append(Fact(f"{what}: nominally withheld", nominal, "ms"))
        finally:
            for sentence in await clean(context.host, ledger, {}):
                print(f"  {sentence}")
            ledger.discard()
    return goals, rows, facts


def main(argv: list[str] | None = None) -> int:
    """Measure, print and keep the result; return 1 when a goal was missed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.disturbance", description=__doc__)
    known = [subject.name for subject in SUBJECTS]
    parser.add_argument("--subject", action="append", choices=known, help="only these subjects")
    wanted = parser.parse_args(argv)
    machine = machine_facts()
    chosen = [each for each in SUBJECTS if not wanted.subject or each.name in wanted.subject]
    try:
        goals, rows, facts = asyncio.run(carry_out(chosen, PATTERNS))
    except InputError as why:
        goals = [Goal("measured", "what was injected", 1, None, "", detail=str(why))]
        rows, facts = [], []
    print(f"\n{table(rows)}")
    return finish(Result("disturbance", tuple(goals), tuple(facts)), machine)


if __name__ == "__main__":
    sys.exit(main())
