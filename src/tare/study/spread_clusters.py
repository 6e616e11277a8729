"""Clusters that are to be spread over a study's hosts, without naming them once more."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tare.study.checking import Findings


def with_cluster_hosts(data: Mapping[str, Any], findings: Findings) -> Mapping[str, Any]:
    """Return a study's plain data with the study's hosts in clusters that are placed ``apart``.

    Args:
        data: The study as written, with changes.
        findings: Takes the problems.
    """
    scenarios = data.get("scenarios")
    if not isinstance(scenarios, Mapping):
        return data
    named = data.get("hosts")
    hosts = [str(name) for name in named] if isinstance(named, list | Mapping) else []
    changed = {}
    for name, scenario in scenarios.items():
        cluster = scenario.get("cluster") if isinstance(scenario, Mapping) else None
        if not isinstance(cluster, Mapping) or cluster.get("placement") != "apart":
            continue
        if cluster.get("hosts"):
            continue
        if len(hosts) < 2:
            findings.add(
                ("scenarios", str(name), "cluster", "placement"),
                "needs two hosts or more to put slaves on: write `hosts: [host-a, host-b]` for the "
                "study, or `placement: together`",
            )
            continue
        changed[name] = {**scenario, "cluster": {**cluster, "hosts": hosts}}
    return {**data, "scenarios": {**scenarios, **changed}} if changed else data
