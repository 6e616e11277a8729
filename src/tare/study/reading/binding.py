"""A study whose arms say which host they are on, as one of these hosts carries it out."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tare.study.model.study import Study


def part_on(study: Study, host: str) -> Study:
    """Return the arms of one host as a study of its own; names and settings stay.

    Its baseline is that of the host, which is the study's own on whichever host that has arms
    (:mod:`tare.study.planning.baselines`).

    Args:
        study: A study of several hosts.
        host: One of them.
    """
    arms = {
        name: arm.model_copy(update={"on": None})
        for name, arm in study.arms.items()
        if study.host_of(name) == host
    }
    baseline = study.baseline
    if baseline not in arms:
        baseline = next((name for name in arms if study.matches_baseline(name)), baseline)
    changed = {"arms": arms, "baseline": baseline, "host": study.hosts[host], "hosts": {}}
    return study.model_copy(update=changed)


def hosts_with_arms(study: Study) -> tuple[str, ...]:
    """Return the hosts that arms run on, in the study's order."""
    used = {study.host_of(arm) for arm in study.arms}
    return tuple(name for name in study.hosts if name in used)


def scenario_across(study: Study) -> str:
    """Return the first scenario that has machines on other hosts than its arm's; empty: none."""
    return next(
        (
            name
            for name, scenario in study.scenarios.items()
            if any(machine.on for machine in scenario.machines.values())
            or (
                scenario.cluster is not None
                and (scenario.cluster.hosts or scenario.cluster.placement == "apart")
            )
        ),
        "",
    )
