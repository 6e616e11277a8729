"""Pairs of identical arms as controls: how far such arms may differ, and where they did differ.

A pair of other arms is a control for all arms. A baseline's own twin is one for its host only.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tare.analysis.data.settings import Settings
from tare.analysis.effects.noise import noise_floor
from tare.analysis.effects.results import DECLARED, Effect, Key

Of = tuple[Key, str]
"""What a control applies to: a metric, and the baseline of a host."""


def floors(controls: Sequence[Effect], settings: Settings) -> dict[Of, float | None]:
    """Return the largest difference of identical arms that is not excluded.

    Args:
        controls: The effects of identical arms.
        settings: How arms are compared.
    """
    return {
        about: noise_floor(effect) for effect, about in _controls_by_baseline(controls, settings)
    }


def differing_twins(controls: Sequence[Effect], settings: Settings) -> dict[Of, str]:
    """Describe the differences found between identical arms; no arm counts as equal there.

    Args:
        controls: The effects of identical arms.
        settings: How arms are compared.
    """
    return {
        about: f"{effect.arm} and {effect.baseline}, which are the same, were found to differ in it"
        for effect, about in _controls_by_baseline(controls, settings)
        if effect.verdict in DECLARED
    }


def _controls_by_baseline(
    controls: Sequence[Effect], settings: Settings
) -> Iterator[tuple[Effect, Of]]:
    baselines = (settings.baseline, *dict.fromkeys(settings.own_baselines.values()))
    for effect in controls:
        for baseline in (effect.baseline,) if effect.baseline in baselines else baselines:
            yield effect, (effect.key, baseline)
