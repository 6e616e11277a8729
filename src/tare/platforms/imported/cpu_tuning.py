"""Import the CPUs of a machine's threads, and their shares; libvirt.org, "CPU Tuning"."""

from __future__ import annotations

import xml.etree.ElementTree as ET

from tare.platforms.imported.model import Description
from tare.platforms.imported.notes import Node
from tare.platforms.imported.parsing import MOST_CPUS, cpu_set, parse_whole_number
from tare.platforms.scheduling import DEFAULT_PERIOD_S
from tare.units import format_duration

OWN_CPU = "each vCPU has a CPU of its own with `cpus: pinned` in a scenario, and else all of them"
NO_LIST = "it is not a list of CPUs"
MOST_WEIGHT, USUAL_WEIGHT = 10_000, 100
"""The largest and the default weight in version 2 of control groups.

Source: the kernel's Documentation/admin-guide/cgroup-v2.rst.
"""
USUAL_SHARES = 1024
"""The default weight in version 1 (Documentation/scheduler/sched-design-CFS.rst)."""
MOST_PRIORITY = 98
PERIOD_US = round(DEFAULT_PERIOD_S * 1e6)
LEAST_US, MOST_PERIOD_US = 1000, 1_000_000
OTHERS = {"emulator_": "QEMU's other threads", "iothread_": "each I/O thread"}
"""Thread groups with their own limits, by the prefix of their elements in libvirt."""


def read_tuning(found: Description, root: Node) -> None:
    """Import a domain's CPU settings, after all other parts of the domain have been read.

    Args:
        found: The description read so far.
        root: The element ``domain``.
    """
    tune = root.find("cputune") or Node(ET.Element("cputune"))
    vcpu = root.find("vcpu")
    anywhere = None if vcpu is None else vcpu.get("cpuset") or None
    _vcpus(found, tune, anywhere)
    _emulator(found, tune, anywhere)
    _disks_thread(found, tune, anywhere)
    _policy(found, tune)
    if found.options.get("scheduling", {}).get("policy") != "fifo":
        _share(found, tune)
        _limit(found, tune)
    else:
        for name in ("shares", "quota", "global_quota"):
            if (value := _text(tune, name)) is not None:
                found.leave(f"<cputune> {name} {value}", "it has no effect under `policy: fifo`")
    for prefix, who in OTHERS.items():
        if (other := _quota(found, tune, prefix)) is not None:
            found.leave(f"at most {other[0] / other[1]:g} of a CPU for {who}")
    for name in ("period", "global_period"):
        _text(tune, name)


def _text(tune: Node, name: str) -> str | None:
    part = tune.find(name)
    return None if part is None else part.text


def weigh(found: Description, given: str, number: int | None, most: int = MOST_WEIGHT) -> None:
    """Import a weight among control groups, whose scale depends on their version.

    Args:
        found: The description read so far.
        given: The weight as the description writes it.
        number: The weight; None: it is not a number.
        most: The largest weight in version 2.
    """
    if not number:
        found.leave(given, "it is not a weight")
        return
    old = max(1, min(MOST_WEIGHT, round(number * USUAL_WEIGHT / USUAL_SHARES)))
    if number > most:
        # No group of version 2 can have such a large weight.
        found.schedule(weight=old)
        return
    found.schedule(weight=number)
    if number not in (USUAL_WEIGHT, old):
        found.leave(
            f"{given} on a host with version 1 of control groups",
            f"{USUAL_SHARES} is usual there: write `scheduling: {{weight: {old}}}`",
        )


def _vcpus(found: Description, tune: Node, anywhere: str | None) -> None:
    """Import vCPUs that are each pinned to their own CPU; Tare chooses the CPUs."""
    pins = {each.get("vcpu"): each.get("cpuset") for each in tune.all("vcpupin")}
    sets = [cpu_set(pins.get(str(number))) for number in range(min(found.vcpus or 1, MOST_CPUS))]
    one_each = {cpus[0] for cpus in sets if cpus is not None and len(cpus) == 1}
    found.pinned = len(one_each) == len(sets)
    for number, cpus in pins.items():
        what = f"vCPU {number} on CPU{'s' if len(cpu_set(cpus) or ()) != 1 else ''} {cpus}"
        if cpu_set(cpus) is None:
            found.leave(what, NO_LIST)
        elif (parse_whole_number(number) or 0) >= (found.vcpus or 1):
            found.leave(what, "there is no such vCPU")
        else:
            found.leave(what, "Tare chooses which it is" if found.pinned else OWN_CPU)
    if anywhere is not None and len(pins) < len(sets):
        found.leave(f"vCPUs on CPUs {anywhere}", OWN_CPU if cpu_set(anywhere) else NO_LIST)


def _emulator(found: Description, tune: Node, anywhere: str | None) -> None:
    """Import the CPUs of QEMU's other threads; by default they are the vCPUs' default CPUs."""
    pin = tune.find("emulatorpin")
    given = anywhere if pin is None else pin.get("cpuset")
    if given is None:
        return
    if (cpus := cpu_set(given)) is not None:
        found.options["emulator_cpus"] = list(cpus)
    elif pin is not None:
        found.leave(f"<cputune> emulatorpin {given}", NO_LIST)


def _disks_thread(found: Description, tune: Node, anywhere: str | None) -> None:
    """Import the CPUs of the I/O thread of the disk that is carried over."""
    disk = found.chosen_disk
    thread = (disk.thread or None) if disk is not None else None
    given = anywhere
    for pin in tune.all("iothreadpin"):
        number, listed = pin.get("iothread"), pin.get("cpuset")
        words = f"<cputune> iothreadpin {number} on CPUs {listed}"
        if thread is None or number != thread:
            found.leave(words, "the disk that is carried over has no such thread")
        elif cpu_set(listed) is None:
            found.leave(words, NO_LIST)
        else:
            given = listed
    cpus = cpu_set(given)
    # By default the thread runs where QEMU's other threads run.
    others = found.options.get("emulator_cpus")
    if thread is not None and cpus is not None and list(cpus) != others:
        found.options["iothread_cpus"] = list(cpus)


def _policy(found: Description, tune: Node) -> None:
    """Import the scheduling policy of the vCPUs, if all of them have the same."""
    policies: dict[int, tuple[str, str]] = {}
    for each in tune.all("vcpusched"):
        numbers = cpu_set(each.get("vcpus"))
        if numbers is None:
            found.leave(f"<cputune> vcpusched of the vCPUs {each.get('vcpus')}", NO_LIST)
        policies |= dict.fromkeys(numbers or (), (each.get("scheduler"), each.get("priority")))
    of_vcpus = {policies.get(number) for number in range(min(found.vcpus or 1, MOST_CPUS))}
    if not policies:
        return
    one = next(iter(of_vcpus))
    if len(of_vcpus) > 1 or one is None:
        for policy, priority in sorted(set(policies.values())):
            vcpus = ",".join(str(n) for n, held in sorted(policies.items()) if held[0] == policy)
            found.leave(
                f"<cputune> vcpusched {policy} {priority} of the vCPUs {vcpus}".replace("  ", " "),
                "Tare supports one policy for all vCPUs",
            )
        return
    _import_policy(found, *one)


def _import_policy(found: Description, policy: str, given: str) -> None:
    if policy == "batch":
        found.schedule(policy=policy)
    elif policy == "fifo":
        priority = parse_whole_number(given) or 1
        found.schedule(policy=policy, priority=min(priority, MOST_PRIORITY))
        if priority > MOST_PRIORITY:
            found.leave(f"priority {priority} of the vCPUs", f"{MOST_PRIORITY} is taken")
    else:
        found.leave(f"<cputune> vcpusched {policy}", "Tare supports `batch` and `fifo`")


def _share(found: Description, tune: Node) -> None:
    if (shares := _text(tune, "shares")) is not None:
        weigh(found, f"<cputune> shares {shares}", parse_whole_number(shares))


def _limit(found: Description, tune: Node) -> None:
    """Import the CPU limit of the whole domain, or of each vCPU; 0 or less means no limit."""
    each_us = _quota(found, tune, "")
    all_us = _quota(found, tune, "global_")
    if all_us is not None:
        found.schedule(**_capped(*all_us, 1))
        if each_us is not None:
            quota, period = each_us
            words = f"at most {quota / period:g} of a CPU for each vCPU"
            found.leave(words, "`cap` is that of the whole machine")
    elif each_us is not None:
        quota, period = each_us
        found.schedule(**_capped(quota, period, found.vcpus or 1))
        if (found.vcpus or 1) > 1:
            found.leave(
                f"at most {quota / period:g} of a CPU for each vCPU by itself",
                "`cap` is that of all of them together; `cap` of `platform: libvirt` is each one's",
            )


def _capped(quota: int, period: int, times: int) -> dict[str, float | str]:
    cap: dict[str, float | str] = {"cap": round(times * quota / period, 6)}
    if period != PERIOD_US:
        cap["period"] = format_duration(period / 1e6).replace(" ", "")
    return cap


def _quota(found: Description, tune: Node, prefix: str) -> tuple[int, int] | None:
    """Return quota and period in microseconds; None if there is no limit."""
    given = _text(tune, f"{prefix}quota") or ""
    quota = parse_whole_number(given)
    period = parse_whole_number(_text(tune, f"{prefix}period") or str(PERIOD_US)) or PERIOD_US
    if not given or given.startswith("-") or quota == 0:
        return None
    if quota is None or quota < LEAST_US or not LEAST_US <= period <= MOST_PERIOD_US:
        found.leave(
            f"<cputune> {prefix}quota {given} in {period} µs",
            "libvirt does not accept this quota",
        )
        return None
    return quota, period
