"""Tare's HTTP load generator against wrk, ab and oha, and its latencies when a server stalls.

See docs/benchmarks.md for the method.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from benchmarks._http import (
    Generator,
    agent_load,
    closed_loop_p99_s,
    nginx,
    pausing_server,
    peers,
    tare,
)
from benchmarks._pairs import Pairs, Side, alternate, median_interval
from benchmarks._results import Fact, Goal, Result, finish, machine_facts
from benchmarks._runs import Unmeasured

CONNECTIONS = 32
RATE, WHOLE_S, BEFORE_S, PAUSE_S = 200.0, 4.0, 1.5, 1.0
TOLERANCE_S = 0.05


def compare(
    own: Generator, peer: Generator, port: int, pairs: int, seconds: float, cpu: int | None
) -> Pairs:
    """Alternate both generators against one nginx; values in connections per second."""

    def side(one: Generator) -> Side:
        return Side(one.name, lambda: one.measure(port, CONNECTIONS, seconds, cpu))

    return alternate(side(own), side(peer), pairs, tell=_tell)


def _tell(line: str) -> None:
    print(f"  {line}", flush=True)


def goal_of(peer: Generator, found: Pairs) -> Goal:
    """Return whether Tare makes as many connections as a peer."""
    interval = median_interval(found.ratios)
    return Goal(
        name="connections per second, one request each",
        peer=f"{peer.name} ({peer.version})",
        limit=1.0,
        found=found.ratio,
        unit="times the peer's",
        sense="at least",
        detail=(
            f"{statistics.median(found.a):,.0f}/s against {statistics.median(found.b):,.0f}/s; "
            f"{interval.coverage:.0%} interval of the median ratio {interval.low:.3f} to "
            f"{interval.high:.3f} over {len(found.a)} pairs"
        ),
    )


def expected_s(quantile: float) -> float:
    """Return the response time that a quantile must have where the server stops once.

    Requests are due evenly over `WHOLE_S`. Those due while it stops for `PAUSE_S` wait for what is
    left of that; all others are answered at once. So the share with a time of at least ``t`` is
    ``(PAUSE_S - t) / WHOLE_S``.
    """
    return max(0.0, PAUSE_S - (1.0 - quantile) * WHOLE_S)


def stalled() -> tuple[dict[str, Any], list[float]]:
    """Load a server that stops once; return the result and how far each quantile is off, in s."""
    with pausing_server(BEFORE_S, PAUSE_S) as port:
        value = agent_load(
            {
                "port": port,
                "rate": RATE,
                "seconds": WHOLE_S,
                "warmup_s": 0.0,
                "connections": 1000,
                "threads": 1,
                "timeout_s": 30.0,
                "interval_s": 0.1,
            }
        )
    names = {0.9: "p90_s", 0.99: "p99_s"}
    off = [abs(value["total"][name] - expected_s(share)) for share, name in names.items()]
    return value, off


def stall_goals() -> tuple[tuple[Goal, ...], tuple[Fact, ...]]:
    """Return whether the times are right where a server stops for a second."""
    value, off = stalled()
    total = value["total"]
    goals = (
        Goal(
            name=f"error of p90 and p99 when the server stops for {PAUSE_S:g} s",
            peer=f"what {RATE:g} requests/s must see: {expected_s(0.9):g} s and "
            f"{expected_s(0.99):g} s",
            limit=TOLERANCE_S,
            found=max(off),
            unit="s",
            detail=f"found {total['p90_s']:.3f} s and {total['p99_s']:.3f} s, longest "
            f"{total['max_s']:.3f} s, median {total['median_s'] * 1e3:.2f} ms",
        ),
        Goal(
            name="requests that were due but not counted",
            peer=f"{RATE * WHOLE_S:g} due",
            limit=0,
            found=RATE * WHOLE_S - value["completed"] - value["failed"],
            unit="requests",
        ),
    )
    facts = [Fact("longest response in the stall", total["max_s"], "s")]
    with suppress(Unmeasured), pausing_server(BEFORE_S, PAUSE_S) as port:
        closed = closed_loop_p99_s(port, WHOLE_S)
        facts.append(Fact("p99 that ab tells of the same stall, in a closed loop", closed, "s"))
    return goals, tuple(facts)


def main(argv: list[str] | None = None) -> int:
    """Measure, print and keep the result; return 1 when a goal was missed."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.http_generator", description=__doc__
    )
    parser.add_argument("--pairs", type=int, default=12, help="pairs with each peer")
    parser.add_argument("--seconds", type=float, default=2.0, help="of each measurement")
    wanted = parser.parse_args(argv)
    machine = machine_facts()
    online = sorted(os.sched_getaffinity(0))
    # One CPU for nginx, and one for the generator, so that neither has more than the other.
    server, client = (online[0], online[-1]) if len(online) > 1 else (None, None)
    goals: list[Goal] = []
    facts: list[Fact] = []
    samples: dict[str, tuple[float, ...]] = {}
    found, notes = peers()

    def attempt(name: str, work: Callable[[], None]) -> None:
        try:
            work()
        except Unmeasured as why:
            goals.append(Goal(name, "", 1.0, None, "", "at least", str(why)))

    def rates() -> None:
        own = tare()
        with nginx(server) as port:
            for peer in found:
                pairs = compare(own, peer, port, wanted.pairs, wanted.seconds, client)
                goals.append(goal_of(peer, pairs))
                samples[f"tare beside {peer.name}"] = pairs.a
                samples[peer.name] = pairs.b

    def stall() -> None:
        more, told = stall_goals()
        goals.extend(more)
        facts.extend(told)

    attempt("connections per second", rates)
    attempt("latency under a stall", stall)
    return finish(
        Result("http_generator", tuple(goals), tuple(facts), samples, tuple(notes)), machine
    )


if __name__ == "__main__":
    sys.exit(main())
