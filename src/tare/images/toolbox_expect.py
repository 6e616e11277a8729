"""Run every program of a new toolbox once: it must start, and what it writes is remembered."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from tare.hosts import Host
from tare.images.toolbox_recipe import Kind


async def expected_outputs(host: Host, agent: Path, tree: Path, kind: Kind) -> Mapping[str, str]:
    """Placeholder."""
    return {}
