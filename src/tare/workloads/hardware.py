"""The processor's own counters during a measurement, if a study asks for them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from tare.workloads.values import shortened

HARDWARE: Final = "hardware"
"""The field with the counters' values in the agent's result and in a cell's record."""
SUMMARY = (
    "Also count cycles, instructions, and accesses and misses of the last-level cache with the "
    "processor's counters (perf_event_open(2)), if it has them and the machine may use them; "
    "otherwise the report says why not. The host counts the same for the threads of each machine, "
    "including neighbours, and the memory traffic of all its CPUs if available (`resctrl`)."
)
WORDS = frozenset({"missing"})
NUMBERS = frozenset({"seconds", "cycles", "instructions", "llc_references", "llc_misses"})


def counted(result: Mapping[str, Any]) -> dict[str, Any]:
    """Return the counters' values for a cell's record; empty if the study did not request them.

    Raises:
        ValueError: The agent's answer has another form.
    """
    counters = result.get(HARDWARE)
    if counters is None:
        return {}
    if not isinstance(counters, Mapping) or not all(_known(*each) for each in counters.items()):
        raise ValueError(f"{HARDWARE} is {shortened(counters)}, not what counters report")
    return {HARDWARE: dict(counters)}


def _known(name: object, value: object) -> bool:
    if name in WORDS:
        return isinstance(value, str)
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return name in NUMBERS and number and 0 <= float(value) < float("inf")  # type: ignore[arg-type]
