"""Read the texts of the kernel's files at the start and the end of a period (proc(5))."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

STAT, SNMP, NETSTAT = "/proc/stat", "/proc/net/snmp", "/proc/net/netstat"
TABLES = (SNMP, NETSTAT)
DEVICES, SOCKETS = "/proc/net/dev", "/proc/net/sockstat"
TRACKED = "/proc/net/stat/nf_conntrack"
PORTS = "/proc/sys/net/ipv4/ip_local_port_range"
GOVERNOR = "/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"
OWN = "{interface}"
"""The placeholder in paths for the machine's own interface."""
SETTINGS = (
    PORTS,
    "/proc/sys/net/core/somaxconn",
    "/proc/sys/net/ipv4/tcp_tw_reuse",
    "/proc/sys/net/netfilter/nf_conntrack_max",
    "/proc/sys/net/netfilter/nf_conntrack_count",
    "/proc/sys/net/ipv4/tcp_max_syn_backlog",
    "/proc/sys/net/ipv4/tcp_max_tw_buckets",
    *(f"/sys/class/net/{OWN}/queues/rx-{queue}/rps_cpus" for queue in range(4)),
    *(f"/sys/class/net/{OWN}/queues/tx-{queue}/xps_cpus" for queue in range(4)),
    GOVERNOR,
)
INTERRUPTS = "/proc/interrupts"
FILES = (STAT, SNMP, NETSTAT, DEVICES, SOCKETS, TRACKED, INTERRUPTS, *SETTINGS)
"""The files that an account keeps."""
KINDS = ("user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal")
_RECEIVED, _SENT = 1, 9

Texts = Mapping[str, str]


def cpu_ticks(text: str) -> dict[int, dict[str, int]]:
    """Return the ticks of each CPU by kind of use, from ``/proc/stat``; ignore other lines."""
    found = {}
    for line in text.splitlines():
        name, *fields = line.split() or [""]
        number = name.removeprefix("cpu")
        values = [int(field) for field in fields if field.isdecimal()]
        if name.startswith("cpu") and number.isdecimal() and len(values) >= len(KINDS):
            found[int(number)] = dict(zip(KINDS, values, strict=False))
    return found


def cpu_seconds(before: Texts, after: Texts, hertz: float) -> dict[int, dict[str, float]]:
    """Return the seconds of each CPU by kind of use, between two readings.

    Args:
        before: The texts of the first reading, by path.
        after: The texts of the second reading, by path.
        hertz: Ticks per second.
    """
    first, last = cpu_ticks(before.get(STAT, "")), cpu_ticks(after.get(STAT, ""))
    return {
        cpu: {kind: max(0, last[cpu][kind] - first[cpu][kind]) / hertz for kind in KINDS}
        for cpu in sorted(first.keys() & last.keys())
    }


def paired(text: str) -> dict[str, int]:
    """Return the counters of ``/proc/net/snmp`` or ``netstat``: lines of names, then of values."""
    found: dict[str, int] = {}
    names: Sequence[str] = ()
    for line in text.splitlines():
        words = line.split()
        if not words:
            continue
        if names and names[0] == words[0] and len(names) == len(words):
            for name, value in zip(names[1:], words[1:], strict=True):
                if value.lstrip("-").isdecimal():
                    found[f"{words[0]}{name}"] = int(value)
            names = ()
        else:
            names = words
    return found


def counted(before: Texts, after: Texts, path: str) -> dict[str, int]:
    """Return the increase of each counter of a file."""
    first, last = paired(before.get(path, "")), paired(after.get(path, ""))
    return {name: last[name] - first[name] for name in last if name in first}


def device(text: str, name: str) -> tuple[int, int, int, int]:
    """Return bytes and packets received, and bytes and packets sent, from ``/proc/net/dev``.

    Raises:
        KeyError: There is no such interface.
        ValueError: The interface's line is not in the kernel's format.
    """
    for line in text.splitlines():
        who, colon, rest = line.partition(":")
        if colon and who.strip() == name:
            fields = [int(word) for word in rest.split()]
            if len(fields) <= _SENT:
                raise ValueError(f"the line of {name} in {DEVICES} is cut short")
            return fields[0], fields[_RECEIVED], fields[_SENT - 1], fields[_SENT]
    raise KeyError(f"{name} in {DEVICES}")


def tracked(text: str) -> dict[str, int]:
    """Return connection tracking's counters, summed over all CPUs; ignore invalid values.

    The file has a line of names, and one of hexadecimal numbers for each CPU.
    """
    first, *rest = text.splitlines() or [""]
    names, found = first.split(), dict[str, int]()
    for line in rest:
        for name, value in zip(names, line.split(), strict=False):
            try:
                found[name] = found.get(name, 0) + int(value, 16)
            except ValueError:
                continue
    return found


def waiting_ports(texts: Texts) -> tuple[int, int] | None:
    """Return the number of TCP sockets in TIME_WAIT, and of ports for outgoing connections.

    Return None if the kernel does not report them.
    """
    words = texts.get(SOCKETS, "").partition("TCP:")[2].partition("\n")[0].split()
    bounds = texts.get(PORTS, "").split()
    found = dict(zip(words[::2], words[1::2], strict=False))
    if not found.get("tw", "").isdecimal() or len(bounds) != 2:
        return None
    if not all(bound.isdecimal() for bound in bounds):
        return None
    return int(found["tw"]), max(0, int(bounds[1]) - int(bounds[0]) + 1)
