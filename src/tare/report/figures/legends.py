"""The scale and legend that give arms their colour, shape and mark in layered charts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tare.report.figures.frame import Spec
from tare.report.palette import Look
from tare.report.words import EMULATED, short


def arm_labels(
    arms: Sequence[str], emulated: frozenset[str] | set[str], most: int = 26
) -> dict[str, str]:
    """Return each arm's label in figures, distinct even where long names had to be cut."""
    labels: dict[str, str] = {}
    for arm in arms:
        mark = f" ({EMULATED})" if arm in emulated else ""
        label = short(arm, most) + mark
        number = 2
        while label in labels.values():
            label = f"{short(arm, most - 3)} {number}{mark}"
            number += 1
        labels[arm] = label
    return labels


def colour(labels: Mapping[str, str], looks: Mapping[str, Look], *, legend: bool = True) -> Spec:
    """Return a colour encoding over the field ``arm``, which holds labels."""
    return {
        "field": "arm",
        "type": "nominal",
        "scale": {
            "domain": list(labels.values()),
            "range": [looks[arm].ink.light for arm in labels],
        },
        "legend": LEGEND if legend else None,
    }


LEGEND: Spec = {
    "title": None,
    "orient": "top",
    "direction": "horizontal",
    "columns": 2,
    "columnPadding": 24,
    "labelLimit": 240,
    "symbolType": "stroke",
    "symbolStrokeWidth": 2.5,
    "offset": 6,
}
