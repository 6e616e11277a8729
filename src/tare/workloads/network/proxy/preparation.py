"""Record the set-up of the computers around a proxy: ports, interrupts, and lost connections."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from tare.workloads.network.proxy import kernel_text as kernel
from tare.workloads.network.proxy.parameters import MOST_ADDRESSES

SCARCE = 0.9
"""The share of all ports in TIME_WAIT from which on too few are left for new connections."""
PORTS = "ports"
"""The name of the fault that ports ran out."""
TIME_WAIT_S = 60.0
"""Seconds that a port is kept after its side closed first (include/net/tcp.h, TCP_TIMEWAIT_LEN)."""
LOST = (
    "TcpExt:ListenOverflows",
    "TcpExt:ListenDrops",
    "TcpExt:TCPTimeWaitOverflow",
    "TcpExt:TCPReqQFullDrop",
    "TcpExt:TCPBacklogDrop",
)
"""Counters of connections that a kernel had no room for."""
MOST_INTERRUPTS = 12
_RANGE = "/proc/sys/net/ipv4/ip_local_port_range"
_CLOSED = "/proc/sys/net/ipv4/tcp_tw_reuse"
FILES = (
    *(kernel.STAT, kernel.SNMP, kernel.NETSTAT, kernel.SOCKETS, _RANGE, _CLOSED),
    "/proc/sys/net/ipv4/ip_local_reserved_ports",
    "/proc/sys/net/ipv4/tcp_max_tw_buckets",
    "/proc/sys/net/ipv4/tcp_max_syn_backlog",
    "/proc/sys/net/core/somaxconn",
)
"""The kernel's files that the accounts of client and origin keep."""


def prepared(accounts: Mapping[str, Any], offloads: Mapping[str, Any]) -> dict[str, Any]:
    """Return the set-up of all computers, for the record.

    Args:
        accounts: The accounts of ``host``, ``machine``, ``client`` and ``origin``, as far as they
            exist; see the agent's ``account``.
        offloads: The network settings of ``client`` and ``origin``, such as their offloads.
    """
    found: dict[str, Any] = {"offloads": dict(offloads)}
    for role, account in accounts.items():
        before, after = account["before"], account["after"]
        grew = kernel.counted(before, after, kernel.NETSTAT)
        facts: dict[str, Any] = {
            "ports": ports(after.get(_RANGE, "")),
            "time_wait": waiting(after.get(kernel.SOCKETS, "")),
            "lost": {name: grew[name] for name in LOST if name in grew},
        }
        interrupts = interrupted(
            before.get(kernel.INTERRUPTS, ""), after.get(kernel.INTERRUPTS, "")
        )
        if interrupts:
            facts["interrupts"] = interrupts
        if governor := after.get(kernel.GOVERNOR, "").strip():
            facts["governor"] = governor
        if role in offloads:
            facts["settings"] = {
                path: after[path]
                for path in FILES
                if path.startswith("/proc/sys/") and path in after
            }
        found[role] = facts
    return found


def budget(found: Mapping[str, Any], addresses: int, rate: float) -> dict[str, float]:
    """Return the rate of connections to the origin for which the machine's ports suffice.

    Args:
        found: The result of :func:`prepared`.
        addresses: The number of the origin's addresses; each can be reached from all ports.
        rate: The maximum rate of connections to the origin per second: one for each request.

    Returns:
        ``lasting_per_s`` and ``needed_per_s``. They apply if HAProxy closes connections first;
        otherwise it needs a port only during a request. Empty if the machine does not report its
        ports.
    """
    own = found.get("machine", {}).get("ports", {})
    if "lasting_per_s" not in own or not addresses:
        return {}
    return {"lasting_per_s": own["lasting_per_s"] * addresses, "needed_per_s": rate}


def spent(
    faults: Iterable[Mapping[str, Any]], lasting: Mapping[str, float], addresses: int
) -> list[str]:
    """Return a warning with advice if HAProxy may have lacked ports to connect to the origin.

    Args:
        faults: The faults, with their names (``what``).
        lasting: The result of :func:`budget`.
        addresses: The number of the origin's addresses.
    """
    if not lasting or not any(each["what"] == PORTS for each in faults):
        return []
    lasts, made = lasting["lasting_per_s"], lasting["needed_per_s"]
    # The ports limited the measured rate, so advise at least twice as many addresses.
    wanted = max(2 * addresses, math.ceil(addresses * made / lasts)) if lasts > 0 else addresses
    instead = (
        f"write `origin-addresses: {min(wanted, MOST_ADDRESSES)}`"
        if addresses < MOST_ADDRESSES
        else "write `requests: keep-alive`, or ask for less"
    )
    return [
        f"where HAProxy closes first, the machine's ports last for {lasts:.0f} connections/s to "
        f"{addresses} {'address' if addresses == 1 else 'addresses'} of the origin, and {made:.0f} "
        f"were made: {instead}"
    ]


def scarce(found: Mapping[str, Any]) -> list[str]:
    """Return a warning if the client had too few ports left, even if no request failed.

    The client does not listen, so each of its connections in TIME_WAIT uses up a port. In the
    machine, the kernel also counts connections on HAProxy's own port, which use up none.

    Args:
        found: The result of :func:`prepared`.
    """
    client = found.get("client", {})
    count, waits = client.get("ports", {}).get("count", 0), client.get("time_wait") or 0
    if not count or waits < SCARCE * count:
        return []
    return [
        f"{waits} of the client's {count:.0f} ports were in TIME_WAIT at the end: what it asks may "
        "have been held up for want of ports; ask for a shorter `duration`"
    ]


def ports(text: str) -> dict[str, float]:
    """Return the number of ports for connections, and the rate of connections that they sustain.

    Args:
        text: The text of ``ip_local_port_range``: the first and the last port.

    Returns:
        ``count``, the number of ports; and ``lasting_per_s``, the sustained connections per second
        to one address and port, if this side closes first. Empty if the text has another form.
    """
    words = text.split()
    if len(words) != 2 or not all(word.isdecimal() and len(word) < 6 for word in words):
        return {}
    count = max(0, int(words[1]) - int(words[0]) + 1)
    return {"count": count, "lasting_per_s": count / TIME_WAIT_S}


def waiting(text: str) -> int | None:
    """Return the connections in TIME_WAIT from ``/proc/net/sockstat``; None: not known."""
    for line in text.splitlines():
        words = line.split()
        if words[:1] == ["TCP:"] and "tw" in words[:-1]:
            number = words[words.index("tw") + 1]
            return int(number) if number.isdecimal() and len(number) < 10 else None
    return None


def interrupted(before: str, after: str) -> dict[str, dict[str, int]]:
    """Return the interrupts of each CPU between two readings of ``/proc/interrupts``.

    Args:
        before: The text of the first reading.
        after: The text of the second reading.

    Returns:
        The most frequent interrupts, each with its count by CPU number. Interrupts that did not
        occur are left out.
    """
    first, last = _counts(before), _counts(after)
    found: dict[str, dict[str, int]] = {}
    for name, counts in last.items():
        was = first.get(name, {})
        grew = {str(cpu): count - was.get(cpu, 0) for cpu, count in counts.items()}
        came = {cpu: count for cpu, count in grew.items() if count > 0}
        if came:
            found[name] = came
    most = sorted(found, key=lambda name: (-sum(found[name].values()), name))[:MOST_INTERRUPTS]
    return {name: found[name] for name in most}


def _counts(text: str) -> dict[str, dict[int, int]]:
    """Return the counts by CPU of each line; a line's name is its number and its last word."""
    lines = text.splitlines()
    if not lines:
        return {}
    heads = [word.removeprefix("CPU") for word in lines[0].split()]
    cpus = [int(head) for head in heads if head.isdecimal() and len(head) < 6]
    found: dict[str, dict[int, int]] = {}
    for line in lines[1:]:
        number, colon, rest = line.partition(":")
        words = rest.split()
        counts = words[: len(cpus)]
        if not colon or len(counts) < len(cpus):
            continue
        if not all(word.isdecimal() and len(word) < 20 for word in counts):
            continue
        tail = words[len(cpus) :]
        name = f"{number.strip()} {tail[-1]}" if tail else number.strip()
        found[name] = {cpu: int(word) for cpu, word in zip(cpus, counts, strict=True)}
    return found
