"""Match published scenarios with those of a run, and describe the machines in them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from tare.analysis.data.rundata import RunData
from tare.references.published import PublishedScenario
from tare.study.model.shape import ALL, SPARE, subject_vcpus


def matching(runs: Sequence[RunData], name: str, wanted: PublishedScenario) -> str:
    """Return the runs' scenario that is like ``wanted``; empty if there is none.

    If several are, the scenario of the same name comes first, then one that places the subject as
    the
    source did, then the first of the study.

    Args:
        runs: The runs.
        name: The source's name for the scenario.
        wanted: The published scenario.
    """
    found: dict[str, Mapping[str, Any]] = {}
    for run in runs:
        for label, scenario in mapping(run.study.get("scenarios")).items():
            found.setdefault(str(label), mapping(scenario))
    alike = [
        label
        for label, scenario in found.items()
        if _is_like(scenario, wanted) and wanted.vcpus in (None, vcpus_in(runs, label))
    ]
    placed = [label for label in alike if subject_of(found[label]) == wanted.subject]
    return name if name in alike else next(iter([*placed, *alike]), "")


def why_no_scenario(runs: Sequence[RunData], name: str, wanted: PublishedScenario) -> str:
    """Return why no scenario of the runs is like a published one.

    Args:
        runs: The runs.
        name: The source's name for the scenario.
        wanted: The published scenario.
    """
    none_fits = f"no scenario of this run is like {name}"
    if wanted.vcpus is None:
        return none_fits
    labels = {str(label) for run in runs for label in mapping(run.study.get("scenarios"))}
    had = {count for label in labels if (count := vcpus_in(runs, label)) is not None}
    counts = " or ".join(str(count) for count in sorted(had))
    return f"{none_fits}, of {wanted.vcpus} vCPUs; this run's have {counts}" if had else none_fits


def skipped_in(runs: Iterable[RunData], scenario: str) -> str:
    """Return the reason why a whole scenario was skipped; empty if it was not."""
    found = dict.fromkeys(
        part.reason
        for run in runs
        for part in run.skipped
        if part.scenario == scenario and not part.workload
    )
    return "; ".join(found)


def _is_like(scenario: Mapping[str, Any], wanted: PublishedScenario) -> bool:
    if subject_of(scenario) != wanted.subject and not wanted.any_place:
        return False
    if _slaves_of(scenario) != (wanted.slaves or 0):
        return False
    neighbours = [mapping(one) for one in scenario.get("neighbours") or ()]
    if wanted.neighbours is None:
        return not neighbours
    if len(neighbours) != 1:
        return False
    one = neighbours[0]
    counts = (wanted.neighbours.count, "fill") if wanted.neighbours.count > 1 else (1,)
    return (
        one.get("load") == wanted.neighbours.load
        and one.get("cpus", "any") == wanted.neighbours.cpus
        and one.get("count", 1) in counts
    )


def _slaves_of(scenario: Mapping[str, Any]) -> int | None:
    """Return the number of slaves of a run's cluster on one host.

    Without a cluster it is 0; None if the cluster is on other hosts or external.
    """
    cluster = mapping(scenario.get("cluster"))
    if not cluster:
        return 0
    slaves, elsewhere = cluster.get("slaves"), cluster.get("hosts") or cluster.get("external")
    return slaves if isinstance(slaves, int) and not elsewhere else None


def subject_of(scenario: Mapping[str, Any]) -> str:
    """Return the placement of the subject in a run's scenario: ``any`` or ``pinned``."""
    return str(mapping(scenario.get("subject")).get("cpus", "any"))


def vcpus_in(runs: Iterable[RunData], scenario: str) -> int | None:
    """Return the number of subjects' vCPUs in a scenario; None if arms differ or it is unknown."""
    found = {count for run in runs for count in _vcpus(run, scenario)}
    return found.pop() if len(found) == 1 else None


def _vcpus(run: RunData, scenario: str) -> Iterator[int | None]:
    placed = mapping(mapping(run.study.get("scenarios")).get(scenario))
    wanted = mapping(placed.get("subject")).get("vcpus")
    slave = _slave_vcpus(mapping(placed.get("cluster")))
    shape, cpus = mapping(run.study.get("shape")), cpus_of(run)
    for arm in mapping(run.study.get("arms")).values():
        own = mapping(mapping(arm).get("shape") or shape).get("vcpus")
        if isinstance(own, int) and (cpus is not None or wanted not in (ALL, SPARE)):
            yield subject_vcpus(wanted, slave, own, cpus or 0)
        else:
            yield None


def _slave_vcpus(cluster: Mapping[str, Any]) -> int | None:
    """Return the slaves' number of vCPUs in a run's cluster; None if the subject is not a slave."""
    if cluster.get("external") or cluster.get("master") != "with-first":
        return None
    vcpus = cluster.get("vcpus")
    return vcpus if isinstance(vcpus, int) else None


def neighbours_in(runs: Iterable[RunData], scenario: str) -> set[int]:
    """Return the numbers of neighbours in a scenario, over all blocks and arms."""
    roles: dict[tuple[str, int, str], set[str]] = {}
    for run in runs:
        for machine in run.machines:
            if machine.scenario == scenario:
                seen = roles.setdefault((run.run, machine.block, machine.arm), set())
                if re.fullmatch(r"neighbour-\d+", machine.role):
                    seen.add(machine.role)
    return {len(seen) for seen in roles.values()}


def cpus_of(run: RunData) -> int | None:
    """Return the number of CPUs of a run's host; None if that is not recorded."""
    cpus = run.host.get("cpus")
    return cpus if isinstance(cpus, int) else None


def describe_scenario(scenario: PublishedScenario) -> str:
    """Return a published scenario in words, such as ``pinned, 1 cpu-load neighbour (same)``."""
    words = ["subject pinned" if scenario.subject == "pinned" else "subject on any CPU"]
    if scenario.vcpus is not None:
        words.append(f"{scenario.vcpus} vCPU{'s' * (scenario.vcpus > 1)}")
    if scenario.slaves is not None:
        words.append(f"a cluster of {scenario.slaves} slave{'s' * (scenario.slaves > 1)}")
    if scenario.neighbours is not None:
        many = scenario.neighbours
        where = {"same": "on the same CPU", "other": "on other CPUs", "any": "on any CPU"}
        plural = "s" if many.count > 1 else ""
        words.append(f"{many.count} {many.load} neighbour{plural} {where[many.cpus]}")
    return ", ".join(words)


def mapping(value: Any) -> Mapping[str, Any]:
    """Return the value if it is a mapping, and an empty mapping otherwise."""
    return value if isinstance(value, Mapping) else {}
