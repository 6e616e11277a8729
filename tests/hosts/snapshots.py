"""The CPUs of 16 real computers, from the snapshots in ``tests/fixtures/hosts``."""

from __future__ import annotations

import json
import lzma
from functools import cache
from pathlib import Path
from typing import Any

from tare.hosts.topology import read_topology
from tare.study.planning.host_cpus import HostCpus

FOLDER = Path(__file__).parents[1] / "fixtures" / "hosts"
NAMES = tuple(sorted(path.name.removesuffix(".txt.xz") for path in FOLDER.glob("*.txt.xz")))
HWLOC: dict[str, dict[str, Any]] = json.loads((FOLDER / "hwloc.json").read_text())


def snapshot_text(name: str) -> str:
    """Return what the script prints on the computer."""
    return lzma.decompress((FOLDER / f"{name}.txt.xz").read_bytes()).decode()


@cache
def snapshot(name: str) -> HostCpus:
    """Return the computer's CPUs as Tare reads them."""
    return read_topology(snapshot_text(name))
