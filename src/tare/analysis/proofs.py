"""How the environments of two arms differ, and which differences could explain a result."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

from tare.analysis.comparison import ProofDifference
from tare.events.results import MachineResult

ABSENT = "(absent)"
_LONGEST = 240

EXPLANATIONS: tuple[tuple[str, str], ...] = (
    ("kernel.preempt", "the kernel's preemption model sets how late a thread may run"),
    ("kernel.release", "another kernel schedules, mitigates and allocates differently"),
    ("kernel.cmdline", "kernel arguments switch mitigations, timers and isolation"),
    ("kernel.architecture", "another instruction set"),
    ("scheduler.rt_*", "real-time throttling takes the CPU from SCHED_FIFO threads"),
    ("scheduler.fair_server*", "the fair server takes the CPU from SCHED_FIFO threads"),
    ("scheduler.may_be_realtime", "without SCHED_FIFO other threads preempt the measured one"),
    ("scheduler.numa_balancing", "NUMA balancing moves pages and causes faults"),
    ("scheduler.autogroup", "autogroups share CPU time by session"),
    ("memory.total", "less memory means less cache and earlier reclaim"),
    ("memory.swap", "swapping makes memory as slow as the disk"),
    ("memory.page_size", "page size sets how often translations miss"),
    ("memory.huge_page*", "huge pages save translation misses"),
    ("memory.transparent_huge_pages*", "huge pages save translation misses, most in a guest"),
    ("memory.same_page_merging", "merging scans memory and unshares pages on writes"),
    ("memory.nodes", "memory of another node is further away"),
    ("mitigations.*", "a mitigation costs time at each entry to the kernel"),
    ("confinement.cpus_allowed", "another choice of CPUs"),
    ("confinement.cpu_max", "a CPU limit throttles"),
    ("confinement.memory_max", "a memory limit reclaims and kills"),
    ("confinement.seccomp", "seccomp filters every system call"),
    ("confinement.realtime_priority_limit", "it limits real-time priorities"),
    ("confinement.locked_memory_limit", "memory that cannot be locked may fault"),
    ("clocksource.current", "reading the time may trap into the hypervisor"),
    ("tsc.*", "the counter that times everything is of another quality"),
    ("cpu.model*", "another processor model"),
    ("cpu.vendor", "another processor model"),
    ("cpu.family", "another processor model"),
    ("cpu.stepping", "another processor stepping"),
    ("cpu.microcode", "microcode changes what mitigations cost"),
    ("cpu.flags", "instructions that programs and the kernel choose by are missing or added"),
    ("cpu.bugs", "the kernel mitigates other processor faults"),
    ("hypervisor.*", "the kernel uses the interfaces of the hypervisor that it sees"),
    ("topology.caches*", "other caches, or other knowledge of them"),
    ("topology.siblings*", "threads that share a core slow each other down"),
    ("topology.online", "another number of CPUs"),
    ("topology.isolated", "isolated CPUs are left alone by the scheduler"),
    ("topology.tickless", "CPUs without a tick are interrupted less"),
    ("topology.usable", "another choice of CPUs"),
    ("power.*", "frequency, boost, sleep states or hyper-threading differ"),
    ("network.*", "another network device, or other offloads"),
    ("nics.*", "another network device, or other offloads"),
    ("disks.*", "another disk, cache mode or queue"),
    ("scratch.*", "the files lie on another kind of disk, or under another cache mode"),
    ("settings.*", "the agent changed a setting in one arm only"),
)
"""Paths in the proof (shell patterns) and how a difference there could explain a result."""

UNALIKE = frozenset({"network.address"})
"""What no two machines share, and no difference between arms."""

_WORD_LISTS = ("cpu.flags", "cpu.bugs")


def proof_differences(
    machines: Iterable[MachineResult],
    baseline: str,
    arms: Sequence[str],
    own_baselines: Mapping[str, str] | None = None,
) -> tuple[ProofDifference, ...]:
    """Return how each arm's environment differs from the baseline's.

    Args:
        machines: All machines; those of a role other than ``subject`` or without proof are
            left out.
        baseline: The baseline arm.
        arms: The arms to compare with it.
        own_baselines: The baseline on its own host, for each arm on another than ``baseline``'s.

    Returns:
        Differences in order of arms; within an arm those that could explain a result first,
        in the order of `EXPLANATIONS`.
    """
    proofs: dict[str, list[dict[str, str]]] = {}
    for machine in machines:
        if machine.role == "subject" and machine.proof:
            proofs.setdefault(machine.arm, []).append(flatten(machine.proof))
    compared = {arm: (own_baselines or {}).get(arm, baseline) for arm in arms}
    return tuple(
        difference
        for arm, base in compared.items()
        if arm != base and arm in proofs and base in proofs
        for difference in _compare(arm, proofs[base], proofs[arm])
    )


def flatten(proof: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    """Return a nested proof as text by dotted path; list items by their index."""
    flat: dict[str, str] = {}
    for name, value in proof.items():
        path = f"{prefix}{name}"
        if isinstance(value, Mapping):
            flat.update(flatten(value, f"{path}."))
        elif isinstance(value, list | tuple) and any(isinstance(v, Mapping) for v in value):
            flat.update(flatten({str(i): v for i, v in enumerate(value)}, f"{path}."))
        elif isinstance(value, list | tuple):
            if value:
                flat[path] = " ".join(str(item) for item in value)
        elif value is not None:
            flat[path] = str(value)
    return flat


def explanation(path: str) -> str:
    """Return how a difference at ``path`` could explain a result; empty if it could not."""
    return next((why for pattern, why in EXPLANATIONS if fnmatchcase(path, pattern)), "")


def _rank(path: str) -> int:
    matches = (i for i, (pattern, _) in enumerate(EXPLANATIONS) if fnmatchcase(path, pattern))
    return next(matches, len(EXPLANATIONS))


def _compare(
    arm: str, base: list[dict[str, str]], other: list[dict[str, str]]
) -> list[ProofDifference]:
    paths = {path for proof in (*base, *other) for path in proof} - UNALIKE
    found = []
    for path in paths:
        base_values = {proof.get(path, ABSENT) for proof in base}
        other_values = {proof.get(path, ABSENT) for proof in other}
        # What varies alike on both sides is no difference between the arms.
        if base_values & other_values:
            continue
        before, after = base[0].get(path, ABSENT), other[0].get(path, ABSENT)
        if path in _WORD_LISTS and ABSENT not in (before, after):
            before, after = _only_words(before, after)
        why = explanation(path)
        varies = len(base_values) > 1 or len(other_values) > 1
        found.append(ProofDifference(arm, path, _cut(before), _cut(after), bool(why), why, varies))
    return sorted(found, key=lambda difference: (_rank(difference.path), difference.path))


def _only_words(before: str, after: str) -> tuple[str, str]:
    first, second = set(before.split()), set(after.split())
    texts = (" ".join(sorted(one - two)) for one, two in ((first, second), (second, first)))
    before, after = (f"only here: {text}" if text else "nothing more" for text in texts)
    return before, after


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."
