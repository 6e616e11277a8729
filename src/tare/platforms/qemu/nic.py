"""The network card of a QEMU machine, and the path of its packets on the host."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tare.hosts import Host
from tare.plaintext import plain_line
from tare.platforms.contract import Context, MachineSpec
from tare.platforms.linux.network.functions import functions_of, lacking
from tare.platforms.linux.sriov import CONTAINER, bound_to_vfio
from tare.platforms.network import Link
from tare.platforms.qemu.disk_options import MICROVM
from tare.platforms.qemu.options import QemuOptions

VHOST = "/dev/vhost-net"
LOAD_VHOST = "modprobe vhost_net"
_TRY_S = 20.0
_MACVTAP = (
    "ip link add lower type veth peer name other && "
    "ip link add upper link lower type macvtap mode bridge"
)
MODELS: Mapping[str, str] = {
    "virtio": "virtio-net-pci",
    "e1000": "e1000",
    "e1000e": "e1000e",
    "rtl8139": "rtl8139",
    "vmxnet3": "vmxnet3",
    "tulip": "tulip",
}
"""QEMU's names of the cards."""
TAP_DESCRIPTOR = 9
"""The descriptor of a macvtap, whose device QEMU may not open itself; shells allow up to 9."""
OFFLOADS = (
    "csum", "gso", "guest_csum", "guest_tso4", "guest_tso6", "guest_ecn", "guest_ufo",
    "host_tso4", "host_tso6", "host_ecn", "host_ufo",
)  # fmt: skip
"""The work that a virtio card can leave to the other side, by QEMU's names."""


def device(options: QemuOptions, link: Link | None) -> str:
    """Return the argument of QEMU's ``-device`` for the card."""
    if link is not None and link.function is not None:
        return f"vfio-pci,host={link.function.address},rombar=0"
    if options.machine == MICROVM:
        words = ["virtio-net-device", "netdev=net"]
    else:
        words = [MODELS[options.card], "netdev=net", "romfile="]
    if link is not None:
        # By default QEMU gives every guest the same address, and a bridge then loses their packets.
        words.append(f"mac={link.mac}")
    if options.nic_queues > 1:
        # One vector for each queue and direction, and two for the card itself (virtio, 5.1.4).
        vectors = "" if options.machine == MICROVM else f",vectors={2 * options.nic_queues + 2}"
        words.append(f"mq=on{vectors}")
    if not options.nic_offloads:
        words += [f"{name}=off" for name in OFFLOADS]
    return ",".join(words)


def netdev(options: QemuOptions, link: Link | None, vhost: bool) -> str:
    """Return the argument of QEMU's ``-netdev``.

    Args:
        options: The machine's options.
        link: The card's connection; None: a port with nothing behind it.
        vhost: Whether the host's kernel carries the packets instead of QEMU.
    """
    if link is None:
        return "hubport,id=net,hubid=0"
    if link.way == "user":
        ports = "".join(
            f",hostfwd={kind}:127.0.0.1:{here}-{link.address}:{port}"
            for port, here in link.forwards.items()
            for kind in ("tcp", "udp")
        )
        # restrict: the guest reaches neither the host nor any network behind it.
        return f"user,id=net,restrict=on{ports}"
    if link.way == "macvtap":
        tap = f"fd={TAP_DESCRIPTOR}"
    else:
        tap = f"ifname={link.interface},script=no,downscript=no"
    queues = f",queues={options.nic_queues}" if options.nic_queues > 1 else ""
    return f"tap,id=net,{tap}{queues}{',vhost=on' if vhost else ''}"


def around(link: Link | None) -> list[str]:
    """Return the command prefix with which QEMU finds the interface of its card; often empty."""
    if link is None:
        return []
    if link.device:
        opened = f'exec {TAP_DESCRIPTOR}<>"$1"; shift; exec "$@"'
        return ["sh", "-c", opened, "sh", link.device]
    return ["nsenter", f"--net=/run/netns/{link.within}"] if link.within else []


async def uses_vhost(host: Host, options: QemuOptions, way: str) -> bool:
    """Check whether the host's kernel carries the packets; by default it does if it can."""
    if way not in ("tap", "macvtap") or options.card != "virtio" or options.vhost == "off":
        return False
    return options.vhost == "on" or await host.exists(VHOST)


async def lacking_vhost(host: Host, options: QemuOptions) -> tuple[str, str] | None:
    """Return the problem and what to do if a host lacks a requested vhost; None if not."""
    asked = {"vhost: on": options.vhost == "on", "vhost-cpus": options.vhost_cpus is not None}
    for option in filter(asked.get, asked):
        if not await host.exists(VHOST):
            return f"`{option}`: the host has no {VHOST}", LOAD_VHOST
    return None


async def lacking_way(host: Host, options: QemuOptions) -> tuple[str, str] | None:
    """Return the problem and what to do if a host lacks the requested network way; None if not."""
    if options.network == "macvtap":
        # The trial runs in a separate network namespace, which ends with it.
        done = await host.run(["unshare", "--net", "sh", "-c", _MACVTAP], timeout_s=_TRY_S)
        if not done.ok:
            reason = plain_line(done.words(), 200)
            return f"`network: macvtap`: the host makes none ({reason})", "modprobe macvtap"
    if options.network == "sriov" and (
        problem := lacking(await functions_of(host), options.nic_function)
    ):
        return f"`network: sriov`: {problem[0]}", problem[1]
    return None


def record(options: QemuOptions, vhost: bool, link: Link) -> dict[str, Any]:
    """Return the facts about the card for the run's record."""
    if link.function is not None:
        own = link.function
        return {
            "model": "a virtual function",
            "function": own.address,
            "host_driver": own.driver,
            "routed_by": link.interface,
        }
    return {
        "model": options.card,
        "vhost": vhost,
        "queues": options.nic_queues,
        "offloads": options.nic_offloads,
    }


@dataclass(frozen=True)
class TakenFunction:
    """A virtual function that one machine uses.

    Args:
        link: The machine's connection through it.
        own: Files that QEMU's user must own: that of the function's IOMMU group.
        devices: Other device files that this user opens.
    """

    link: Link | None = None
    own: tuple[Path, ...] = ()
    devices: tuple[Path, ...] = ()


async def take_function(
    context: Context, held: AsyncExitStack, spec: MachineSpec, options: QemuOptions
) -> TakenFunction:
    """Take a virtual function if that is the machine's network way, until ``held`` is closed.

    Raises:
        MachineFault: No function is free, or one cannot be bound.
    """
    if spec.network is None or spec.way != "sriov":
        return TakenFunction()
    host = context.host
    link = await spec.network.function(host, spec.name, options.nic_function)
    assert link.function is not None
    group = await held.enter_async_context(bound_to_vfio(host, context.ledger, link.function))
    return TakenFunction(link, (group,), (CONTAINER,))


async def link_of(
    spec: MachineSpec, options: QemuOptions, user: int | None, taken: TakenFunction
) -> Link | None:
    """Return the connection of a machine that the user id ``user`` runs; raises MachineFault."""
    if spec.network is None or taken.link is not None:
        return taken.link
    if spec.way == "user":
        return spec.network.user(spec.name)
    if spec.way == "macvtap":
        return await spec.network.macvtap(spec.name)
    return await spec.network.tap(spec.name, options.nic_queues, user)
