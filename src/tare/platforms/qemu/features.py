"""Features of the processor that were asked for one by one, and the proof that the guest has them.

QEMU continues without what it cannot give, which would be an arm under a wrong name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from pydantic import Field

from tare.errors import MachineFault
from tare.platforms.qemu.qmp import Monitor

CpuFeatures = Annotated[
    tuple[Annotated[str, Field(pattern=r"^[+-][a-z0-9][a-z0-9._-]*$")], ...],
    Field(max_length=64),
]
"""Features with their sign: ``+avx2`` is there, ``-avx512f`` is not."""


def wanted(features: Sequence[str]) -> dict[str, bool]:
    """Return whether each feature is to be there."""
    return {feature[1:]: feature[0] == "+" for feature in features}


def flags(features: Sequence[str]) -> tuple[str, ...]:
    """Return what QEMU's ``-cpu`` takes of them."""
    return tuple(f"{name}={'on' if there else 'off'}" for name, there in wanted(features).items())


async def prove_features(name: str, features: Sequence[str], monitor: Monitor) -> Mapping[str, Any]:
    """Ask QEMU which of the features its first vCPU has.

    Args:
        name: The machine's name.
        features: What was asked for.
        monitor: QEMU's monitor.

    Returns:
        What is recorded of the machine; empty if nothing was asked for.

    Raises:
        MachineFault: One is there that was not to be, or the other way round.
    """
    if not features:
        return {}
    first = (await monitor.execute("query-cpus-fast"))[0]["qom-path"]
    reported = {}
    for feature, there in wanted(features).items():
        reported[feature] = await monitor.execute("qom-get", path=first, property=feature)
        if reported[feature] is not there:
            raise MachineFault(
                f"{name}: the processor was to be {'with' if there else 'without'} {feature}, "
                f"and QEMU says otherwise",
                "leave it out of `cpu-features`, or use a host that has it",
            )
    return {"cpu_features": reported}
