"""Whether what a study's floors are about is measured at all."""

from __future__ import annotations

from pathlib import Path

from tare.registry import installed
from tare.study.model.study import Study
from tare.study.reading.checking import suggestion
from tare.study.reading.load import wrong_in_study


def require_known_floors(study: Study, path: Path) -> None:
    """See that each floor is about a metric that there is, or it would silently count for none.

    Metrics of other workloads than the study's are let stand: ``--workload`` takes less of it.

    Args:
        study: The study.
        path: Its file.

    Raises:
        InputError: One is about no metric; names the nearest.
    """
    kinds = installed().workloads
    known = {metric.name for kind in kinds.values() for metric in kind.metrics}
    for spec in study.workloads.values():
        kind = kinds[spec.workload]
        for point in spec.points:
            parameters = kind.parameters.model_validate(dict(point))
            known |= {metric.name for metric in kind.metrics_for(parameters)}
    found = [
        (("floors", name), f"there is no metric {name!r}{suggestion(name, known)}")
        for name in study.floors
        if name not in known
    ]
    if found:
        raise wrong_in_study(path, found)
