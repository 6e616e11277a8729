"""What pairs of identical arms tell: how far such arms may differ, and where they were told apart.

A pair of other arms tells something of all arms; a baseline's own twin, of its host's alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tare.analysis.data.settings import Settings
from tare.analysis.effects.noise import noise_floor
from tare.analysis.effects.results import DECLARED, Effect, Key

Of = tuple[Key, str]
"""A metric, and the baseline of a host."""


def floors(controls: Sequence[Effect], settings: Settings) -> dict[Of, float | None]:
    """Return what identical arms may differ by.

    Args:
        controls: The effects of identical arms.
        settings: How arms are compared.
    """
    return {about: noise_floor(effect) for effect, about in _about(controls, settings)}


def differing_twins(controls: Sequence[Effect], settings: Settings) -> dict[Of, str]:
    """Return where identical arms were told apart, in words: nothing is shown to be equal there.

    Args:
        controls: The effects of identical arms.
        settings: How arms are compared.
    """
    return {
        about: f"{effect.arm} and {effect.baseline}, which are the same, were told apart in it"
        for effect, about in _about(controls, settings)
        if effect.verdict in DECLARED
    }


def _about(controls: Sequence[Effect], settings: Settings) -> Iterator[tuple[Effect, Of]]:
    baselines = (settings.baseline, *dict.fromkeys(settings.own_baselines.values()))
    for effect in controls:
        for baseline in (effect.baseline,) if effect.baseline in baselines else baselines:
            yield effect, (effect.key, baseline)
