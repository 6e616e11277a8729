"""What a load balancer's figures come to, in words: for each arm what was its limit."""

from __future__ import annotations

from collections.abc import Sequence

from tare.analysis.load_balancer import IDLE, INSIDE, Through
from tare.analysis.proxied_cells import HOST
from tare.report.svg import legible
from tare.report.words import counted, marked, percent, ratio
from tare.units import format_number, format_quantity, format_size

SERVER = "haproxy"
FULL = 0.9
"""A part that uses this share of a CPU, or of all it can have, is the limit."""
MOSTLY = 0.5
"""A proxy that uses less of a CPU than this does not fill any."""
ALONE = ("netback", "vhost", "ovs-vswitchd", "the machine’s devices", "ksoftirqd")
"""Owners whose work for one machine is that of a single thread, or nearly."""


def findings(found: Sequence[Through]) -> tuple[str, ...]:
    """Return for each arm in words what was its limit, and what it lost."""
    said = []
    several = len({(each.workload, each.scenario) for each in found}) > 1
    for of in dict.fromkeys((each.arm, each.workload, each.scenario) for each in found):
        members = (each for each in found if (each.arm, each.workload, each.scenario) == of)
        own = sorted(members, key=lambda each: each.size)
        small = own[0]
        parts = [
            _rate(small, several),
            _interrupts(small),
            _part(small),
            _split(small),
            _own_words(small),
            _link(own),
            _loss(own),
            _instead(small),
            _faults(own),
        ]
        said.append(legible(" ".join(part for part in parts if part)))
    return tuple(said)


def _rate(small: Through, several: bool) -> str:
    least = "at least " if small.limited else ""
    where = f", {small.workload} in {small.scenario}" if several else ""
    text = (
        f"{marked(small.arm, small.emulated)}{where}: {least}{small.requests:.0f} requests/s of "
        f"{format_size(small.size)}"
    )
    if small.cpu_s is not None:
        text += f", each for {format_quantity(small.cpu_s, 's')} of the host’s CPU time"
    return f"{text}."


def _interrupts(small: Through) -> str:
    """Return how much of the host's CPU time for a request was interrupts'."""
    if small.softirq_s is None or small.hardirq_s is None:
        return ""
    soft, hard = (format_quantity(each, "s") for each in (small.softirq_s, small.hardirq_s))
    return f"The host’s software interrupts took {soft} a request, its hardware interrupts {hard}."


def _own_words(small: Through) -> str:
    """Return what HAProxy says of itself."""
    if small.own is None:
        return ""
    waited, threads = percent(small.own.idle), counted(small.own.threads, "thread")
    return f"HAProxy says of itself that it waited for {waited} of the time ({threads})."


def _instead(small: Through) -> str:
    """Return what is lost where capacity does not tell: in CPU time and at the offered rate."""
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
        words.append(f"{rate} it was overloaded, and how long answers took ({took}) tells that.")
    elif small.latency.ratio is not None:
        against = f"{ratio(small.latency.ratio)} the baseline’s"
        words.append(f"{rate} an answer takes {took}, {against}.")
    return " ".join(words)


def _part(small: Through) -> str:
    """Return which part was the limit at the smallest size, and who used most of the CPUs."""
    words = []
    if small.limits:
        words.append(f"Not the proxy alone was the limit: {'; '.join(small.limits)}.")
    else:
        words.append(_limit(small))
    if (busiest := small.busiest) is not None:
        share = percent(busiest.share)
        words.append(f"Most of the host’s CPU time went to {busiest.who} ({share}).")
    return " ".join(word for word in words if word)


def _limit(small: Through) -> str:
    cores = {
        each.who: each.share * small.cpus
        for each in small.spent
        if each.where == HOST and each.who in ALONE
    }
    who = max(cores, key=lambda name: cores[name], default="")
    if small.link_full:
        return "The limit was the link."
    if who and cores[who] >= FULL:
        return f"The limit was {who}, which used {cores[who]:.2f} of a CPU."
    inside = {each.who: each.share for each in small.spent if each.where == INSIDE}
    if not inside:
        return ""
    busy = {kind: share for kind, share in inside.items() if kind != IDLE and share >= 0.01}
    told = ", ".join(
        f"{percent(share)} {kind}" for kind, share in sorted(busy.items(), key=lambda b: -b[1])
    )
    if 1 - inside.get(IDLE, 0.0) >= FULL:
        if 0 < _own_cpus(small) < MOSTLY:
            return f"The machine’s own CPUs were full, mostly of other work than HAProxy’s: {told}."
        return f"The machine’s own CPUs were the limit: {told}."
    rest = percent(inside.get(IDLE, 0.0))
    return f"No part was full: the machine’s own CPUs rested for {rest} of the time ({told})."


def _split(small: Through) -> str:
    """Return how HAProxy's own time is split, where the host sees it."""
    shares = {each.who: each.share for each in small.spent if each.where == HOST}
    user, kernel = (shares.get(f"{SERVER} {part}", 0.0) for part in ("user", "kernel"))
    if user + kernel <= 0:
        return ""
    return (
        f"HAProxy itself used {_own_cpus(small):.2f} CPUs: {percent(user / (user + kernel))} user, "
        f"{percent(kernel / (user + kernel))} kernel."
    )


def _own_cpus(small: Through) -> float:
    """Return how many CPUs HAProxy used, where the host sees it; 0: it does not."""
    own = (f"{SERVER} user", f"{SERVER} kernel")
    return small.cpus * sum(
        each.share for each in small.spent if each.where == HOST and each.who in own
    )


def _link(own: Sequence[Through]) -> str:
    link = next((each.link for each in own if each.link is not None), None)
    if link is None:
        return ""
    speed = f"The link of {format_quantity(link, 'bit/s')}"
    first = next((each for each in own if each.link_full), None)
    if first is None:
        most = max((each.wire or 0.0) / link for each in own)
        return f"{speed} was never full: {percent(most)} of it at most."
    return f"{speed} is full from {format_size(first.size)} on."


def _loss(own: Sequence[Through]) -> str:
    losses = [each for each in own if each.loss is not None]
    if not losses:
        return ""
    worst = max(losses, key=lambda each: each.loss or 0.0)
    if (worst.loss or 0.0) <= 0:
        return "At no size was it below the baseline."
    return (
        f"At {format_size(worst.size)} it lost most against the baseline: "
        f"{percent(worst.loss or 0.0)}."
    )


def _faults(own: Sequence[Through]) -> str:
    total: dict[str, int] = {}
    for each in own:
        for what, count in each.faults.items():
            total[what] = total.get(what, 0) + count
    if not total:
        return ""
    named = ", ".join(f"{count} {what}" for what, count in total.items())
    return f"{counted(len(total), 'kind')} of fault: {named}."
