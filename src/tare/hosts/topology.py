"""A host's CPUs: their numbers, which a session may use, and the caches and memory they share.

The facts are in files that Linux has under ``/sys`` and ``/proc``. On this computer, and in a
copied tree, they are read without starting a process (:func:`files_below`). Over SSH, a shell
script prints them (:func:`show_topology`), and :func:`read_topology` parses its output.

The interpretation of the files follows the kernel's ``Documentation/admin-guide/cputopology.rst``,
``cgroup-v2.rst``, ``cgroup-v1/cpusets.rst`` and sysfs-devices-system-cpu. It also follows hwloc's
topology-linux.c; ``tests/fixtures/hosts`` compares the results with hwloc's.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Literal

from tare.hosts.cpusets import CPUSET_FILES, Cpuset, cpu_list, folders, hierarchies
from tare.study.planning.host_cpus import CoreKind, HostCpus

CPU = "/sys/devices/system/cpu"
NODE = "/sys/devices/system/node"
KERNEL_ALLOWS = "kernel-allows"
"""The key, instead of a file's path, of the CPUs that a process gets when it asks for all."""

MOST_CPUS = 8192
"""The kernel's own limit in its largest common configuration (CONFIG_NR_CPUS with MAXSMP)."""

_OF_ALL = (
    f"{CPU}/online",
    f"{CPU}/isolated",
    f"{CPU}/nohz_full",
    "/sys/devices/cpu_*/cpus",
    f"{NODE}/online",
    f"{NODE}/node[0-9]*/cpulist",
    f"{NODE}/node[0-9]*/cpumap",
    "/proc/self/cgroup",
    "/proc/self/cpuset",
)
_OF_EACH = (
    "online",
    "cpu_capacity",
    "cpufreq/cpuinfo_max_freq",
    "cpufreq/base_frequency",
    "acpi_cppc/nominal_freq",
    "topology/core_cpus_list",
    "topology/core_cpus",
    "topology/thread_siblings_list",
    "topology/thread_siblings",
    "topology/package_cpus_list",
    "topology/package_cpus",
    "topology/core_siblings_list",
    "topology/core_siblings",
    "topology/core_id",
    "cache/index[0-9]*/level",
    "cache/index[0-9]*/shared_cpu_list",
    "cache/index[0-9]*/shared_cpu_map",
)
"""Files in a CPU's own folder."""
_IN_PART = {
    "/proc/meminfo": "MemTotal:.*",
    f"{NODE}/node[0-9]*/meminfo": "Node.*MemTotal:.*",
    "/proc/self/status": "Cpus_allowed_list:.*",
    "/proc/stat": "cpu[0-9]+",
}
"""Files that are read only in part, with the patterns that the lines start with."""
_PROCESSOR = "(vendor_id|cpu family).*"
_GPUS = "/proc/driver/nvidia/gpus"
_MOUNTS = "/proc/mounts"


def _shell_patterns(patterns: Iterable[str], root: str) -> str:
    return " ".join(f"{root}{pattern}" for pattern in patterns)


# The script uses shell built-ins where possible, because each process costs time on a busy host.
_SCRIPT = rf"""
root=$1
groups() {{
  while read -r _ at kind how _; do
    case $kind in cgroup|cgroup2|cpuset)
      [ "$1" = mounts ] && printf '%s\n' "$root{_MOUNTS}:- $at $kind $how" || each "$at" ;;
    esac
  done 2>/dev/null < $root{_MOUNTS}
}}
each() {{
  while IFS=: read -r _ _ name; do group "$root$1" "${{name%/}}"
  done 2>/dev/null < $root/proc/self/cgroup
  while read -r name; do group "$root$1" "${{name%/}}"; done 2>/dev/null < $root/proc/self/cpuset
}}
group() {{
  at=$2
  while :; do
    for file in "$1$at"/cpuset.cpus* "$1$at"/cpuset.mems* "$1$at"/cpuset.effective_* \
      "$1$at"/effective_* "$1$at"/cpus "$1$at"/mems
    do [ -f "$file" ] && printf '%s\000' "$file"; done
    [ "${{at%/*}}" = "$at" ] && break
    at=${{at%/*}}
  done
}}
printf '%s\n' $root{CPU}/cpu[0-9]*
groups mounts
{{
  for file in {_shell_patterns(_OF_ALL, "$root")}; do printf '%s\000' $file; done
  for file in {" ".join(_OF_EACH)}; do printf '%s\000' $root{CPU}/cpu[0-9]*/$file; done
  groups each
  each /sys/fs/cgroup; each /sys/fs/cgroup/cpuset; each /dev/cpuset
}} | xargs -0 grep -asH ""
grep -asHoE '^({"|".join(_IN_PART.values())})' {_shell_patterns(_IN_PART, "$root")}
grep -asH -m 2 -E '^{_PROCESSOR}' $root/proc/cpuinfo
for gpu in $root{_GPUS}/*/numa_status; do
  while read -r word number; do
    [ "$word" = Node: ] && printf '%s\n' "$root{_GPUS}:Node: $number"
  done 2>/dev/null < "$gpu"
done
exit 0
"""


def files_below(root: str = "") -> dict[str, str]:
    """Return the files that :func:`cpus_of` needs, from this computer or from a copied tree.

    Args:
        root: The folder that holds ``sys`` and ``proc``; empty for this computer's own.
    """
    files: dict[str, str] = {}

    def keep(path: str, part: str = "") -> None:
        with suppress(OSError):
            text = Path(f"{root}{path}").read_text(errors="replace").replace("\0", "").rstrip("\n")
            found = re.finditer(f"^({part})", text, re.MULTILINE) if part else None
            files[path] = text if found is None else "\n".join(each[0] for each in found)

    def named(pattern: str) -> Iterator[str]:
        if "*" not in pattern:
            return iter([pattern])
        below = Path(root or "/").glob(pattern.removeprefix("/"))
        return (str(path).removeprefix(root) for path in below)

    cpus = list(named(f"{CPU}/cpu[0-9]*"))
    files |= dict.fromkeys(cpus, "")
    for pattern in (*_OF_ALL, *(f"{cpu}/{file}" for cpu in cpus for file in _OF_EACH)):
        for path in named(pattern):
            keep(path)
    for pattern, part in {**_IN_PART, "/proc/cpuinfo": _PROCESSOR}.items():
        for path in named(pattern):
            keep(path, part)
    statuses = [Path(f"{root}{path}") for path in named(f"{_GPUS}/*/numa_status")]
    files[_GPUS] = "\n".join(path.read_text(errors="replace") for path in statuses)
    keep(_MOUNTS, ".* (cgroup|cgroup2|cpuset) .*")
    for mount, name, unified in hierarchies(files):
        for folder in folders(mount, name, unified=unified):
            for file in CPUSET_FILES:
                keep(f"{folder}/{file}")
    return files


_LOOK = f"""
grep -asHE '^([0-9,-]+|Cpus_allowed_list:.*)$' {CPU}/online /proc/self/status
exit 0
"""


def show_usable() -> tuple[str, ...]:
    """Return the command whose output :func:`currently_usable` parses."""
    return ("sh", "-c", _LOOK)


def ask_kernel(agent: str) -> tuple[str, ...]:
    """Return a command that prints the CPUs that the kernel grants to a process asking for all.

    Args:
        agent: The agent's program on the host.
    """
    inner = f"sed -n 's/^Cpus_allowed_list:/{KERNEL_ALLOWS}:/p' /proc/self/status"
    return (agent, "exec", "--cpus", f"0-{MOST_CPUS - 1}", "--", "sh", "-c", inner)


def currently_usable(text: str, cpus: HostCpus) -> tuple[int, ...]:
    """Return the CPUs that may be used now, in ascending order.

    Args:
        text: The output of the commands of :func:`show_usable` and :func:`ask_kernel`.
        cpus: The CPUs found earlier; isolated CPUs change only at boot.
    """
    files = _files(text, "")

    def numbers(path: str) -> frozenset[int]:
        return frozenset(cpu_list(files.get(path, "").rpartition(":")[2]))

    online, here = numbers(f"{CPU}/online") or frozenset(cpus.online), numbers("/proc/self/status")
    own = online & (here | cpus.isolated) if here else online
    permitted = numbers(KERNEL_ALLOWS)
    return tuple(sorted(own & permitted if permitted else own))


def show_topology(root: str = "") -> tuple[str, ...]:
    """Return the command whose output :func:`read_topology` parses.

    All of its programs and options exist in BusyBox.

    Args:
        root: The folder that holds ``sys`` and ``proc``; empty for the host's own.
    """
    return ("sh", "-c", _SCRIPT, "sh", root.rstrip("/"))


def _cpu_mask(text: str) -> tuple[int, ...]:
    """Return the numbers in a kernel CPU mask such as ``00000000,0000000f``."""
    mask = 0
    for word in text.strip().split(","):
        mask = mask << 32 | int(word or "0", 16)
    return tuple(number for number in range(mask.bit_length()) if mask >> number & 1)


def read_topology(text: str, root: str = "") -> HostCpus:
    """Return the online CPUs that a session may use, and the parts that they share.

    Args:
        text: The output of the command of :func:`show_topology`.
        root: The folder that was passed to :func:`show_topology`.

    Raises:
        ValueError: The output lists no usable CPU.
    """
    return cpus_of(_files(text, root.rstrip("/")))


def cpus_of(files: Mapping[str, str]) -> HostCpus:
    """Return the online CPUs that a session may use, and the parts that they share.

    Args:
        files: Contents by path: the files of :func:`files_below`.

    Raises:
        ValueError: The files list no usable CPU.
    """
    return _Reading(files).cpus()


def _files(text: str, root: str) -> dict[str, str]:
    """Return the files in the text by their paths below the root; a folder has empty content."""
    found: dict[str, list[str]] = {}
    for line in text.split("\n"):
        path, colon, content = line.partition(":")
        if path.startswith(("/", KERNEL_ALLOWS)):
            lines = found.setdefault(path.removeprefix(root), [])
            if colon:
                lines.append(content.strip("\0\r"))
    return {path: "\n".join(lines) for path, lines in found.items()}


@dataclass(frozen=True)
class _Speed:
    """The speed of a kind of core; 0 if the host does not report it.

    ``kind`` is Intel's number: 3 performance, 2 efficiency, 1 low power. Frequencies are in MHz.
    """

    capacity: int
    kind: int
    base: int
    most: int

    def alike(self, other: _Speed) -> bool:
        """Return whether both are of the same design, possibly one with favoured cores."""
        mine = (self.capacity, self.base, self.most)
        theirs = (other.capacity, other.base, other.most)
        near = all(
            max(a, b) <= min(a, b) * _ALIKE for a, b in zip(mine, theirs, strict=True) if a or b
        )
        return self.kind == other.kind and near


_ALIKE = 1.1
"""The frequencies of favoured cores differ by less than this ratio (hwloc assumes the same)."""
_CORE_TYPES = {"core": 3, "atom": 2, "lowpower": 1}
_BULLDOZER = ("21", "22")
"""The AMD families in which two cores of a module are listed as thread siblings."""


class _Reading:
    """The files of one host, and their interpretation."""

    def __init__(self, files: Mapping[str, str]) -> None:
        self._files = files
        self._exist = {
            int(found[1]) for path in files if (found := re.match(rf"{CPU}/cpu(\d+)\b", path))
        }

    def cpus(self) -> HostCpus:
        """Return the host's CPUs.

        Raises:
            ValueError: This process may not use any CPU.
        """
        online = self._online()
        groups = self._group
        permitted = self._list(KERNEL_ALLOWS) or groups.cpus
        here = self._list("/proc/self/status") or None
        isolated = self._isolated(online)
        # A process does not get isolated CPUs by default, but may request them.
        own = online if here is None else online & (set(here) | isolated)
        usable = own if permitted is None else own & set(permitted)
        if not usable:
            raise ValueError(_no_cpu(online, here, permitted))
        cpus = tuple(sorted(usable))
        if groups.isolated:
            isolated |= usable
        nodes, memory = self._nodes(online)
        return HostCpus(
            online=cpus,
            siblings=self._cores(cpus, online),
            nodes={cpu: nodes[cpu] for cpu in cpus if cpu in nodes},
            isolated=frozenset(isolated & usable),
            kinds=self._kinds(cpus),
            caches=self._caches(cpus),
            packages=self._packages(cpus, online),
            memory=memory,
            refused=self._refused(online, usable, here, permitted),
        )

    def _get(self, path: str) -> str:
        return self._files.get(path, "")

    def _list(self, path: str) -> tuple[int, ...]:
        """Return the CPUs in a list file; empty if it is missing or not a list."""
        first = self._get(path).partition("\n")[0]
        try:
            return cpu_list(first.partition(":")[2] or first)
        except ValueError:
            return ()

    def _set(self, path: str, *, old: str = "") -> frozenset[int]:
        """Return the CPUs in a ``…_list`` file, or in the mask of older kernels."""
        for name in filter(None, (path, old)):
            for listed, mask in ((f"{name}_list", name), (f"{name[:-3]}list", name)):
                if listed.endswith("list") and listed in self._files:
                    return frozenset(self._list(listed))
                if mask in self._files:
                    try:
                        return frozenset(_cpu_mask(self._get(mask)))
                    except ValueError:
                        return frozenset()
        return frozenset()

    def _number(self, path: str) -> int:
        """Return a file's number; 0 if it is missing."""
        found = re.match(r"\s*(-?\d+)", self._get(path))
        return int(found[1]) if found else 0

    def _online(self) -> set[int]:
        if listed := self._list(f"{CPU}/online"):
            return set(listed) & self._exist if self._exist else set(listed)
        if self._exist:
            return {cpu for cpu in self._exist if self._get(f"{CPU}/cpu{cpu}/online") != "0"}
        counted = re.findall(r"^cpu(\d+)", self._get("/proc/stat"), re.MULTILINE)
        return set(map(int, counted)) or set(self._list("/proc/self/status"))

    def _isolated(self, online: set[int]) -> set[int]:
        found = {*self._list(f"{CPU}/isolated"), *self._list(f"{CPU}/nohz_full")}
        return (found | set(self._group.isolated_by_partition)) & online

    def _refused(
        self,
        online: set[int],
        usable: set[int],
        here: tuple[int, ...] | None,
        permitted: tuple[int, ...] | None,
    ) -> dict[int, str]:
        """Return the reasons why CPUs of the host may not be used, by their numbers."""
        reasons: dict[int, str] = dict.fromkeys(self._exist - online, "is offline")
        for cpu in online - usable:
            by_group = permitted is not None and cpu not in permitted
            reasons[cpu] = (
                "is not among the CPUs that the control group (cpuset) of this process allows"
                if by_group or here is None
                else "is not among the CPUs that this process was started on (taskset, or "
                "CPUAffinity= of systemd)"
            )
        return reasons

    def _cores(self, cpus: Iterable[int], online: set[int]) -> dict[int, tuple[int, ...]]:
        vendor = self._get("/proc/cpuinfo")
        family = re.search(r"^cpu family\s*:\s*(\d+)", vendor, re.MULTILINE)
        modules = "AuthenticAMD" in vendor and family is not None and family[1] in _BULLDOZER
        cores = {}
        for cpu in cpus:
            at = f"{CPU}/cpu{cpu}/topology"
            core = self._set(f"{at}/core_cpus", old=f"{at}/thread_siblings") & online | {cpu}
            if modules:
                own = self._number(f"{at}/core_id")
                core = frozenset(
                    each
                    for each in core
                    if self._number(f"{CPU}/cpu{each}/topology/core_id") == own
                )
            cores[cpu] = tuple(sorted(core))
        return cores

    def _packages(self, cpus: Iterable[int], online: set[int]) -> dict[int, int]:
        """Return each CPU's package as its lowest CPU, because ids may be missing or repeated."""
        found = {}
        for cpu in cpus:
            at = f"{CPU}/cpu{cpu}/topology"
            package = self._set(f"{at}/package_cpus", old=f"{at}/core_siblings") & online
            if package:
                found[cpu] = min(package | {cpu})
        return found

    def _caches(self, cpus: Iterable[int]) -> dict[int, int]:
        """Return each CPU's level-3 cache; caches are numbered from 0 by their lowest CPU."""
        lowest: dict[int, int] = {}
        level = re.compile(rf"{CPU}/cpu(\d+)/cache/(index\d+)/level")
        wanted = set(cpus)
        for path, text in self._files.items():
            found = level.fullmatch(path)
            if found and text.strip() == "3" and int(found[1]) in wanted:
                at = f"{CPU}/cpu{found[1]}/topology"
                shared = self._set(f"{CPU}/cpu{found[1]}/cache/{found[2]}/shared_cpu_map")
                # Some kernels leave the mask empty if only one core uses the cache.
                own = self._set(f"{at}/core_cpus", old=f"{at}/thread_siblings")
                lowest[int(found[1])] = min(shared or own or {int(found[1])})
        order = {first: number for number, first in enumerate(sorted(set(lowest.values())))}
        return {cpu: order[first] for cpu, first in lowest.items()}

    # NUMA nodes

    def _nodes(self, online: set[int]) -> tuple[dict[int, int], dict[int, int]]:
        """Return the node of each CPU, and the bytes of memory in each node that may be used."""
        listed = set(self._list(f"{NODE}/online"))
        folder = re.compile(rf"{NODE}/node(\d+)/")
        named = {int(found[1]) for path in self._files if (found := folder.match(path))}
        gpus = set(map(int, re.findall(r"Node:\s*(\d+)", self._get(_GPUS))))
        nodes: dict[int, int] = {}
        memory: dict[int, int] = {}
        for node in sorted((named & listed if listed else named) - gpus):
            own = self._set(f"{NODE}/node{node}/cpumap")
            if not own.isdisjoint(nodes):
                continue  # Firmware that lists CPUs in several nodes: the first one counts.
            nodes |= dict.fromkeys(own, node)
            memory[node] = self._memory(f"{NODE}/node{node}/meminfo")
        if not memory:
            nodes, memory = dict.fromkeys(online, 0), {0: self._memory("/proc/meminfo")}
        allowed = self._group.mems
        if allowed is not None:
            memory = {node: size for node, size in memory.items() if node in allowed}
        return nodes, memory

    def _memory(self, path: str) -> int:
        found = re.search(r"MemTotal:\s*(\d+) kB", self._get(path))
        return int(found[1]) * 1024 if found else 0

    # Kinds of cores

    def _kinds(self, cpus: tuple[int, ...]) -> tuple[CoreKind, ...]:
        """Return the kinds of cores, the fastest first; empty if the host shows no difference."""
        speeds = self._speeds(cpus)
        found: dict[_Speed, list[int]] = {}
        for cpu, speed in speeds.items():
            found.setdefault(speed, []).append(cpu)
        found.pop(_Speed(0, 0, 0, 0), None)
        ranked = sorted(found, key=lambda s: (s.capacity, s.kind, s.base, s.most), reverse=True)
        designs: list[list[_Speed]] = []
        for speed in ranked:
            if designs and speed.alike(designs[-1][0]):
                designs[-1].append(speed)
            else:
                designs.append([speed])
        return tuple(
            CoreKind(_kind_name(number, len(designs)), number, tuple(found[speed]))
            for number, design in enumerate(designs)
            for speed in design
        )

    def _speeds(self, cpus: tuple[int, ...]) -> dict[int, _Speed]:
        types = {
            cpu: rank
            for name, rank in _CORE_TYPES.items()
            for cpu in self._list(f"/sys/devices/cpu_{name}/cpus")
        }
        base = self._frequencies(cpus, "cpufreq/base_frequency", 1000)
        if not any(base.values()):
            base = self._frequencies(cpus, "acpi_cppc/nominal_freq", 1)
        most = self._frequencies(cpus, "cpufreq/cpuinfo_max_freq", 1000)
        capacity = {cpu: self._number(f"{CPU}/cpu{cpu}/cpu_capacity") for cpu in cpus}
        if all(base[cpu] for cpu in cpus if most[cpu]):
            for group in _cpus_by_value(base).values():
                slowest = min(most[cpu] for cpu in group)
                # A higher turbo frequency does not make favoured cores another kind.
                if max(most[cpu] for cpu in group) < slowest * _ALIKE:
                    most |= dict.fromkeys(group, slowest)
                    if any(most.values()) and len({most[cpu] for cpu in group}) == 1:
                        least = min(capacity[cpu] for cpu in group)
                        capacity |= self._evened(group, least)
        return {cpu: _Speed(capacity[cpu], types.get(cpu, 0), base[cpu], most[cpu]) for cpu in cpus}

    def _evened(self, group: list[int], least: int) -> dict[int, int]:
        """Return capacities of a group without the surplus of favoured cores, if there is one."""
        most = {self._number(f"{CPU}/cpu{cpu}/cpufreq/cpuinfo_max_freq") for cpu in group}
        return dict.fromkeys(group, least) if len(most) > 1 else {}

    def _frequencies(self, cpus: Iterable[int], name: str, divisor: int) -> dict[int, int]:
        return {cpu: self._number(f"{CPU}/cpu{cpu}/{name}") // divisor for cpu in cpus}

    # Control groups

    @cached_property
    def _group(self) -> Cpuset:
        return Cpuset.found(self._files)


def _cpus_by_value(values: Mapping[int, int]) -> dict[int, list[int]]:
    groups: dict[int, list[int]] = {}
    for cpu, value in values.items():
        groups.setdefault(value, []).append(cpu)
    return groups


def _kind_name(number: int, kinds: int) -> Literal["performance", "efficiency", ""]:
    if kinds == 1:
        return ""
    return "performance" if number == 0 else "efficiency"


def _no_cpu(
    online: set[int], here: tuple[int, ...] | None, permitted: tuple[int, ...] | None
) -> str:
    if not online:
        return "the host lists no CPU"
    limits = " and ".join(
        words
        for words, allowed in (
            ("the control group (cpuset) of this process", permitted),
            ("the CPUs that this process was started on", here),
        )
        if allowed is not None
    )
    return f"of the host's {len(online)} online CPUs, {limits} leave none"
