"""Processor features that an arm requests one by one, and the proof that the guest has them.

QEMU continues without a feature that it cannot provide. The arm would then have a wrong name.
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
"""Features with their sign: ``+avx2`` must be there, ``-avx512f`` must not."""


def wanted(features: Sequence[str]) -> dict[str, bool]:
    """Map each feature to whether the guest must have it."""
    return {feature[1:]: feature[0] == "+" for feature in features}


def flags(features: Sequence[str]) -> tuple[str, ...]:
    """Return the features in the form of QEMU's ``-cpu`` option."""
    return tuple(f"{name}={'on' if there else 'off'}" for name, there in wanted(features).items())


async def prove_features(name: str, features: Sequence[str], monitor: Monitor) -> Mapping[str, Any]:
    """Check with QEMU that its first vCPU has the requested features.

    Args:
        name: The machine's name.
        features: The requested features, with their signs.
        monitor: QEMU's monitor.

    Returns:
        The features for the machine's record; empty if none was requested.

    Raises:
        MachineFault: A feature is there although it must not be, or is missing.
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
