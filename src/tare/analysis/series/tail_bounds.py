"""What gives samples a greatest value, so that no tail may be continued beyond what was seen."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tare.analysis.data.rundata import RunData


def platform_bound(runs: Iterable[RunData], arm: str) -> str:
    """Return why an arm's platform bounds how long its machines may be kept waiting; or nothing.

    Args:
        runs: The runs.
        arm: The arm.
    """
    for run in runs:
        options = next((one.options for one in run.platforms if one.arm == arm), {})
        own = options.get("scheduling")
        if isinstance(own, Mapping) and own.get("cap") is not None:
            return (
                "a cap stops its machines until the next period begins, and no longer: what it "
                "takes is bounded"
            )
    return ""
