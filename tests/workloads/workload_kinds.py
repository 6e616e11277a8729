"""Tare's workloads by their topology, as the tests of their hooks need them."""

from __future__ import annotations

from typing import Any

from tare.workloads import WORKLOADS
from tare.workloads.mapreduce.workload import ClusterWorkload
from tare.workloads.network.ends import PairWorkload, ProxiedWorkload

JOBS: dict[str, ClusterWorkload[Any]] = {
    name: each for name, each in WORKLOADS.items() if isinstance(each, ClusterWorkload)
}
PAIRS: dict[str, PairWorkload[Any]] = {
    name: each for name, each in WORKLOADS.items() if isinstance(each, PairWorkload)
}
PROXIED: dict[str, ProxiedWorkload[Any]] = {
    name: each for name, each in WORKLOADS.items() if isinstance(each, ProxiedWorkload)
}
