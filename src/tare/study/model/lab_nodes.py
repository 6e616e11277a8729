"""The distribution of an emulated computer's CPUs over its NUMA nodes: even, and in order."""

from __future__ import annotations


class Uneven(ValueError):
    """The CPUs cannot be split evenly; the message has the reason, and ``hint`` a valid value."""

    def __init__(self, cpus: int, nodes: int) -> None:
        many = "1 CPU" if cpus == 1 else f"{cpus} CPUs"
        super().__init__(f"{many} of a lab cannot be split evenly over {nodes} NUMA nodes")
        self.hint = f"give it {-(-cpus // nodes) * nodes} CPUs, or change the number of nodes"


def cpus_by_node(cpus: int, nodes: int) -> tuple[range, ...]:
    """Return the CPUs of each node.

    Args:
        cpus: Number of CPUs.
        nodes: Number of nodes, 1 or more.

    Raises:
        Uneven: Some nodes would have more than others.
    """
    if cpus % nodes:
        raise Uneven(cpus, nodes)
    each = cpus // nodes
    return tuple(range(node * each, (node + 1) * each) for node in range(nodes))


def node_of_each(cpus: int, nodes: int) -> dict[int, int]:
    """Return the node of each CPU; raise as :func:`cpus_by_node`."""
    return {cpu: node for node, own in enumerate(cpus_by_node(cpus, nodes)) for cpu in own}
