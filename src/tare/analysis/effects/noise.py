"""The noise floor: how large a difference two identical arms show here. A diagnostic, no gate.

A study may hold an A/A pair, one arm twice. Whatever differs between its two is no property of
the arm: it is order, placement, boot luck. The interval of that difference says how large a
lasting difference between identical arms the data cannot exclude (Abedi & Brecht 2017 saw 38 %
without interleaving). It is itself noise, a third wider than an arm's own interval: as a gate
before verdicts it took a third of their power and let the lucky estimates pass.
"""

from __future__ import annotations

import math

from tare.analysis.effects.results import Effect


def noise_floor(pair: Effect) -> float | None:
    """Return the noise floor that an A/A effect sets.

    Args:
        pair: The A/A pair's effect for some key.

    Returns:
        On a ratio scale relative, e.g. 0.03: the further end of the interval from 1, taken as a
        factor (0.97 and 1.03 are as far). On a difference scale in the metric's unit. None when
        there were too few blocks for an interval.
    """
    interval = pair.interval
    if interval is None or not (math.isfinite(interval.low) and math.isfinite(interval.high)):
        return None
    if pair.scale == "difference":
        return max(abs(interval.low), abs(interval.high))
    return math.expm1(max(abs(math.log(interval.low)), abs(math.log(interval.high))))


def beyond(estimate: float, floor: float, *, ratio: bool) -> bool:
    """Return whether an estimate is further from "no difference" than ``floor``.

    Args:
        estimate: A ratio, or a difference in the unit of ``floor``.
        floor: Relative (0.02) for a ratio, where 1/1.02 is as far as 1.02; or in the unit.
        ratio: Which of the two.
    """
    if ratio:
        return estimate <= 0 or abs(math.log(estimate)) > math.log1p(floor)
    return abs(estimate) > floor
