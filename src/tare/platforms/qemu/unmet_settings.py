"""Find the settings of an arm that a host cannot apply, for all platforms that use QEMU."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from tare.hosts import Host
from tare.hosts.programs import install_command_for
from tare.platforms.linux.backed_disk import lacking_backing
from tare.platforms.linux.thread_cpus import lacking_cpus
from tare.platforms.qemu import nic
from tare.platforms.qemu.command import device_types
from tare.platforms.qemu.halt_polling import lacking_polling
from tare.platforms.qemu.huge_pages import lacking_pages
from tare.platforms.qemu.memory import lacking_node
from tare.platforms.qemu.microvm import lacking_frequency
from tare.platforms.qemu.nested import lacking_nesting
from tare.platforms.qemu.offer import Offer
from tare.platforms.qemu.options import QemuOptions
from tare.programs import QEMU, TASKSET


class Placed(Protocol):
    """Options that place QEMU's own threads on CPUs."""

    @property
    def host_cpus(self) -> Mapping[str, tuple[int, ...]]:
        """Host CPUs that options list by number, by the name of the option."""
        ...

    @property
    def unpinned_cpu_options(self) -> tuple[str, ...]:
        """The options that ask for CPUs other than those of the vCPUs."""
        ...


def lacking_places(host: Host, options: Placed) -> tuple[str, str] | None:
    """Return the first CPU choice that a host cannot meet, and what to do; None if it meets all.

    Args:
        host: The host of the machines.
        options: The requested options.
    """
    online = host.topology().online
    if options.unpinned_cpu_options and len(online) == 1:
        option = options.unpinned_cpu_options[0]
        return f"{option}: other: the host has one CPU only", f"use `{option}: same`"
    return lacking_cpus(options.host_cpus, online)


async def lacking_switches(
    host: Host, options: QemuOptions, memories: Sequence[int] = ()
) -> tuple[str, str] | None:
    """Return the first setting for memory, disk, polling or threads that a host cannot apply.

    Args:
        host: The host of the machines.
        options: The requested options.
        memories: Memory in bytes of each machine that runs at the same time; empty: unknown.

    Returns:
        The problem and what to do; None if there is none.
    """
    kept, group = options.disk_format, options.disk_volume_group
    if problem := await lacking_pages(host, options, memories):
        return problem
    if problem := await lacking_node(host, options):
        return problem
    if problem := await lacking_backing(host, kept, group):
        return problem
    if problem := await lacking_polling(host, options.halt_poll):
        return problem
    return lacking_places(host, options)


async def lacking_here(
    host: Host, options: QemuOptions, offer: Offer, memories: Sequence[int] = ()
) -> tuple[str, str] | None:
    """Return the first option that this QEMU or host cannot meet, and what to do; None if none.

    Args:
        host: The host of the machines.
        options: The requested options.
        offer: The offer of the host's QEMU.
        memories: As for :func:`lacking_switches`.
    """
    if problem := await _not_built_in(host, options, offer):
        return problem
    if options.cpu is not None:
        model = options.cpu.split(",")[0]
        if model not in offer.models:
            return f"this QEMU does not have the CPU model {model}", f"{offer.program} -cpu help"
        if options.accelerator == "tcg" and model == "host":
            return "the CPU model host needs kvm", "leave `cpu` out, or use `cpu: max`"
    for lacking in (
        lacking_switches,
        lacking_frequency,
        nic.lacking_vhost,
        nic.lacking_way,
        lacking_nesting,
    ):
        if problem := await lacking(host, options):
            return problem
    if (await host.run(["taskset", "--version"], timeout_s=30)).returncode:
        return "taskset does not run", await install_command_for(host, TASKSET)
    return None


async def _not_built_in(host: Host, options: QemuOptions, offer: Offer) -> tuple[str, str] | None:
    """Return which option this QEMU was built without, and what to do; None if it has all."""
    if options.accelerator not in offer.accelerators:
        other = "; ".join(
            f"`accelerator: {name}` works here" for name in sorted(offer.accelerators)
        )
        return (
            f"this QEMU ({offer.program}) was built without {options.accelerator}",
            other or await install_command_for(host, QEMU),
        )
    if options.machine not in offer.machines:
        return (
            f"this QEMU ({offer.program}) was built without machine type {options.machine}",
            f"choose a `machine` of: {offer.program} -machine help",
        )
    lacking = sorted(set(device_types(options)) - offer.devices)
    if lacking:
        return (
            f"this QEMU ({offer.program}) was built without {', '.join(lacking)}",
            f"choose other devices of: {offer.program} -device help",
        )
    return None
