"""What arms are called in figures."""

from __future__ import annotations

from collections.abc import Sequence

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
