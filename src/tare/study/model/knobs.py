"""The scheduler knobs that an arm requests, and the reasons why it cannot have them."""

from __future__ import annotations

from collections.abc import Mapping

from tare.study.model.platform_options import PlatformOptions, WantedScheduling
from tare.study.planning.host_cpus import HostCpus
from tare.study.planning.placement import Placement


def wanted_knobs(options: PlatformOptions) -> frozenset[str]:
    """Return all scheduler knobs that an arm's options request."""
    return frozenset().union(
        *(one.knobs for one in _scheduling_by_role(options) if one is not None)
    )


def lacking_knobs(
    options: PlatformOptions, offered: frozenset[str], reasons: Mapping[str, str]
) -> str:
    """Return which knobs an arm wants but cannot have, and why; empty if it has all.

    Args:
        options: The platform's options.
        offered: The knobs that the platform offers here.
        reasons: The reasons why it lacks other knobs, if known.
    """
    missing = sorted(wanted_knobs(options) - offered)
    if not missing:
        return ""
    known = [reasons[knob] for knob in missing if knob in reasons]
    why = f": {'; '.join(dict.fromkeys(known))}" if known else ""
    has = ", ".join(sorted(offered)) or "none"
    return (
        f"wants the scheduler knob {', '.join(missing)}, which is not available here{why} "
        f"(available: {has})"
    )


def starved_host(
    options: PlatformOptions,
    placement: Placement,
    vcpus: int,
    cpus: HostCpus,
    others: int | None = None,
) -> str:
    """Return why a scenario would leave others without a CPU; empty if it would not.

    A SCHED_FIFO vCPU that never sleeps keeps everything else, including Tare, off its CPU. If vCPUs
    are pinned to all CPUs, none is left for threads that must run elsewhere.

    Args:
        options: The platform's options.
        placement: The CPUs of the scenario's machines.
        vcpus: Number of vCPUs of the subject.
        cpus: The host's CPUs.
        others: Number of vCPUs of each neighbour; by default as many as the subject.
    """
    if reason := _crowded_out(options, placement, vcpus, cpus, vcpus if others is None else others):
        return reason
    subject, neighbours = _scheduling_by_role(options)
    placed: list[tuple[tuple[int, ...], int]] = []
    if subject is not None and subject.realtime:
        placed.append((placement.subject, vcpus))
    if neighbours is not None and neighbours.realtime:
        each = vcpus if others is None else others
        placed += [(neighbour.cpus, each) for neighbour in placement.neighbours]
    taken = {cpu for pinned, count in placed for cpu in pinned[:count]}
    roaming = sum(count for pinned, count in placed if not pinned)
    if not placed or len(taken) + roaming < len(cpus.online):
        return ""
    count = len(cpus.online)
    return (
        "SCHED_FIFO machines would leave no CPU to the host itself, which has "
        f"{count} CPU{'s' if count > 1 else ''}: a vCPU that never sleeps would stop it"
    )


def _crowded_out(
    options: PlatformOptions, placement: Placement, vcpus: int, cpus: HostCpus, others: int
) -> str:
    if not options.unpinned_cpu_options:
        return ""
    all_cpus = set(cpus.housekeeping or cpus.online)
    machines = [placement.subject[:vcpus], *(each.cpus[:others] for each in placement.neighbours)]
    if not any(len(own) >= len(all_cpus) and all_cpus <= set(own) for own in machines):
        return ""
    first = options.unpinned_cpu_options[0]
    return (
        f"`{first}: other` needs a CPU without a vCPU, but the vCPUs are pinned to all CPUs of the "
        f"host: write `{first}: same`, or give the machine fewer vCPUs"
    )


def _scheduling_by_role(
    options: PlatformOptions,
) -> tuple[WantedScheduling | None, WantedScheduling | None]:
    return options.subject_scheduling, options.neighbours_scheduling
