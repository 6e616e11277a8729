"""How tests were corrected for their number, family by family."""

from __future__ import annotations

from collections.abc import Sequence

from tare.analysis.comparison import Correction
from tare.analysis.results import DECLARED, Effect, Family


def corrections(effects: Sequence[Effect], level: float) -> tuple[Correction, ...]:
    """Return how the tests of each arm were corrected.

    Args:
        effects: All effects, the controls among them.
        level: Familywise error.
    """
    order: tuple[Family, ...] = ("headline", "detail", "control")
    found = []
    for family in order:
        for arm in dict.fromkeys(effect.arm for effect in effects):
            members = [e for e in effects if (e.family, e.arm) == (family, arm) and e.p is not None]
            if members:
                declared = sum(e.verdict in DECLARED for e in members)
                least = min(e.p_least for e in members)
                found.append(Correction(family, arm, len(members), declared, level, least))
    return tuple(found)
