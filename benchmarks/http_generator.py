"""Tare's HTTP load generator against wrk, ab, oha and h2load, and its times when a server stalls.

See `tare help benchmarks` for the method.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from benchmarks._http import SIZES, nginx, pausing_server
from benchmarks._http_generators import (
    Generator,
    Reached,
    Target,
    agent_load,
    closed_loop,
    closed_loop_p99_s,
    peers,
    tare,
)
from benchmarks._pairs import median_interval
from benchmarks._results import Fact, Goal, Result, finish, machine_facts
from benchmarks._runs import Unmeasured
from benchmarks._source import AGENT
from tare.units import format_size

SOURCES = AGENT

CONNECTIONS = 32
RATE, WHOLE_S, BEFORE_S, PAUSE_S = 200.0, 4.0, 1.5, 1.0
TOLERANCE_S = 0.05
RATES = "connections per second, one request each"
LEAST_RATIO = 1.3
"""Connections per second, as a multiple of the best peer's."""


@dataclass(frozen=True)
class Compared:
    """Tare and its peers at one size, interleaved; by name what each reached in each round."""

    size: int
    rounds: Mapping[str, Sequence[Reached]]

    def best(self, own: str, merit: Callable[[Reached], float]) -> str:
        """Return the peer whose median of a merit is the highest."""
        merits = {
            name: statistics.median(map(merit, found))
            for name, found in self.rounds.items()
            if name != own
        }
        return max(merits, key=lambda name: merits[name])

    def ratios(self, own: str, peer: str, value: Callable[[Reached], float]) -> list[float]:
        """Return Tare's value over the peer's, round by round."""
        both = zip(self.rounds[own], self.rounds[peer], strict=True)
        return [value(mine) / value(theirs) for mine, theirs in both]


def compare(
    generators: Sequence[Generator], target: Target, rounds: int, seconds: float, cpu: int | None
) -> dict[str, list[Reached]]:
    """Let all generators ask in turn, each round in another order, after one that counts not."""
    found: dict[str, list[Reached]] = {each.name: [] for each in generators}
    for number in range(-1, rounds):
        first = number % len(generators)
        for each in (*generators[first:], *generators[:first]):
            reached = each.reach(target, CONNECTIONS, seconds, cpu)
            if number >= 0:
                found[each.name].append(reached)
        rates = ", ".join(f"{name} {each[-1].per_s:,.0f}/s" for name, each in found.items() if each)
        print(f"  {target.path} round {number + 1}/{rounds}: {rates or 'warm-up'}", flush=True)
    return found


def goals_of(own: Generator, versions: Mapping[str, str], compared: Compared) -> tuple[Goal, Goal]:
    """Return whether Tare makes as many connections as the best peer, and each as cheaply.

    The best is the fastest in the first, and the cheapest in the second, whichever peers these are.
    """
    size = format_size(compared.size)

    def goal(
        name: str,
        peer: str,
        sense: Literal["at least", "at most"],
        value: Callable[[Reached], float],
        limit: float,
        describe: Callable[[Reached], str],
    ) -> Goal:
        ratios = compared.ratios(own.name, peer, value)
        interval = median_interval(ratios)
        both = (
            min(compared.rounds[who], key=lambda each: abs(value(each) - middle))
            for who in (own.name, peer)
            for middle in [statistics.median(map(value, compared.rounds[who]))]
        )
        return Goal(
            name=f"{name}, {size}",
            peer=f"{peer} ({versions[peer]}), the best of {', '.join(sorted(versions))}",
            limit=limit,
            found=statistics.median(ratios),
            unit="times the peer's",
            sense=sense,
            detail=(
                f"{' against '.join(map(describe, both))}; {interval.coverage:.0%} interval of the "
                f"median ratio {interval.low:.3f} to {interval.high:.3f} over {len(ratios)} rounds"
            ),
        )

    return (
        goal(
            RATES,
            compared.best(own.name, lambda each: each.per_s),
            "at least",
            lambda each: each.per_s,
            LEAST_RATIO,
            lambda each: f"{each.per_s:,.0f}/s",
        ),
        goal(
            "CPU time a connection",
            compared.best(own.name, lambda each: -each.cpu_s),
            "at most",
            lambda each: each.cpu_s,
            1.0,
            _cost,
        ),
    )


def _cost(each: Reached) -> str:
    soft = "" if each.softirq_s is None else f" ({each.softirq_s * 1e6:.1f} µs of it softirq)"
    return f"{each.cpu_s * 1e6:.1f} µs{soft}"


def local_ports() -> int:
    """Return how many ports this computer's kernel gives to connections."""
    first, last = Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()
    return int(last) - int(first) + 1


def endurance_goal(seconds: float, value: Mapping[str, Any], ports: int) -> Goal:
    """Return whether one-request connections lasted so long without a port running out.

    Args:
        seconds: How long they were to.
        value: What the agent found.
        ports: How many there are: fewer connections than that need none of them twice, and would
            show nothing.
    """
    kinds = ", ".join(f"{count} {what}" for what, count in value["errors"].items() if count)
    done = int(value["completed"])
    few = "" if done > ports else f"{done:,} connections need none of the {ports:,} ports twice"
    rate = f"{value['connections_per_s']:,.0f}/s over {ports:,} ports"
    return Goal(
        name=f"requests that failed in {seconds:g} s of one-request connections",
        peer=f"{done:,} that did not",
        limit=0,
        found=None if few else value["failed"],
        unit="requests",
        detail="; ".join(text for text in (few, rate, kinds) if text),
    )


def endurance(seconds: float) -> Goal:
    """Keep opening one-request connections, and return whether any failed.

    Neither side is kept to a CPU or put above others: nothing is compared, and a small computer
    would do nothing else meanwhile.
    """
    with nginx(None) as port:
        value = closed_loop(Target(port, "/1024"), CONNECTIONS, seconds, None)
    return endurance_goal(seconds, value, local_ports())


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
        facts.append(Fact("p99 that ab reports of the same stall, in a closed loop", closed, "s"))
    return goals, tuple(facts)


def main(argv: list[str] | None = None) -> int:
    """Measure, print and keep the result; return 1 when a goal was missed."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.http_generator", description=__doc__
    )
    parser.add_argument(
        "--rounds", type=int, default=10, help="of all generators, at each size; 0: left out"
    )
    parser.add_argument("--seconds", type=float, default=2.0, help="of each measurement")
    parser.add_argument(
        "--sizes", type=int, nargs="+", default=SIZES, choices=SIZES, help="bytes of the objects"
    )
    parser.add_argument(
        "--endurance", type=float, default=600.0, help="seconds without a failure; 0: left out"
    )
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
            goals.append(Goal(name, "", LEAST_RATIO, None, "", "at least", str(why)))

    def rates() -> None:
        own = tare()
        versions = {peer.name: peer.version for peer in found}
        with nginx(server) as port:
            for size in wanted.sizes:
                target = Target(port, f"/{size}")
                rounds = compare([own, *found], target, wanted.rounds, wanted.seconds, client)
                goals.extend(goals_of(own, versions, Compared(size, rounds)))
                for name, reached in rounds.items():
                    samples[f"{name}, {size} B"] = tuple(each.per_s for each in reached)
                    costs = tuple(each.cpu_s for each in reached)
                    samples[f"{name}, {size} B, CPU s a connection"] = costs

    def lasting() -> None:
        goals.append(endurance(wanted.endurance))

    def stall() -> None:
        more, measured = stall_goals()
        goals.extend(more)
        facts.extend(measured)

    if wanted.rounds > 0:
        # The best of them may be one that is not here.
        for lacking in notes:
            goals.append(
                Goal(
                    RATES, Path(lacking.split()[0]).name, LEAST_RATIO, None, "", "at least", lacking
                )
            )
        if found:
            attempt(RATES, rates)
    if wanted.endurance > 0:
        attempt("requests that failed", lasting)
    attempt("latency under a stall", stall)
    return finish(
        Result("http_generator", tuple(goals), tuple(facts), samples, tuple(notes)), machine
    )


if __name__ == "__main__":
    sys.exit(main())
