"""Where the subject and its neighbours run: pure decisions over the host's CPUs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class HostCpus:
    """The CPUs a host offers to this process.

    Args:
        online: CPU numbers that may be used, ascending.
        siblings: For each CPU, all hardware threads of its core, itself included.
        nodes: For each CPU, its NUMA node.
    """

    online: tuple[int, ...]
    siblings: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    nodes: Mapping[int, int] = field(default_factory=dict)
