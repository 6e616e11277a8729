"""Needs of workloads that an arm's machines cannot meet: such cells are skipped with a reason."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tare.errors import InputError
from tare.platforms.linux.network import ALONE, chosen_way
from tare.platforms.vendors.offer import LIVE
from tare.study.model.platform_options import GIVEN
from tare.units import format_size
from tare.workloads.mapreduce.job import Job
from tare.workloads.mapreduce.outside import read_outside
from tare.workloads.mapreduce.sizes import sizes_for
from tare.workloads.needs import needs_of, needs_of_loads

if TYPE_CHECKING:
    from tare.platforms.contract import Capabilities
    from tare.study.model.scenario import Scenario
    from tare.study.model.study import Study, WorkloadSpec
    from tare.workloads.contract import Need, Workload

NOT_GIVEN = "which `network-way: given` is not"


def lacking(
    workloads: Mapping[str, Workload[Any]],
    study: Study,
    arm: str,
    offered: Capabilities,
    *,
    emulated: bool = False,
) -> dict[str, str]:
    """Return the reason for each workload of the study that cannot run on an arm, by its key.

    Args:
        workloads: All workloads by name.
        study: The study, which sets the size of the arm's machines.
        arm: The arm's name.
        offered: The capabilities of its platform on the host.
        emulated: Whether its processors are emulated.
    """
    memory = study.shape_of(arm).memory
    found: dict[str, str] = {}
    for name, spec in study.workloads.items():
        workload = workloads[spec.workload]
        reason = unmet(study, arm, offered, needs_of(workload, spec.points))
        if workload.realtime and offered.no_realtime:
            reason = f"real-time priority: {offered.no_realtime}"
        points = [workload.parameters.model_validate(dict(point)) for point in spec.points]
        if offered.toolbox == {LIVE} and any(map(workload.adds, points)):
            reason = (
                "additions to the toolbox, and machines of "
                f"{study.arms[arm].platform} have the toolbox of the live image that they boot"
            )
        least = max(map(workload.memory_for, points), default=workload.memory)
        if memory < least:
            reason = (
                f"a machine with at least {format_size(least)} of memory, not {format_size(memory)}"
            )
        if _all_outside(study, spec) and any(_brings_archives(workload, p) for p in points):
            reason = (
                "archives for its tasks, which the machines of an existing cluster lack: what "
                "Hadoop itself includes, such as `engine: mapreduce` alone, runs on any cluster"
            )
        if reason:
            found[name] = f"{name} needs {reason}"
        if emulated and not spec.emulated:
            found[name] = f"{name} is left out where processors are emulated (`emulated: false`)"
    return found


def lacking_loads(
    workloads: Mapping[str, Workload[Any]], study: Study, arm: str, offered: Capabilities
) -> dict[str, str]:
    """Return the reason for each scenario whose neighbours, link or cluster an arm cannot have."""
    found: dict[str, str] = {}
    for name, scenario in study.scenarios.items():
        cluster = scenario.cluster
        if cluster is not None and cluster.external is not None and not offered.reaches_out:
            platform = study.arms[arm].platform
            found[name] = (
                "its cluster exists already and is reached from the host, and machines of "
                f"{platform} cannot reach it"
            )
        if cluster is not None and cluster.external is not None:
            try:
                read_outside(Path(str(cluster.external)))
            except InputError as error:
                found.setdefault(name, str(error))
        if cluster is not None and cluster.external is None:
            memory = cluster.memory or study.shape_of(arm).memory
            try:
                sizes_for(memory, cluster.tasks, master=cluster.begins_with_subject)
            except InputError as error:
                found[name] = f"{error.message}: {error.hint}"
        for wanted in scenario.neighbours:
            needs = needs_of_loads(workloads, [wanted])
            if reason := unmet(study, arm, offered, needs):
                found.setdefault(name, f"its neighbours' {wanted.load} needs {reason}")
        if scenario.link is not None and offered.network:
            reason = unmet(study, arm, offered, frozenset({"network", "bridged"}))
            if reason:
                found.setdefault(name, f"its link needs {reason}")
        if reason := _beyond_given(scenario, offered):
            found.setdefault(name, reason)
    return found


def _brings_archives(workload: Workload[Any], parameters: Any) -> bool:
    job = workload.work(parameters)
    return isinstance(job, Job) and any(step.brings_archives for step in job.steps)


def _all_outside(study: Study, spec: WorkloadSpec) -> bool:
    """Return whether a workload runs on clusters, and all of them exist already."""
    clusters = [
        scenario.cluster
        for name, scenario in study.scenarios.items()
        if scenario.cluster is not None and (spec.scenarios is None or name in spec.scenarios)
    ]
    return bool(clusters) and all(cluster.external is not None for cluster in clusters)


def _beyond_given(scenario: Scenario, offered: Capabilities) -> str:
    """Return why a scenario needs a network that Tare made; empty if it does not."""
    if offered.network != {GIVEN}:
        return ""
    if scenario.cluster is not None and scenario.cluster.external is None:
        return f"its cluster needs a network of Tare's own, {NOT_GIVEN}"
    if any(machine.on for machine in scenario.machines.values()):
        return f"its machines on several hosts need a network of Tare's own, {NOT_GIVEN}"
    return ""


def unmet(study: Study, arm: str, offered: Capabilities, needs: frozenset[Need]) -> str:
    """Return which of ``needs`` an arm's machines cannot meet, and a remedy; empty: none.

    Args:
        study: The study, which sets the arm's platform, options and size of machines.
        arm: The arm's name.
        offered: The capabilities of its platform on the host.
        needs: The needs of a workload's machine.
    """
    platform = study.arms[arm].platform
    if any(need.startswith("toolbox") for need in needs) and not offered.toolbox:
        return f"programs of the toolbox, which {platform} cannot give its machines here"
    if "disk" in needs and not offered.disk:
        instead = f": {offered.no_disk}" if offered.no_disk else ""
        return f"a disk of the machine's own, which {platform} cannot give here{instead}"
    if "disk" in needs and not study.shape_of(arm).disk:
        return "a disk of the machine's own: write `shape: {disk: 1GiB}`"
    if "network" in needs and not offered.network and offered.no_network:
        return f"a network: {offered.no_network}"
    if "network" in needs:
        try:
            way = chosen_way(study.arms[arm].options, offered.network)
        except InputError as error:
            return f"a network: {error.message}"
        if "bridged" in needs and way == GIVEN:
            return f"a network of Tare's own, with the machines beyond it, {NOT_GIVEN}"
        if "bridged" in needs and way in ALONE:
            chosen = study.arms[arm].options.wanted_network == way
            instead = "write `network: auto`" if chosen else "run as root"
            return f"a network on which its machine reaches others, which `{way}` is not: {instead}"
    return ""
