#!/usr/bin/env python3
"""Fail if modules import each other in a cycle, even for types only. ``make lint`` runs this check.

A cycle of imports under ``if TYPE_CHECKING`` does no harm when Python runs. It still means that no
module of the cycle can be understood, tested or moved without all others.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Set

import grimp

Graph = Mapping[str, Set[str]]


def main() -> int:
    """Print each cycle; return 1 if there is any."""
    found = faults(imports_of_files())
    for fault in found:
        print(fault)
    return 1 if found else 0


def faults(graph: Graph) -> list[str]:
    """Describe the cycles of a graph of imports, with one line for each module.

    Args:
        graph: The modules that each module imports.
    """
    found = []
    for cycle in cycles(graph):
        found.append(f"{len(cycle)} modules import each other:")
        found += [
            f"  {module} imports {', '.join(sorted(graph[module] & set(cycle)))}"
            for module in cycle
        ]
    return found


def imports_of_files() -> Graph:
    """Return the modules that each module of Tare imports, including imports for types only."""
    graph = grimp.build_graph("tare", cache_dir=None)
    return {module: graph.find_modules_directly_imported_by(module) for module in graph.modules}


def cycles(graph: Graph) -> list[list[str]]:
    """Return the groups of nodes that reach each other, by Tarjan's algorithm.

    Source: R. Tarjan, "Depth-first search and linear graph algorithms", SIAM J. Comput. 1 (1972).
    """
    order: dict[str, int] = {}
    low: dict[str, int] = {}
    path: list[str] = []
    found: list[list[str]] = []

    def visit(node: str) -> None:
        order[node] = low[node] = len(order)
        path.append(node)
        for other in sorted(graph.get(node, ())):
            if other not in order:
                visit(other)
                low[node] = min(low[node], low[other])
            elif other in path:
                low[node] = min(low[node], order[other])
        if low[node] == order[node]:
            group = path[path.index(node) :]
            del path[path.index(node) :]
            if len(group) > 1:
                found.append(sorted(group))

    for node in sorted(graph):
        if node not in order:
            visit(node)
    return found


if __name__ == "__main__":
    sys.exit(main())
