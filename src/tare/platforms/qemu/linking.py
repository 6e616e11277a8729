"""How a QEMU machine is connected to its network, and what the host lends it for that."""

from __future__ import annotations

from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

from tare.platforms.contract import Context, MachineSpec
from tare.platforms.linux.lent import CONTAINER, lent
from tare.platforms.network import Link
from tare.platforms.qemu.options import QemuOptions


@dataclass(frozen=True)
class Given:
    """A virtual function that is a machine's.

    Args:
        link: The machine's connection by it.
        own: What is to belong to QEMU's user: the file of its IOMMU group.
        devices: What that user opens besides.
    """

    link: Link | None = None
    own: tuple[Path, ...] = ()
    devices: tuple[Path, ...] = ()


async def given(
    context: Context, held: AsyncExitStack, spec: MachineSpec, options: QemuOptions
) -> Given:
    """Take a virtual function for a machine where its way is one, until ``held`` is closed.

    Raises:
        MachineFault: There are no free ones, or one does not let itself be taken.
    """
    if spec.network is None or spec.way != "sriov":
        return Given()
    host = context.host
    link = await spec.network.function(host, spec.name, options.nic_function)
    assert link.function is not None
    group = await held.enter_async_context(lent(host, context.ledger, link.function))
    return Given(link, (group,), (CONTAINER,))


async def link_of(
    spec: MachineSpec, options: QemuOptions, user: int | None, taken: Given
) -> Link | None:
    """Return how a machine that ``user`` runs is connected; raises MachineFault."""
    if spec.network is None or taken.link is not None:
        return taken.link
    if spec.way == "user":
        return spec.network.user(spec.name)
    if spec.way == "macvtap":
        return await spec.network.macvtap(spec.name)
    return await spec.network.tap(spec.name, options.nic_queues, user)
