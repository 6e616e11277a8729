"""How environments differ between arms, block by block, and within an arm during a run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence, Set
from fnmatch import fnmatchcase
from typing import Any

from tare.analysis.data.rundata import SUBJECT, RunData
from tare.analysis.effects.comparison import EnvironmentChange, ProofDifference
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
    ("scratch.*", "the files are on another kind of disk, or under another cache mode"),
    ("settings.*", "the agent changed a setting in one arm only"),
    ("placement.*", "other CPUs of the host, or another memory limit"),
)
"""Paths in the proof (shell patterns) and how a difference there could explain a result."""

UNALIKE = frozenset({"network.address"})
"""Paths that differ between any two machines, so they are not a difference between arms."""

PLACED = frozenset({"confinement.cpus_allowed", "topology.usable", "placement.cpus"})
"""Paths that depend on the CPUs that Tare chose for a machine, which may differ in each block."""

SIZES = frozenset({"memory.total"})
SAME_SIZE = 0.01
"""The share by which a machine's size may differ: at each boot the kernel reserves a little more or
less memory."""

_WORD_LISTS = ("cpu.flags", "cpu.bugs")

Proof = Mapping[str, str]
Proofs = dict[tuple[int, str], list[Proof]]
"""Flattened proofs by block and scenario."""


def proof_differences(
    machines: Iterable[MachineResult],
    baseline: str,
    arms: Sequence[str],
    own_baselines: Mapping[str, str] | None = None,
) -> tuple[ProofDifference, ...]:
    """Return the differences of each arm's environment from the baseline's, block by block.

    Machines are compared with those of the same block and scenario. If two arms share none, as in a
    study in sessions, all machines of one are compared with all of the other.

    Args:
        machines: All machines; those of a role other than ``subject`` or without proof are
            left out.
        baseline: The baseline arm.
        arms: The arms to compare with it.
        own_baselines: The baseline of each arm that is compared with another one.

    Returns:
        Differences in order of arms; within an arm those that could explain a result first,
        in the order of `EXPLANATIONS`.
    """
    proofs = _proofs_by_block(machines)
    compared = {arm: (own_baselines or {}).get(arm, baseline) for arm in arms}
    return tuple(
        difference
        for arm, base in compared.items()
        if arm != base and arm in proofs and base in proofs
        for difference in _compare(arm, proofs[base], proofs[arm])
    )


def environment_changes(runs: Iterable[RunData]) -> tuple[EnvironmentChange, ...]:
    """Return the changes within arms from one block to a later one, in any run.

    Blocks that another host measured are compared with that host's own.

    Returns:
        Arms with the same change are one entry. Changes that could explain a result come first,
        in the order of `EXPLANATIONS`, and earlier changes before later ones.
    """
    alike: dict[tuple[str, tuple[tuple[int, str, str], ...]], dict[str, None]] = {}
    for run in runs:
        for host in dict.fromkeys(run.block_hosts.get(m.block, "") for m in run.machines):
            here = [m for m in run.machines if run.block_hosts.get(m.block, "") == host]
            placed = {machine.arm for machine in here if machine.placement.get("cpus")}
            for arm, proofs in _proofs_by_block(here).items():
                without = UNALIKE | PLACED if arm in placed else UNALIKE
                for path, steps in _steps(proofs, without).items():
                    alike.setdefault((path, steps), {})[arm] = None
    found = [
        EnvironmentChange(
            arms=tuple(arms),
            path=path,
            block=steps[0][0],
            before=_cut(steps[0][1]),
            after=_cut(steps[0][2]),
            blocks=tuple(block for block, _, _ in steps),
            why=explanation(path),
        )
        for (path, steps), arms in alike.items()
    ]
    return tuple(sorted(found, key=lambda each: (_rank(each.path), each.block, each.path)))


def change_sentences(changes: Sequence[EnvironmentChange], most: int = 4) -> tuple[str, ...]:
    """Return sentences on changes within a run that could explain a result, the first few.

    Args:
        changes: All changes.
        most: The most changes to describe; the others are counted.
    """
    explaining = [each for each in changes if each.explains]
    sentences = [
        f"The environment changed during the run, at block {each.block}: {each.path} of "
        f"{_listed(each.arms)} was {each.before} before and is {each.after} from then on"
        f"{_later_changes_text(each)} ({each.why})."
        for each in explaining[:most]
    ]
    if len(explaining) > most:
        rest = len(explaining) - most
        sentences.append(
            f"{rest} more value{'s' if rest > 1 else ''} of the environment changed during the "
            "run; the report's section on the environment lists all."
        )
    return tuple(sentences)


def _later_changes_text(change: EnvironmentChange) -> str:
    rest = change.blocks[1:]
    if not rest:
        return ""
    return f", until it changed again at block{'s' if len(rest) > 1 else ''} {_numbers(rest)}"


def _listed(names: Sequence[str]) -> str:
    *first, last = names
    return f"{', '.join(first)} and {last}" if first else last


def _proofs_by_block(machines: Iterable[MachineResult]) -> dict[str, Proofs]:
    proofs: dict[str, Proofs] = {}
    for machine in machines:
        if machine.role == SUBJECT and machine.proof:
            of_arm = proofs.setdefault(machine.arm, {})
            of_arm.setdefault((machine.block, machine.scenario), []).append(flatten(machine.proof))
    return proofs


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


def _compare(arm: str, base: Proofs, other: Proofs) -> list[ProofDifference]:
    shared = sorted(base.keys() & other.keys())
    if not shared:
        shared = [(0, "")]
        base, other = (
            {shared[0]: [p for each in one.values() for p in each]} for one in (base, other)
        )
    blocks = sorted({block for block, _ in shared})
    sides = [{where: one[where] for where in shared} for one in (base, other)]
    paths = {path for side in sides for proof in _all_proofs(side) for path in proof}
    found = []
    for path in paths - UNALIKE:
        apart = [where for where in shared if _is_disjoint(path, base[where], other[where])]
        if not apart or (path in PLACED and _balanced(path, *sides)):
            continue
        before, after = (side[apart[0]][0].get(path, ABSENT) for side in sides)
        if path in _WORD_LISTS and ABSENT not in (before, after):
            before, after = _differing_words(before, after)
        why = explanation(path)
        varies = any(len(_values(path, *side.values())) > 1 for side in sides)
        when = _blocks_text(sorted({block for block, _ in apart}), blocks)
        found.append(
            ProofDifference(arm, path, _cut(before), _cut(after), bool(why), why, varies, when)
        )
    return sorted(found, key=lambda difference: (_rank(difference.path), difference.path))


def _all_proofs(proofs: Proofs) -> list[Proof]:
    return [proof for each in proofs.values() for proof in each]


def _values(path: str, *proofs: Sequence[Proof]) -> Counter[str]:
    return Counter(proof.get(path, ABSENT) for each in proofs for proof in each)


def _is_disjoint(path: str, one: Sequence[Proof], other: Sequence[Proof]) -> bool:
    """Return whether no machine of one side has the same value as one of the other."""
    ours, theirs = _values(path, one), _values(path, other)
    return not any(_is_same_value(path, first, second) for first in ours for second in theirs)


def _is_same_value(path: str, one: str, other: str) -> bool:
    if one == other or path not in SIZES:
        return one == other
    try:
        sizes = float(one), float(other)
    except ValueError:
        return False
    return max(sizes) <= (1 + SAME_SIZE) * min(sizes)


def _balanced(path: str, base: Proofs, other: Proofs) -> bool:
    """Return whether both arms had each value equally often, such as when they swap their CPUs."""
    return _values(path, *base.values()) == _values(path, *other.values())


def _steps(proofs: Proofs, without: Set[str]) -> dict[str, tuple[tuple[int, str, str], ...]]:
    """Return the changes of an arm's environment by path: block, former value and new value."""
    found: dict[str, set[tuple[int, str, str]]] = {}
    for scenario in dict.fromkeys(scenario for _, scenario in proofs):
        in_order = [proofs[where] for where in sorted(proofs) if where[1] == scenario]
        blocks = sorted(block for block, of in proofs if of == scenario)
        for path in {path for each in in_order for proof in each for path in proof} - without:
            for block, before, after in zip(blocks[1:], in_order, in_order[1:], strict=False):
                if _is_disjoint(path, before, after):
                    values = (before[-1].get(path, ABSENT), after[0].get(path, ABSENT))
                    if path in _WORD_LISTS and ABSENT not in values:
                        values = _differing_words(*values)
                    found.setdefault(path, set()).add((block, *values))
    return {path: tuple(sorted(steps)) for path, steps in found.items()}


def _blocks_text(apart: Sequence[int], blocks: Sequence[int]) -> str:
    """Describe the blocks in which two arms differed; empty if they differed in all shared ones."""
    if len(apart) == len(blocks):
        return ""
    first = blocks.index(apart[0])
    if list(apart) == list(blocks[first:]):
        return f"from block {apart[0]} on"
    if list(apart) == list(blocks[: len(apart)]):
        return f"until block {apart[-1]}"
    return f"in block{'s' if len(apart) > 1 else ''} {_numbers(apart)}"


def _numbers(numbers: Sequence[int], most: int = 8) -> str:
    listed = ", ".join(map(str, numbers[:most]))
    return listed if len(numbers) <= most else f"{listed} and {len(numbers) - most} more"


def _differing_words(before: str, after: str) -> tuple[str, str]:
    first, second = set(before.split()), set(after.split())
    texts = (" ".join(sorted(one - two)) for one, two in ((first, second), (second, first)))
    before, after = (f"only here: {text}" if text else "nothing more" for text in texts)
    return before, after


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."
