"""The limit of each arm of a load balancer and its losses, in sentences."""

from __future__ import annotations

from collections.abc import Sequence

from tare.analysis.topics.load_balancer import IDLE, INSIDE, Throughput
from tare.analysis.topics.proxied_cells import HOST
from tare.analysis.topics.proxied_losses import Loss
from tare.report.figures.svg import legible
from tare.report.page.words import counted, marked, percent, ratio
from tare.units import format_number, format_quantity, format_size

SERVER = "haproxy"
FULL = 0.9
"""A part that uses this share of a CPU, or of its own CPUs, is the limit."""
MOSTLY = 0.5
"""A proxy that uses less of a CPU than this does not fill one."""
ALONE = ("netback", "vhost", "ovs-vswitchd", "the machine’s devices", "ksoftirqd")
"""Owners whose work for one machine runs in a single thread, or nearly so."""


def findings(found: Sequence[Throughput]) -> tuple[str, ...]:
    """Return a text for each arm on its limit and its losses."""
    sentences = []
    several = len({(each.workload, each.scenario) for each in found}) > 1
    for of in dict.fromkeys((each.arm, each.workload, each.scenario) for each in found):
        members = (each for each in found if (each.arm, each.workload, each.scenario) == of)
        own = sorted(members, key=lambda each: each.size)
        small = own[0]
        parts = [
            _rate(small, several),
            _interrupt_times(small),
            _part(small),
            _split(small),
            _haproxy_sentence(small),
            _link(own),
            _loss(own),
            _other_costs(small),
            _faults(own),
        ]
        sentences.append(legible(" ".join(part for part in parts if part)))
    return tuple(sentences)


def _rate(small: Throughput, several: bool) -> str:
    least = "at least " if small.limited else ""
    where = f", {small.workload} in {small.scenario}" if several else ""
    text = (
        f"{marked(small.arm, small.emulated)}{where}: {least}{small.requests:.0f} requests/s of "
        f"{format_size(small.size)}"
    )
    if small.cpu_s is not None:
        text += f", each for {format_quantity(small.cpu_s, 's')} of the host’s CPU time"
    return f"{text}."


def _interrupt_times(small: Throughput) -> str:
    """Return a sentence on the host's CPU time in interrupts for each request."""
    if small.softirq_s is None or small.hardirq_s is None:
        return ""
    soft, hard = (format_quantity(each, "s") for each in (small.softirq_s, small.hardirq_s))
    return f"The host’s software interrupts took {soft} a request, its hardware interrupts {hard}."


def _haproxy_sentence(small: Throughput) -> str:
    """Return a sentence on HAProxy's own report of its idle time."""
    if small.own is None:
        return ""
    waited, threads = percent(small.own.idle), counted(small.own.threads, "thread")
    return f"HAProxy says of itself that it waited for {waited} of the time ({threads})."


def _other_costs(small: Throughput) -> str:
    """Return sentences on CPU time and latency; empty if the loss of capacity is known."""
    if small.loss is not None:
        return ""
    words = []
    if small.cpu.ratio is not None:
        words.append(f"A request takes {ratio(small.cpu.ratio)} the baseline’s CPU time.")
    if small.offered is None or small.latency_s is None:
        return " ".join(words)
    rate = f"At {format_number(small.offered, 6)} requests/s, which every arm is offered,"
    took = format_quantity(small.latency_s, "s")
    if small.overloaded:
        words.append(f"{rate} it was overloaded, as the time of its answers ({took}) shows.")
    elif small.latency.ratio is not None:
        against = f"{ratio(small.latency.ratio)} the baseline’s"
        words.append(f"{rate} an answer takes {took}, {against}.")
    return " ".join(words)


def _part(small: Throughput) -> str:
    """Return sentences on the limit at the smallest size, and on the largest user of the CPUs."""
    words = []
    if small.limits:
        words.append(f"Not the proxy alone was the limit: {'; '.join(small.limits)}.")
    else:
        words.append(_limit(small))
    if (busiest := small.busiest) is not None:
        share = percent(busiest.share)
        words.append(f"Most of the host’s CPU time went to {busiest.who} ({share}).")
    return " ".join(word for word in words if word)


def _limit(small: Throughput) -> str:
    """Return a sentence on the limiting part, whose whole interval must be above `FULL`."""
    cores = {each.who: each for each in small.spent if each.where == HOST and each.who in ALONE}
    if small.link_full:
        return "The limit was the link."
    alone = max(cores.values(), key=lambda each: each.share, default=None)
    scale = small.cpus
    if alone is not None and alone.ends is not None and alone.ends[0] * scale >= FULL:
        return f"The limit was {alone.who}, which used {alone.share * scale:.2f} of a CPU."
    inside = {each.who: each.share for each in small.spent if each.where == INSIDE}
    if not inside:
        return ""
    busy = {kind: share for kind, share in inside.items() if kind != IDLE and share >= 0.01}
    shares = ", ".join(
        f"{percent(share)} {kind}" for kind, share in sorted(busy.items(), key=lambda b: -b[1])
    )
    ends = small.busy_ends
    if ends is not None and ends[0] >= FULL:
        if 0 < _own_cpus(small) < MOSTLY:
            return (
                f"The machine’s own CPUs were full, mostly of other work than HAProxy’s: {shares}."
            )
        return f"The machine’s own CPUs were the limit: {shares}."
    rest = percent(inside.get(IDLE, 0.0))
    rested = f"the machine’s own CPUs rested for {rest} of the time ({shares})"
    if not any(each.where == HOST for each in small.spent):
        return f"The users of the hypervisor’s other CPUs are not known: {rested}."
    known_free = alone is None or (alone.ends is not None and alone.ends[1] * scale < FULL)
    if (
        ends is not None
        and ends[1] < FULL
        and known_free
        and (small.link is None or small.link_free)
    ):
        return f"No part was full: {rested}."
    return f"More blocks are needed to show which part was the limit: {rested}."


def _split(small: Throughput) -> str:
    """Return a sentence on HAProxy's user and kernel time; empty if the host cannot see it."""
    shares = {each.who: each.share for each in small.spent if each.where == HOST}
    user, kernel = (shares.get(f"{SERVER} {part}", 0.0) for part in ("user", "kernel"))
    if user + kernel <= 0:
        return ""
    return (
        f"HAProxy itself used {_own_cpus(small):.2f} CPUs: {percent(user / (user + kernel))} user, "
        f"{percent(kernel / (user + kernel))} kernel."
    )


def _own_cpus(small: Throughput) -> float:
    """Return the number of CPUs that HAProxy used; 0 if the host cannot see it."""
    own = (f"{SERVER} user", f"{SERVER} kernel")
    return small.cpus * sum(
        each.share for each in small.spent if each.where == HOST and each.who in own
    )


def _link(own: Sequence[Throughput]) -> str:
    link = next((each.link for each in own if each.link is not None), None)
    if link is None:
        return ""
    speed = f"The link of {format_quantity(link, 'bit/s')}"
    first = next((each for each in own if each.link_full), None)
    if first is None:
        largest = max(own, key=lambda each: each.wire or 0.0)
        share = percent((largest.wire or 0.0) / link)
        if all(each.link_free for each in own):
            return f"{speed} was never full: on average {share} of it was used at most."
        return (
            f"More blocks are needed to show whether {speed[0].lower()}{speed[1:]} was full: "
            f"{share} of it was used at {format_size(largest.size)}."
        )
    return f"{speed} is full from {format_size(first.size)} on."


def _loss(own: Sequence[Throughput]) -> str:
    """Return a sentence on an arm's loss against the baseline, or on the lack of a verdict."""
    losses = [(each.size, each.lost) for each in own if each.lost is not None]
    if not losses:
        return ""
    doubt = next((f" But {loss.doubt}." for _, loss in losses if loss.doubt), "")
    together = f" (all {len(losses)} sizes together)" if len(losses) > 1 else ""
    lost = [(size, loss) for size, loss in losses if loss.verdict == "worse"]
    if lost:
        size, worst = max(lost, key=lambda each: each[1].least or 0.0)
        others = f" It lost at {len(lost)} of {len(losses)} sizes." if len(losses) > 1 else ""
        text = f"At {format_size(size)} it lost {_lost(worst)} against the baseline.{others}"
        return f"{text}{doubt}"
    blocks = min(loss.blocks for _, loss in losses)
    if all(loss.verdict == "preliminary" for _, loss in losses):
        return (
            f"{counted(blocks, 'block')} {'is' if blocks == 1 else 'are'} too few for a verdict on "
            f"its loss.{_greatest_loss(losses)}"
        )
    if all(loss.verdict == "equivalent" for _, loss in losses):
        margin = percent(max(loss.margin for _, loss in losses))
        return f"It equals the baseline within ± {margin} at every size."
    better = [format_size(size) for size, loss in losses if loss.verdict == "better"]
    if better:
        return f"It let more through than the baseline at {', '.join(better)}.{doubt}"
    text = f"No loss against the baseline was detected in {counted(blocks, 'block')}"
    bounds = [(loss.most, size) for size, loss in losses if loss.most is not None]
    if len(bounds) < len(losses):
        return f"{text}, and limited cells leave open how large one may be.{doubt}"
    most, size = max(bounds)
    if most <= 0:
        return f"{text}.{doubt}"
    bound = f"one of up to {percent(most)} at {format_size(size)} is not excluded{together}"
    return f"{text}; {bound}.{doubt}"


def _lost(loss: Loss) -> str:
    """Return a declared loss with its bounds."""
    least, most = (None if end is None else percent(end) for end in (loss.least, loss.most))
    if loss.estimate is None or most is None:
        return f"at least {least}"
    return f"{percent(loss.estimate)} ({least} to {most})"


def _greatest_loss(losses: Sequence[tuple[int, Loss]]) -> str:
    """Return a clause on the greatest estimated loss, without claiming it."""
    known = [(loss.estimate, size) for size, loss in losses if loss.estimate is not None]
    if not known:
        return ""
    most, size = max(known)
    if most <= 0:
        return " So far it is below the baseline at no size."
    return f" So far the largest is {percent(most)}, at {format_size(size)}."


def _faults(own: Sequence[Throughput]) -> str:
    total: dict[str, int] = {}
    for each in own:
        for what, count in each.faults.items():
            total[what] = total.get(what, 0) + count
    if not total:
        return ""
    named = ", ".join(f"{count} {what}" for what, count in total.items())
    return f"{counted(len(total), 'kind')} of fault: {named}."
