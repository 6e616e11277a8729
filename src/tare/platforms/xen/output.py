"""Parse the output of Xen's ``xl``; pure functions that ignore lines in an unknown format.

The formats are those of Xen's tools/xl (``xl_list.c``, ``xl_vcpu.c``, ``xl_info.c``,
``xl_sched.c``, ``xl_cpupool.c``), versions 4.11 to 4.19.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from tare.study.planning.host_cpus import HostCpus

_UUID = "[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
# A half-built domain has no name yet. A name may contain spaces, so the numbers mark its end.
_DOMAIN = re.compile(
    r"^(?P<name>\S.*?)?\s+(?P<id>\d+)\s+(?P<memory>\d+)\s+(?P<vcpus>\d+)"
    r"\s+(?P<state>[rbpscd-]{6})\s+(?P<time>\d+\.\d)"
    rf"(?:\s+(?P<uuid>{_UUID}))?(?:\s.*)?$"
)
_VCPU = re.compile(
    r"^(?P<name>\S.*?)?\s+(?P<id>\d+)\s+(?P<vcpu>\d+)\s+(?P<cpu>\d+|-)"
    r"\s+(?P<state>[rbp-]{3})\s+(?P<time>\d+\.\d)\s+(?P<hard>\S+)(?:\s+/\s+(?P<soft>\S+))?\s*$"
)
_PARAMETER = re.compile(r"\b(tslice|ratelimit)=(\d+)(ms|us)\b")
_POOL = re.compile(r"^(?P<name>\S+)\s+(?P<cpus>\d+)\s+(?P<scheduler>\S+)\s+(?P<active>[yn])\s+\d+")
_TOPOLOGY = re.compile(r"^\s*(\d+):\s+(\d+)\s+(\d+)\s+(\d+)\s*$")
_LOCATION = re.compile(r"^[\w./-]+:\d+:\w+: ")


@dataclass(frozen=True)
class Domain:
    """One line of ``xl list -v``.

    Args:
        name: Its name; empty while it is being built.
        id: Its number; 0 is dom0.
        memory: Its memory in bytes.
        vcpus: Its number of vCPUs.
        state: Six letters ``rbpscd`` or dashes: running, blocked, paused, shut down, crashed,
            dying.
        cpu_s: CPU seconds of all its vCPUs, to 0.1 s.
        uuid: Its UUID; empty if the output does not show it.
    """

    name: str
    id: int
    memory: int
    vcpus: int
    state: str
    cpu_s: float
    uuid: str

    @property
    def paused(self) -> bool:
        """Whether the domain is paused."""
        return "p" in self.state

    @property
    def words(self) -> str:
        """The domain's state in words."""
        known = {
            "d": "dying",
            "c": "crashed",
            "s": "shut down",
            "p": "paused",
            "r": "running",
            "b": "blocked",
        }
        return next((word for letter, word in known.items() if letter in self.state), "ready")


@dataclass(frozen=True)
class Vcpu:
    """One line of ``xl vcpu-list``; ``hard`` lists the CPUs on which the vCPU may run."""

    domain: int
    number: int
    cpu_s: float
    hard: str


@dataclass(frozen=True)
class Pool:
    """One CPU pool and the name of its scheduler."""

    name: str
    cpus: int
    scheduler: str


def domains(listed: str) -> tuple[Domain, ...]:
    """Parse ``xl list`` or ``xl list -v``."""
    found = []
    for line in listed.splitlines():
        if match := _DOMAIN.match(line):
            name = match["name"] or ""
            found.append(
                Domain(
                    name="" if name == "(null)" else name,
                    id=int(match["id"]),
                    memory=int(match["memory"]) << 20,
                    vcpus=int(match["vcpus"]),
                    state=match["state"],
                    cpu_s=float(match["time"]),
                    uuid=match["uuid"] or "",
                )
            )
    return tuple(found)


def vcpus(listed: str) -> tuple[Vcpu, ...]:
    """Parse ``xl vcpu-list``."""
    return tuple(
        Vcpu(int(match["id"]), int(match["vcpu"]), float(match["time"]), match["hard"])
        for line in listed.splitlines()
        if (match := _VCPU.match(line))
    )


def info(shown: str) -> dict[str, str]:
    """Parse the ``name : value`` lines of ``xl info``."""
    pairs = (line.partition(":") for line in shown.splitlines())
    return {key.strip(): value.strip() for key, colon, value in pairs if colon and key.strip()}


def version(facts: Mapping[str, str]) -> str:
    """Return Xen's version from the facts of :func:`info`; empty if they lack it."""
    if "xen_version" in facts:
        return facts["xen_version"]
    parts = [facts.get("xen_major", ""), facts.get("xen_minor", "")]
    return ".".join(parts) + facts.get("xen_extra", "") if all(parts) else ""


def pools(listed: str) -> tuple[Pool, ...]:
    """Parse ``xl cpupool-list``."""
    return tuple(
        Pool(match["name"], int(match["cpus"]), match["scheduler"])
        for line in listed.splitlines()
        if (match := _POOL.match(line))
    )


def parameters(shown: str) -> dict[str, int]:
    """Parse a pool's line of ``xl sched-credit -s`` or ``sched-credit2 -s``.

    Returns:
        ``tslice`` and ``ratelimit`` in microseconds, as far as the scheduler has them.
    """
    return {
        name: int(value) * (1000 if unit == "ms" else 1)
        for name, value, unit in _PARAMETER.findall(shown)
    }


def weight_and_cap(shown: str) -> dict[str, int]:
    """Parse a domain's line of ``xl sched-credit -d`` or ``sched-credit2 -d``.

    Returns:
        ``weight`` and ``cap_percent``; empty if no line ends with two numbers.
    """
    for line in reversed(shown.splitlines()):
        last = line.split()[-2:]
        if len(last) == 2 and all(word.isascii() and word.isdigit() for word in last):
            return {"weight": int(last[0]), "cap_percent": int(last[1])}
    return {}


def topology(shown: str) -> HostCpus | None:
    """Parse the host's CPUs from ``xl info -n``: dom0's kernel sees only its own vCPUs.

    Returns:
        CPUs, hardware threads of each core, and NUMA nodes; None if the output has none.
    """
    section = shown.partition("cpu_topology")[2].partition("numa_info")[0]
    rows = [
        (int(row[1]), (int(row[3]), int(row[2])), int(row[4]))
        for line in section.splitlines()
        if (row := _TOPOLOGY.match(line))
    ]
    if not rows:
        return None
    cores: dict[tuple[int, int], list[int]] = {}
    for cpu, core, _ in rows:
        cores.setdefault(core, []).append(cpu)
    return HostCpus(
        online=tuple(sorted(cpu for cpu, _, _ in rows)),
        siblings={cpu: tuple(sorted(cores[core])) for cpu, core, _ in rows},
        nodes={cpu: node for cpu, _, node in rows},
    )


def reason(printed: str) -> str:
    """Return Xen's own reason from the output of ``xl``: its errors without source locations.

    The first error is the cause; later ones only show how it passed through the layers above.
    """
    errors = []
    for line in printed.splitlines():
        line = line.strip()
        head, colon, text = line.partition("libxl: error: ")
        if not colon:
            head, colon, text = line.partition("xc: error: ")
        if colon and not head:
            errors.append(_LOCATION.sub("", text).strip())
    if errors:
        return "; ".join(dict.fromkeys(errors[:2]))
    lines = [line.strip() for line in printed.splitlines() if line.strip()]
    return "; ".join(lines[-2:])


def shutdown_code(printed: str) -> int | None:
    """Return the reason code that ``xl create`` prints when a domain has shut down.

    0 power off, 1 reboot, 2 suspend, 3 crash, 4 watchdog, 5 soft reset
    (xen/include/public/sched.h).
    """
    found = re.findall(r"has shut down, reason code (\d+)", printed)
    return int(found[-1]) if found else None


def created_id(printed: str) -> int | None:
    """Return the id that ``xl create -F`` prints once the domain is built."""
    found = re.search(r"Waiting for domain .* \(domid (\d+)\) to die", printed)
    return int(found[1]) if found else None
