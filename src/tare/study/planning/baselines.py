"""A baseline for each host and shape, so that each ratio stays within one host and shape."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

from tare.units import format_size

if TYPE_CHECKING:
    from tare.study.model.shape import Shape
    from tare.study.model.study import Arm, Study

AT = "@"
"""Separates the arm's name from its host or shape, in the name of an arm that Tare added."""


def with_baselines(study: Study, *, stored: bool = False) -> Study:
    """Return a study in which each arm has a baseline on its own host and of its own shape.

    A study in sessions is not changed: its hosts are one computer, and a baseline of one boot may
    not be possible in another.

    A baseline without a shape of its own takes that of the first arm that it is compared with, if
    no arm has the study's. For every other shape and host a baseline is added: ``bare`` on the host
    ``kvm1`` becomes ``bare@kvm1``, with 4 vCPUs and 8 GiB ``bare@4-vcpus-8GiB``. On each further
    host its twin ``bare-again`` is added too, as ``bare-again@kvm1``.

    Args:
        study: The study as written.
        stored: Whether it is a run's, whose baseline keeps the shape that it was measured with.
    """
    if study.sessions is not None:
        return study
    return _with_twins(_with_baselines(study if stored else _give_arms_shape(study)))


def _give_arms_shape(study: Study) -> Study:
    """Give the baseline and its twins the shape of the arms, if none has the study's own."""
    name, host = study.baseline, study.host_of(study.baseline)
    if study.arms[name].shape is not None:
        return study
    alone = {name, *(twin for first, twin in study.twins if first == name)}
    shapes = [
        study.shape_of(arm)
        for arm in study.arms
        if arm not in alone and study.host_of(arm) == host and not study.matches_baseline(arm)
    ]
    if not shapes or study.shape in shapes:
        return study
    return _baseline_in(study, alone, shapes[0])


def give_own_shape(study: Study) -> Study:
    """Give the baseline the study's shape, instead of the one that it took from another arm."""
    if not study.baseline_took_shape:
        return study
    alone = {study.baseline, *(twin for first, twin in study.twins if first == study.baseline)}
    return _baseline_in(study, alone, None)


def _baseline_in(study: Study, alone: Collection[str], shape: Shape | None) -> Study:
    """Give the baseline and its twins a shape; None means the study's."""
    sized = {arm: study.arms[arm].model_copy(update={"shape": shape}) for arm in alone}
    changed = _with(study, sized)
    changed._baseline_took_shape = shape is not None
    return changed


def _with_baselines(study: Study) -> Study:
    wanted = dict.fromkeys((study.host_of(arm), study.shape_of(arm)) for arm in study.arms)
    there = {(study.host_of(a), study.shape_of(a)) for a in study.arms if study.matches_baseline(a)}
    taken = {host for host, _ in there}
    added = {}
    for host, shape in wanted:
        if (host, shape) in there:
            continue
        changes: dict[str, object] = {"on": host or None}
        name = study.baseline
        if host not in taken and host != study.host_of(study.baseline):
            name += f"{AT}{host}"
        elif host != study.host_of(study.baseline):
            name += f"{AT}{host}{AT}{_label(shape)}"
        else:
            name += f"{AT}{_label(shape)}"
        if shape != study.shape_of(study.baseline):
            changes["shape"] = shape
        taken.add(host)
        added[name] = study.arms[study.baseline].model_copy(update=changes)
    return _with(study, added)


def _label(shape: Shape) -> str:
    """Return a shape for a name: ``4-vcpus-8GiB``, or ``1-vcpu-256MiB-disk-1GiB``."""
    parts = [f"{shape.vcpus}-vcpu{'' if shape.vcpus == 1 else 's'}", format_size(shape.memory)]
    parts += [f"disk-{format_size(shape.disk)}"] if shape.disk else []
    return "-".join(parts).replace(" ", "")


def _with_twins(study: Study) -> Study:
    """Add a twin of each other host's baseline, if the study's baseline has one."""
    pair = study.aa
    if pair is None or pair[0] != study.baseline:
        return study
    home = study.host_of(study.baseline)
    baselines = dict.fromkeys(study.own_baselines.values())
    first: dict[str, str] = {}
    for base in baselines:
        first.setdefault(study.host_of(base), base)
    twinned = {one for one, _ in study.twins}
    added = {
        f"{pair[1]}{AT}{host}": study.arms[base].model_copy(update={"twin_of": base})
        for host, base in first.items()
        if host != home and base not in twinned
    }
    return _with(study, added)


def _with(study: Study, added: Mapping[str, Arm]) -> Study:
    return study.model_copy(update={"arms": {**study.arms, **added}}) if added else study


def as_stored(study: Study, stored: Mapping[str, Any]) -> Study:
    """Return a study with only those added arms that a run started with."""
    known = stored.get("arms")
    if not isinstance(known, Mapping):
        return study
    arms = {name: arm for name, arm in study.arms.items() if AT not in name or name in known}
    return study.model_copy(update={"arms": arms})


def without_added(stored: Mapping[str, Any]) -> dict[str, Any]:
    """Return a stored study without the arms that :func:`with_baselines` added."""
    arms = stored.get("arms")
    if not isinstance(arms, Mapping):
        return dict(stored)
    return {**stored, "arms": {name: arm for name, arm in arms.items() if AT not in str(name)}}


# The part of a study that one host runs


def part_on(study: Study, host: str) -> Study:
    """Return the arms of one host as a study of its own, with names and settings unchanged.

    Its baseline is the host's, which equals the study's on every host that has arms.

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
    """Return the first scenario with machines on other hosts than its arm's, or an empty string."""
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
