"""How long a cell is waited for, by this computer's clock."""

from __future__ import annotations

LEAST_S = 30.0
HANDS_OFF_LEAST_S = 150.0
"""The same of a machine whose time counts instructions: idle minutes of its clock, for which it
waits before it begins, take what this computer needs to emulate their few timers."""
FACTOR = 20.0
"""An emulated machine may be that much slower than the hardware the estimate is made for."""
HANDS_OFF_REPEAT_S = 300.0
"""Until an agent whose time counts instructions is asked again. That it began is told with its
result, up to ten minutes of its own clock later."""


def deadline_s(expected_s: float, *, hands_off: bool) -> float:
    """Return the seconds after which a cell has failed: far beyond what is expected.

    Args:
        expected_s: Seconds that it takes on hardware.
        hands_off: Whether its machine's time counts instructions.
    """
    return (HANDS_OFF_LEAST_S if hands_off else LEAST_S) + FACTOR * expected_s
