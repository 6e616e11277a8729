"""QEMU's options for the NUMA nodes of an emulated computer.

Source: QEMU's manual, ``-numa node`` and ``-object memory-backend-ram``. Each node is a socket
too, as on most computers with several.
"""

from __future__ import annotations

from tare.study.model.lab_nodes import cpus_by_node


def topology_arguments(cpus: int, nodes: int) -> tuple[str, ...]:
    """Return the option that lays the CPUs out in sockets."""
    return ("-smp", f"{cpus},sockets={nodes},cores={cpus // nodes},threads=1")


def node_arguments(cpus: int, memory: int, nodes: int) -> tuple[str, ...]:
    """Return the options that distribute CPUs and memory over the nodes; none for one node.

    Args:
        cpus: Number of CPUs, a multiple of ``nodes``.
        memory: Bytes of memory, in whole MiB; the last node gets the remainder.
        nodes: Number of nodes.
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
