"""Checks that hosts have the memory, disk and kernels of a plan, before anything is built."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tare.errors import InputError
from tare.platforms.linux.disk import SPARE
from tare.study.planning.guest_kernels import HOST
from tare.study.reading.hosting import LABS
from tare.units import format_size

if TYPE_CHECKING:
    from tare.hosts import Host
    from tare.platforms.contract import Carrier
    from tare.run.lifecycle.setup import Grounds, RunSetup
    from tare.study.model.study import Study
    from tare.study.planning.cells import Batch
    from tare.study.planning.plan import Plan

LARGE_LAB = int(LABS["large"]["memory"])
"""Bytes of memory of the lab named ``large``."""


def own_memory() -> int:
    """Return this computer's memory, in bytes."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def assumed_memory(study: Study) -> dict[str, int]:
    """Return the memory of hosts that is known without contacting them, in bytes, by name."""
    sizes = {"local": own_memory(), "lab": study.lab.memory}
    return {name: sizes[spec.kind] for name, spec in study.computers.items() if spec.kind in sizes}


def found_memory(study: Study, setup: RunSetup) -> dict[str, int]:
    """Return the memory of all hosts that report it, in bytes, by name."""
    reported = {
        name: int(size)
        for name, run_host in setup.run_hosts.items()
        if (size := run_host.facts.get("memory_bytes"))
    }
    return reported | assumed_memory(study)


async def require_room(
    study: Study, plan: Plan, grounds: Grounds, memory: Mapping[str, int], builder: Host
) -> None:
    """Check that the machines of a plan fit on their hosts, and that their kernels exist.

    Args:
        study: The study.
        plan: The plan.
        grounds: The hosts and platforms.
        memory: The memory of hosts in bytes, by name, as far as it is known.
        builder: The computer that builds the images.

    Raises:
        InputError: A host lacks memory or disk space, or a kernel does not exist.
    """
    for batch in plan.batches:
        same_scenario = [other for other in plan.batches if other.scenario == batch.scenario]
        at_once = same_scenario if study.blocks.paired else [batch]
        if batch.arm in plan.carriers:
            _require_memory_at(study, at_once, plan.carriers, plan.carriers[batch.arm])
        elif _boots_image(study, grounds, batch.arm):
            _require_memory(study, at_once, memory)
        _require_disks(study, at_once)
    for arm in plan.arms:
        if _boots_image(study, grounds, arm):
            await _require_kernel(builder, study, arm)


def _boots_image(study: Study, grounds: Grounds, arm: str) -> bool:
    spec = study.arms[arm]
    platform = grounds.run_hosts[study.host_of(arm)].platforms[spec.platform]
    return platform.stated(spec.options).boots_image


def machines_of(study: Study, batch: Batch) -> dict[str, list[int]]:
    """Return the memory of each machine that a batch boots at once, in bytes, by host."""
    own = study.shape_of(batch.arm).memory
    sizes: dict[str, list[int]] = defaultdict(list)
    subject = batch.placement.subject_memory or own
    sizes[batch.host] = [subject, *(each.memory or own for each in batch.placement.neighbours)]
    for each in batch.placement.companions:
        sizes[each.host or batch.host].append(each.memory or own)
    return sizes


def _require_memory(study: Study, batches: Sequence[Batch], memory: Mapping[str, int]) -> None:
    batch = batches[0]
    at_once: dict[str, list[int]] = defaultdict(list)
    for each in batches:
        for host, sizes in machines_of(study, each).items():
            at_once[host] += sizes
    for host, sizes in at_once.items():
        has = memory.get(host)
        if has is None or sum(sizes) <= has:
            continue
        where = f"host {host}" if host else "the host"
        several = f" in {len(sizes)} machines at once" if len(sizes) > 1 else ""
        larger = study.computers[host].kind == "lab" and sum(sizes) < LARGE_LAB > has
        raise InputError(
            f"arm {batch.arm}, scenario {batch.scenario}: {format_size(sum(sizes))} of memory are "
            f"wanted{several}, and {where} has {format_size(has)}",
            "reduce `memory` in its shape"
            + (", or the machines of the scenario" if several else "")
            + ("; or use a larger lab: --set lab=large" if larger else ""),
        )


def _require_memory_at(
    study: Study, batches: Sequence[Batch], carriers: Mapping[str, Carrier], carrier: Carrier
) -> None:
    """Check that the computer that a hypervisor reports has memory for machines up at once."""
    sizes = [
        size
        for batch in batches
        if (found := carriers.get(batch.arm)) is not None and found.name == carrier.name
        for size in machines_of(study, batch).get(batch.host, ())
    ]
    has = carrier.memory if carrier.free is None else carrier.free
    if not has or sum(sizes) <= has:
        return
    several = f" in {len(sizes)} machines at once" if len(sizes) > 1 else ""
    free = "" if carrier.free is None else f" ({format_size(carrier.free)} free)"
    raise InputError(
        f"arm {batches[0].arm}, scenario {batches[0].scenario}: {format_size(sum(sizes))} of "
        f"memory are wanted{several}, and {carrier.name} has {format_size(carrier.memory)}{free}",
        "reduce `memory` in its shape"
        + (", or the machines of the scenario" if several else "")
        + ("" if carrier.free is None else "; or stop other machines there"),
    )


def _require_disks(study: Study, batches: Sequence[Batch]) -> None:
    """Check that this computer has space for the disks of all machines that run at once."""
    sizes = [
        study.shape_of(batch.arm).disk or 0
        for batch in batches
        for host, machines in machines_of(study, batch).items()
        if study.computers[host].kind == "local"
        for _ in machines
    ]
    size = sum(sizes)
    # If temporary files are kept in memory, disks go to /var/tmp; see tare.platforms.linux.disk.
    folders = (Path(tempfile.gettempdir()), Path("/var/tmp"))
    if not size or any(shutil.disk_usage(each).free >= size + SPARE for each in folders):
        return
    free = max(shutil.disk_usage(each).free for each in folders)
    wanted = (
        f"a machine's disk of {format_size(size)} is wanted"
        if len(sizes) == 1
        else f"{len(sizes)} machines' disks of {format_size(size)} together are wanted"
    )
    raise InputError(
        f"arm {batches[0].arm}, scenario {batches[0].scenario}: {wanted} in {folders[0]}, where "
        f"{format_size(free)} are free",
        f"free some space (df -h {folders[0]}), or reduce `disk` in its shape",
    )


async def _require_kernel(builder: Host, study: Study, arm: str) -> None:
    kernel = study.kernel_of(arm)
    if kernel is None:
        return
    if kernel == HOST and study.computers[study.host_of(arm)].kind != "local":
        # That host is checked once it is connected.
        return
    # Imported here: most plans name no kernel, and the modules that unpack kernels load slowly.
    from tare.images.archives import kept_archive
    from tare.images.cache import default_cache
    from tare.images.host_kernel import find_host_image
    from tare.images.kernels import is_file_name
    from tare.images.packages import require_kernel

    try:
        if kernel == HOST:
            await find_host_image(builder)
        elif not is_file_name(kernel):
            # The package lists of another release are used if they are cached already.
            if archive := await kept_archive(builder, study.release_of(arm), default_cache()):
                await require_kernel(builder, kernel, archive)
        elif not Path(kernel).is_file():
            raise InputError(
                f"there is no kernel file {kernel}",
                "write the path of a kernel's image, such as `kernel: /boot/vmlinuz-6.1.0`, or "
                "`kernel: rt` for the distribution's real-time kernel",
            )
    except InputError as error:
        raise InputError(f"arm {arm}: {error.message}", error.hint) from error
