"""The noise floor: the difference that two identical arms show. It is a diagnostic only.

A study may have an A/A pair, one arm twice. A difference between the two is not a property of the
arm: it comes from order, placement and the chance of the boot. The interval of that difference
shows how large a lasting difference between identical arms the data cannot exclude (Abedi & Brecht
2017 saw 38 % without interleaving). The interval itself is noisy, and a third wider than an arm's
own. As a gate before verdicts it took a third of their power, and let lucky estimates pass.
"""

from __future__ import annotations

import math

from tare.analysis.effects.results import Effect


def noise_floor(pair: Effect) -> float | None:
    """Return the noise floor that an A/A effect sets.

    Args:
        pair: The A/A pair's effect for some key.

    Returns:
        On a ratio scale, a relative value such as 0.03: the distance of the interval's further end
        from 1, as a factor (0.97 and 1.03 are equally far). On a difference scale, a value in the
        metric's unit. None if there were too few blocks for an interval.
    """
    interval = pair.interval
    if interval is None or not (math.isfinite(interval.low) and math.isfinite(interval.high)):
        return None
    if pair.scale == "difference":
        return max(abs(interval.low), abs(interval.high))
    return math.expm1(max(abs(math.log(interval.low)), abs(math.log(interval.high))))


def exceeds_floor(estimate: float, floor: float, *, ratio: bool) -> bool:
    """Return whether an estimate is further from "no difference" than ``floor``.

    Args:
        estimate: A ratio, or a difference in the unit of ``floor``.
        floor: For a ratio a relative value (0.02: 1/1.02 is as far as 1.02), otherwise a value in
            the metric's unit.
        ratio: Whether ``estimate`` is a ratio.
    """
    if ratio:
        return estimate <= 0 or abs(math.log(estimate)) > math.log1p(floor)
    return abs(estimate) > floor
