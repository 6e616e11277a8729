"""How the CPUs of an emulated computer are dealt to its NUMA nodes: evenly, and in order."""

from __future__ import annotations


class Uneven(ValueError):
    """CPUs that cannot be dealt so; the text says why, ``hint`` what to write."""

    def __init__(self, cpus: int, nodes: int) -> None:
        many = "1 CPU" if cpus == 1 else f"{cpus} CPUs"
        super().__init__(f"{many} of a lab cannot be dealt evenly to {nodes} NUMA nodes")
        self.hint = f"give it {-(-cpus // nodes) * nodes} CPUs, or another number of nodes"


def cpus_by_node(cpus: int, nodes: int) -> tuple[range, ...]:
    """Return the CPUs of each node.

    Args:
        cpus: How many there are.
        nodes: How many nodes, 1 or more.

    Raises:
        Uneven: Some nodes would have more than others.
    """
    if cpus % nodes:
        raise Uneven(cpus, nodes)
    each = cpus // nodes
    return tuple(range(node * each, (node + 1) * each) for node in range(nodes))


def node_of_each(cpus: int, nodes: int) -> dict[int, int]:
    """Return the node of each CPU; raises as :func:`cpus_by_node`."""
    return {cpu: node for node, own in enumerate(cpus_by_node(cpus, nodes)) for cpu in own}
