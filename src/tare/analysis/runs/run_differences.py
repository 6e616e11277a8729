"""The differences between two runs other than results: studies, settings, platforms, machines."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from tare.analysis.data.rundata import RunData
from tare.analysis.runs.proofs import flatten, proof_differences
from tare.events.results import MachineResult
from tare.events.stream import canonical_json

NOT_SET = "(not set)"
NONE = "(none)"
_CONFINED = ("cpus", "memory")
"""The parts of a machine's placement that are settings; all others are specific to one boot."""


_WORDS = frozenset({"study", "title", "description", "folder", "left_out"})
"""Keys of a stored study that change no measurement."""


class RunDifference(NamedTuple):
    """Something that differs between two runs.

    Args:
        where: ``command line``, ``study``, ``host``, ``version``, or an arm.
        what: The dotted path of the value that differs.
        before: Its value in the first run.
        after: Its value in the second.
        why: How it could explain a change; empty if that is not known.
    """

    where: str
    what: str
    before: str
    after: str
    why: str = ""

    def __str__(self) -> str:
        """Return the difference in one line."""
        return f"{self.where} {self.what}: {self.before} → {self.after}"


def study_differences(before: RunData, after: RunData) -> tuple[RunDifference, ...]:
    """Return the differences of what was measured: the command line's options, then settings.

    Titles, descriptions and summaries are not compared: they change no measurement. An arm that
    only one run has is one difference, named by its platform, and comes last.
    """
    found = []
    if before.changes != after.changes:
        commands = (" ".join(run.changes) or NONE for run in (before, after))
        found.append(RunDifference("command line", "options", *commands))
    different = tuple(_differences("study", _settings(before.study), _settings(after.study)))
    names = [set(run.study.get("arms") or ()) for run in (before, after)]
    of_one = tuple(f"arms.{arm}." for arm in names[0] ^ names[1])
    found += [each for each in different if not each.what.startswith(of_one)]
    whole = {f"{prefix}platform" for prefix in of_one}
    return (*found, *(each for each in different if each.what in whole))


def settings_sha256(run: RunData) -> str:
    """Return a digest of all settings of a run.

    Unlike the digest of the study's file it covers the command line's options and the hosts file,
    and is the same for files that differ only in comments, titles or the order of keys.
    """
    return hashlib.sha256(canonical_json(flatten(_settings(run.study))).encode()).hexdigest()


def _settings(study: Mapping[str, Any]) -> dict[str, Any]:
    """Return a stored study without the parts that change no measurement."""
    settings = {key: value for key, value in study.items() if key not in _WORDS}
    scenarios = settings.get("scenarios")
    if isinstance(scenarios, Mapping):
        settings["scenarios"] = {
            name: {key: value for key, value in spec.items() if key != "summary"}
            for name, spec in scenarios.items()
            if isinstance(spec, Mapping)
        }
    return settings


def environment_differences(before: RunData, after: RunData) -> tuple[RunDifference, ...]:
    """Return the differences of hosts, versions, platforms, images and machines, in this order.

    Arms that only one run has are left out: the difference of the studies names them.
    """
    settings = {each.what for each in study_differences(before, after)}
    found = list(_differences("host", before.host, after.host))
    found += _differences("version", before.versions, after.versions)
    for arm in (arm for arm in before.arms if arm in after.arms):
        one, other = _arm_settings(before, arm), _arm_settings(after, arm)
        found += [
            each
            for each in _differences(arm, one, other)
            if f"arms.{arm}.{each.what}" not in settings
        ]
        found += machine_differences(before, after, arm)
    return tuple(found)


def machine_differences(before: RunData, after: RunData, arm: str) -> tuple[RunDifference, ...]:
    """Return the differences of an arm's machines between runs, block by block.

    Those that could explain a change come first.
    """
    machines = [
        replace(machine, arm=when, proof=_with_placement(machine))
        for when, run in (("before", before), ("after", after))
        for machine in run.machines
        if machine.arm == arm
    ]
    return tuple(
        RunDifference(
            arm,
            f"{each.path} ({each.when})" if each.when else each.path,
            each.baseline_value,
            each.arm_value,
            each.why,
        )
        for each in proof_differences(machines, "before", ("after",))
    )


def _with_placement(machine: MachineResult) -> Mapping[str, Any]:
    if not machine.proof:
        return machine.proof
    placed = {name: machine.placement[name] for name in _CONFINED if name in machine.placement}
    return {**machine.proof, "placement": placed}


def _arm_settings(run: RunData, arm: str) -> Mapping[str, Any]:
    """Return the platform and the image of an arm."""
    platform = next(each for each in run.platforms if each.arm == arm)
    images = [image for image in run.images if image.arm == arm]
    return {
        "platform": platform.platform,
        "options": platform.options,
        "versions": platform.versions,
        "ran": "yes" if platform.usable else f"no: {platform.reason}",
        "mark": platform.mark,
        "boots": {
            "kernel": ", ".join(dict.fromkeys(image.kernel for image in images)),
            "digest": ", ".join(dict.fromkeys(image.digest for image in images)),
        },
    }


def _differences(
    where: str, one: Mapping[str, Any], other: Mapping[str, Any]
) -> Iterator[RunDifference]:
    before, after = flatten(one), flatten(other)
    for path in dict.fromkeys([*before, *after]):
        values = before.get(path, ""), after.get(path, "")
        # An option that one version of Tare does not know counts as one that is not set.
        if values[0] != values[1]:
            yield RunDifference(where, path, *(value or NOT_SET for value in values))
