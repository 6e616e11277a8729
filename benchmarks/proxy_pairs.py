"""A real A/A of the load balancer: two identical arms, which must come out equivalent within 5 %.

The cells are those of the study load-balancer-short, on one platform twice, but that both arms work
by turns, in rounds of short loads, and that the common rate is one for machines that nothing
emulates. Tare's own verdict is what counts. See `tare help benchmarks` for the method.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks._results import Fact, Goal, Result, finish, machine_facts
from benchmarks._runs import DEADLINE_S, Unmeasured, carry_out
from tare.analysis import compare_runs, load_run
from tare.analysis.data.rundata import RunData
from tare.analysis.effects.results import Effect
from tare.analysis.topics.load_balancer import throughputs
from tare.analysis.topics.proxied_cells import HOST
from tare.study.reading.shipped import FOLDER
from tare.study.reading.yamltext import parse
from tare.units import format_size

SHORT, BARE = "load-balancer-short", "bare"
MARGIN = 0.05
ROUNDS, DURATION = 8, "1s"
"""How long the judged loads last. Where both CPUs are busy a rented computer is now and then slower
for some seconds. By turns, load by load, both arms see the same share of such times."""
OFFERED = 2000
"""Requests per second at which response times are compared: a fifth of what either arm can. The
study's 50, which an emulated machine carries too, would time how a rented computer's own hypervisor
wakes a CPU that has been idle for long."""
BLOCK_S = 180.0
"""More than a block of one size takes, of both arms."""
NICE = {"nice": -20}
"""Above whatever else runs here, as in `gates_of_runs`."""
JUDGED = ("connections", "cpu-per-request", "response-offered-median")
"""The study's headline metrics, but of the rate that name which it has in any case.

With one request a connection `connections` is what `requests` is, or `requests-at-least` where
client or origin may have been the limit, which changes from cell to cell of a busy computer.
"""

OWNED, LEAST_OWNED = "owned-share", 0.95
SERVER = "haproxy"


def study(
    platform: str, blocks: int, sizes: Sequence[str], workload: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the short form on one platform twice.

    Args:
        platform: The platform of both arms.
        blocks: How many.
        sizes: Sizes of the objects, as a study writes them; none: the short form's own.
        workload: What else is other than in the short form.
    """
    path = FOLDER / f"{SHORT}.yaml"
    short = parse(path.read_bytes(), str(path)).data
    # Two bare machines are one host, whose ports two proxies cannot have at once.
    way = {"position": False} if platform == BARE else {"turns": True}
    proxy = {**short["workloads"]["proxy"], **({"size": list(sizes)} if sizes else {}), **workload}
    return {
        "study": "proxy-pairs",
        "baseline": platform,
        "blocks": {"least": blocks, "most": blocks, **way},
        "margin": MARGIN,
        "confidence": short["confidence"],
        "shape": short["shape"],
        "arms": {
            platform: {"platform": platform, "scheduling": {**NICE}},
            f"{platform}-again": {"twin-of": platform},
        },
        "scenarios": short["scenarios"],
        "workloads": {"proxy": proxy},
    }


def size_of(effect: Effect) -> int:
    """Return the size of the objects that an effect is of."""
    return int(json.loads(effect.key.parameters)["size"])


def judged(effects: Sequence[Effect]) -> dict[tuple[int, str], Effect]:
    """Return the effects that are judged, by size and metric."""
    return {
        (size_of(effect), effect.key.metric): effect
        for effect in effects
        if effect.key.metric in JUDGED
    }


def farthest(effect: Effect) -> float | None:
    """Return how far from equal the two arms may be, as a share; None: there is no interval."""
    if effect.interval is None:
        return None
    return max(abs(effect.interval.low - 1), abs(effect.interval.high - 1))


def goal(platform: str, effect: Effect) -> Goal:
    """Return whether two equal arms came out equivalent in one metric, by Tare's own verdict.

    Something else may speak against it than a wide interval; then nothing was shown, whatever the
    interval is.
    """
    found = farthest(effect)
    shown = effect.verdict == "equivalent" or (found is not None and found > MARGIN)
    return Goal(
        f"{platform}, {effect.key.metric} of {format_size(size_of(effect))}: may differ by",
        "itself, by Tare's own verdict",
        MARGIN * 100,
        None if found is None or not shown else found * 100,
        "%",
        detail=f"{effect.verdict}: {effect.sentence}",
    )


def owned(platform: str, effects: Sequence[Effect]) -> Goal:
    """Return whether nearly all CPU time has an owner, in whichever block has least of it."""
    least = [
        min(each.arm_summary.least, each.baseline_summary.least)
        for each in effects
        if each.key.metric == OWNED
    ]
    return Goal(
        f"{platform}, CPU time of the cell that has an owner, in the worst block",
        "all CPU time",
        LEAST_OWNED * 100,
        min(least) * 100 if least else None,
        "%",
        "at least",
    )


def split(platform: str, run: RunData) -> tuple[Fact, ...]:
    """Return what share of HAProxy's own time is its own code's, at the smallest objects.

    HAProxy's makers state about 15 %, the rest being its kernel's; the host sees it where HAProxy
    is a process of its own.
    """
    found = throughputs([run], [platform], platform, 0.95)
    if not found:
        return ()
    small = min(found, key=lambda each: each.size)
    spent = {each.who: each.share for each in small.spent if each.where == HOST}
    own, kernel = (spent.get(f"{SERVER} {part}", 0.0) for part in ("user", "kernel"))
    if own + kernel <= 0:
        return ()
    name = f"{platform}, HAProxy's own part of its CPU time, {format_size(small.size)}"
    return (Fact(name, 100 * own / (own + kernel), "%"),)


def result(
    platform: str, effects: Sequence[Effect], sizes: int, blocks: int
) -> tuple[tuple[Goal, ...], dict[str, tuple[float, ...]]]:
    """Return the goals, and each metric's ratios block by block.

    Args:
        platform: The platform of both arms.
        effects: Those of the A/A pair.
        sizes: How many sizes of objects were asked for.
        blocks: How many blocks.

    Raises:
        Unmeasured: A metric of a size is missing.
    """
    verdicts = judged(effects)
    wanted = sizes * len(JUDGED)
    if len(verdicts) != wanted:
        raise Unmeasured(f"{platform}: {len(verdicts)} of {wanted} metrics were measured")
    if short := [f"{m} of {s} B" for (s, m), each in verdicts.items() if each.blocks < blocks]:
        print(f"  not in all {blocks} blocks: {', '.join(short)}")
    samples = {
        f"{platform}, {metric} of {size} B, again ÷ first": tuple(
            block.value for block in effect.block_effects
        )
        for (size, metric), effect in verdicts.items()
    }
    goals = (goal(platform, effect) for effect in verdicts.values())
    return (*goals, owned(platform, effects)), samples


def main(argv: list[str] | None = None) -> int:
    """Measure, print and keep the result; return 1 when a goal was missed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.proxy_pairs", description=__doc__)
    parser.add_argument("--blocks", type=int, default=30, help="at least 6, for there to be any")
    parser.add_argument("--size", action="append", default=[], help="e.g. 8KiB; may be repeated")
    parser.add_argument("--duration", default=DURATION, help="of each load, e.g. 2s")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="of the loads that are judged")
    parser.add_argument("--step", help="how long each number of connections is tried")
    parser.add_argument("--connections", type=int, help="at most that are tried; 4: no others")
    parser.add_argument("--offered", type=int, default=OFFERED, help="requests per second")
    parser.add_argument(
        "--platform", action="append", choices=(BARE, "oci"), help="default: both, in turn"
    )
    wanted = parser.parse_args(argv)
    machine = machine_facts()
    more = {"duration": wanted.duration, "offered": wanted.offered, "rounds": wanted.rounds}
    more |= {"at-shares": False}
    chosen = {"step": wanted.step, "most-connections": wanted.connections}
    more |= {key: value for key, value in chosen.items() if value is not None}
    goals: list[Goal] = []
    facts: list[Fact] = []
    samples: dict[str, tuple[float, ...]] = {}
    for platform in wanted.platform or (BARE, "oci"):
        asked = study(platform, wanted.blocks, wanted.size, more)
        sizes = len(asked["workloads"]["proxy"]["size"])
        pair: list[Effect] = []
        parts: list[Fact] = []

        def look(
            folder: Path,
            platform: str = platform,
            pair: list[Effect] = pair,
            parts: list[Fact] = parts,
        ) -> None:
            run = load_run(folder)
            pair.extend(compare_runs(run).aa)
            parts.extend(split(platform, run))

        try:
            longest_s = max(DEADLINE_S, BLOCK_S * sizes * wanted.blocks)
            ran = carry_out(asked, look=look, deadline_s=longest_s)
            found, ratios = result(platform, pair, sizes, wanted.blocks)
        except Unmeasured as why:
            name = f"{platform}: two identical arms may differ by"
            goals.append(Goal(name, "itself", MARGIN * 100, None, "%", detail=str(why)))
            continue
        goals += found
        samples |= ratios
        facts += parts
        facts.append(Fact(f"seconds of the run, {platform}", ran.ended - ran.spawned, "s"))
    return finish(Result("proxy_pairs", tuple(goals), tuple(facts), samples), machine)


if __name__ == "__main__":
    sys.exit(main())
