"""Needs of workloads that an arm's machines cannot meet: such cells are skipped with a reason."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tare.errors import InputError
from tare.platforms.linux.network import ALONE, chosen_way
from tare.platforms.vendors.offer import LIVE
from tare.study.model.platform_options import GIVEN, ISOLATED
from tare.units import format_size
from tare.workloads.additions import live_toolbox
from tare.workloads.mapreduce.job import Job
from tare.workloads.mapreduce.sizes import sizes_for
from tare.workloads.needs import ends_as_machines, needs_of, needs_of_loads

if TYPE_CHECKING:
    from tare.platforms.contract import Capabilities
    from tare.study.model.scenario import Scenario
    from tare.study.model.study import Study, WorkloadSpec
    from tare.workloads.contract import Need, Workload


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
        if offered.toolbox == {LIVE} and not all(
            live_toolbox(workload.needs, workload.adds(point)) for point in points
        ):
            reason = (
                "additions to the toolbox, and machines of "
                f"{study.arms[arm].platform} have the toolbox of the live image that they boot"
            )
        least = max(map(workload.memory_for, points), default=workload.memory)
        if memory < least:
            reason = (
                f"a machine with at least {format_size(least)} of memory, not {format_size(memory)}"
            )
        if _uses_only_existing_clusters(study, spec) and any(
            _brings_archives(workload, p) for p in points
        ):
            reason = (
                "archives for its tasks, which the machines of an existing cluster lack: what "
                "Hadoop itself includes, such as `engine: mapreduce` alone, runs on any cluster"
            )
        if reason:
            found[name] = f"{name} needs {reason}"
        if emulated and not spec.emulated:
            found[name] = f"{name} is left out where processors are emulated (`emulated: false`)"
    return found


def own_ends(
    workloads: Mapping[str, Workload[Any]], study: Study, arm: str, offered: Capabilities
) -> tuple[dict[str, tuple[str, ...]], dict[str, tuple[str, ...]]]:
    """Return the roles of the other ends that are machines of an arm.

    The first mapping has the roles by workload of the study; the second has those of the
    neighbours' loads, by scenario.

    Args:
        workloads: All workloads by name.
        study: The study.
        arm: The arm's name.
        offered: The capabilities of its platform on the host.
    """
    try:
        way = chosen_way(study.arms[arm].options, offered.network)
    except InputError:
        return {}, {}
    by_workload = {
        label: ends_as_machines(way, needs_of(workloads[spec.workload], spec.points))
        for label, spec in study.workloads.items()
    }
    by_scenario = {
        name: ends_as_machines(way, needs_of_loads(workloads, scenario.neighbours))
        for name, scenario in study.scenarios.items()
    }
    return _without_empty(by_workload), _without_empty(by_scenario)


def _without_empty(found: Mapping[str, tuple[str, ...]]) -> dict[str, tuple[str, ...]]:
    return {name: roles for name, roles in found.items() if roles}


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
                # Imported here, because few studies name a cluster.
                from tare.workloads.mapreduce.outside import read_outside

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
            if "network" in needs and cluster is not None and cluster.external is not None:
                reason = (
                    f"its neighbours' {wanted.load} needs a network of Tare's own, and with an "
                    "existing cluster there is none: choose another load"
                )
                found.setdefault(name, reason)
            if reason := unmet(study, arm, offered, needs):
                found.setdefault(name, f"its neighbours' {wanted.load} needs {reason}")
        if reason := _unreachable_network(scenario, offered):
            found.setdefault(name, reason)
        if scenario.link is not None and offered.network:
            reason = unmet(study, arm, offered, frozenset({"network", "bridged"}))
            if reason:
                found.setdefault(name, f"its link needs {reason}")
    return found


def _brings_archives(workload: Workload[Any], parameters: Any) -> bool:
    job = workload.work(parameters)
    return isinstance(job, Job) and any(step.brings_archives for step in job.steps)


def _uses_only_existing_clusters(study: Study, spec: WorkloadSpec) -> bool:
    """Return whether a workload runs on clusters, and all of them exist already."""
    clusters = [
        scenario.cluster
        for name, scenario in study.scenarios.items()
        if scenario.cluster is not None and (spec.scenarios is None or name in spec.scenarios)
    ]
    return bool(clusters) and all(cluster.external is not None for cluster in clusters)


def _unreachable_network(scenario: Scenario, offered: Capabilities) -> str:
    """Return why a scenario needs another network than Tare's machines have; empty: it does not."""
    if not offered.network or not offered.network <= {GIVEN, ISOLATED}:
        return ""
    (way,) = offered.network
    not_that = f"which `network-way: {way}` is not"
    limited = way == ISOLATED and offered.limits_cards
    if scenario.link is not None and way == ISOLATED and not limited:
        why = offered.no_limits or "this platform's API has none"
        return f"its link needs a limit of each card on the isolated network: {why}"
    if scenario.link is not None and not limited:
        return f"its link needs a network of Tare's own on this host, {not_that}"
    cluster = scenario.cluster
    if cluster is not None and cluster.external is None:
        if not offered.neighbours:
            return "its cluster needs further machines, which this platform does not create"
        if cluster.hosts:
            return f"its cluster's hosts need a network of Tare's own, {not_that}"
    if any(machine.on for machine in scenario.machines.values()):
        return f"its machines on several hosts need a network of Tare's own, {not_that}"
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
        if "bridged" in needs and way == GIVEN and not offered.neighbours:
            return f"further machines, as client and origin, which {platform} does not create"
        if "bridged" in needs and way in ALONE:
            chosen = study.arms[arm].options.wanted_network == way
            instead = "write `network: auto`" if chosen else "run as root"
            return f"a network on which its machine reaches others, which `{way}` is not: {instead}"
    return ""
