"""The NUMA nodes of an emulated computer, in QEMU's words.

Source: QEMU's manual, ``-numa node`` and ``-object memory-backend-ram``. Each node is a socket
too, as on most computers with several.
"""

from __future__ import annotations

from tare.study.model.lab_nodes import cpus_by_node


def topology_arguments(cpus: int, nodes: int) -> tuple[str, ...]:
    """Return how the CPUs are laid out."""
    return ("-smp", f"{cpus},sockets={nodes},cores={cpus // nodes},threads=1")


def node_arguments(cpus: int, memory: int, nodes: int) -> tuple[str, ...]:
    """Return what deals CPUs and memory to the nodes; nothing for one.

    Args:
        cpus: How many CPUs there are; a multiple of ``nodes``.
        memory: Bytes of memory, in whole MiB; what cannot be dealt evenly is the last node's.
        nodes: How many nodes.
    """
    if nodes == 1:
        return ()
    whole = memory >> 20
    sizes = [whole // nodes] * nodes
    sizes[-1] += whole % nodes
    words: list[str] = []
    for node, (own, size) in enumerate(zip(cpus_by_node(cpus, nodes), sizes, strict=True)):
        words += ["-object", f"memory-backend-ram,id=node{node},size={size}M"]
        words += ["-numa", f"node,nodeid={node},cpus={own[0]}-{own[-1]},memdev=node{node}"]
    return tuple(words)
