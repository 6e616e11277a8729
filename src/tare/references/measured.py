"""Find the results of a run that a source's numbers correspond to, by workload and parameters."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from tare.analysis.data.rundata import SUBJECT, RunData
from tare.analysis.effects.comparison import Comparison
from tare.analysis.effects.results import Key
from tare.references.printed import Asked
from tare.references.scenarios import mapping, vcpus_in
from tare.workloads import WORKLOADS

TYPICAL_LOOP_S = 68e-6
"""Converts a duration of `tick` to a number of samples, to compare lengths of measurements."""
_LOOKING = frozenset({"counters", "duration", "raw", "samples"})
"""Parameters that set how long a workload measures, and what it keeps."""


def measured_keys(
    comparison: Comparison,
    workload: str,
    metric: str,
    scenario: str,
    parameters: Mapping[str, Asked],
) -> list[Key]:
    """Return the run's keys of a metric, for all values of other parameters, in the study's order.

    Args:
        comparison: The runs' comparison.
        workload: The kind of workload that is like the source's, not a study's label.
        metric: The workload's metric.
        scenario: The run's scenario.
        parameters: The parameters that the source states; any one of several values matches.
    """
    kinds = kinds_of(comparison.runs)
    vcpus = vcpus_in(comparison.runs, scenario)
    places = {label: place for place, label in enumerate(kinds)}
    found = (
        key
        for key in dict.fromkeys(summary.key for summary in comparison.summaries)
        if key.scenario == scenario
        and key.role == SUBJECT
        and key.metric == metric
        and kinds.get(key.workload, key.workload) == workload
        and all(
            _fits(asked_of(key, workload, name), wanted_value, vcpus)
            for name, wanted_value in parameters.items()
        )
    )
    # Summaries are in random order, which differs between runs.
    return sorted(found, key=lambda key: (places.get(key.workload, len(places)), _natural(key)))


def measured_key(
    comparison: Comparison,
    workload: str,
    metric: str,
    scenario: str,
    parameters: Mapping[str, Asked],
) -> Key | None:
    """Return the key of :func:`measured_keys` for which the run took most samples."""
    found = measured_keys(comparison, workload, metric, scenario, parameters)
    return max(found, key=samples_of, default=None)


def asked_of(key: Key, workload: str, name: str) -> Any:
    """Return the value of a parameter of a cell, or its default if the study does not set it."""
    given = parameters_in(key)
    if name in given or workload not in WORKLOADS:
        return given.get(name)
    field = WORKLOADS[workload].parameters.model_fields.get(name)
    return None if field is None else field.get_default()


def _fits(asked: Any, published: Asked, vcpus: int | None) -> bool:
    """Return whether a parameter has the published value; ``all`` threads are one for each vCPU."""
    if isinstance(published, tuple):
        return asked in published
    return asked == published or (asked == "all" and vcpus == published)


def _natural(key: Key) -> list[tuple[str, bool, float, str]]:
    """Return the sort key of cells of one workload: numbers by size, text alphabetically."""
    found = []
    for name, value in sorted(parameters_in(key).items()):
        counts = isinstance(value, int | float)
        found.append((name, not counts, float(value) if counts else 0.0, str(value)))
    return found


def longest_views(keys: Iterable[Key]) -> list[Key]:
    """Return the key with most samples of each group of keys that differ only in `_LOOKING`."""
    found: dict[str, Key] = {}
    for key in keys:
        rest = {
            name: wanted_value
            for name, wanted_value in parameters_in(key).items()
            if name not in _LOOKING
        }
        asked = json.dumps(rest, sort_keys=True)
        if asked not in found or samples_of(key) > samples_of(found[asked]):
            found[asked] = key
    return list(found.values())


def kinds_of(runs: Iterable[RunData]) -> dict[str, str]:
    """Return the workload that each label of the studies stands for."""
    return {
        str(label): str(mapping(spec).get("workload", label))
        for run in runs
        for label, spec in mapping(run.study.get("workloads")).items()
    }


def samples_of(key: Key) -> float:
    """Return the approximate number of samples of a cell."""
    given = parameters_in(key)
    samples, duration = given.get("samples"), given.get("duration")
    if isinstance(samples, int | float):
        return float(samples)
    return duration / TYPICAL_LOOP_S if isinstance(duration, int | float) else 0.0


def parameters_in(key: Key) -> Mapping[str, Any]:
    """Return the requested parameters of a cell; empty if they cannot be read."""
    try:
        return mapping(json.loads(key.parameters))
    except ValueError:
        return {}
