"""The time that firmware and all else take from the hosts' CPUs, before a real-time study."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from tare.errors import TareError
from tare.events import Check, NoiseMeasured
from tare.hosts.trace.noise import HWLAT, measure_noise
from tare.hosts.trace.tracefs import NoTracing
from tare.platforms.contract import TAKES_HOST
from tare.study.planning.host_cpus import cpu_words
from tare.units import format_duration, format_percent

if TYPE_CHECKING:
    from tare.events import CpuNoise
    from tare.run.hosts.contract import RunHost
    from tare.study.model.study import Study
    from tare.workloads.contract import Workload

_HINT = (
    "look for system management interrupts: switch off power capping, memory scrubbing and legacy "
    "USB in the firmware's set-up; or allow longer gaps with `noise: {limit: …}`"
)


async def noise_of_hosts(
    run_hosts: Mapping[str, RunHost], workloads: Mapping[str, Workload[Any]], study: Study
) -> tuple[NoiseMeasured, ...]:
    """Measure the noise of every host of a study with real-time workloads; else return nothing.

    Args:
        run_hosts: The study's hosts by name.
        workloads: All known workloads by name.
        study: The study, whose key `noise` has the duration and the limit.
    """
    wanted = any(workloads[spec.workload].realtime for spec in study.workloads.values())
    if not wanted or not study.noise.duration:
        return ()
    found = [await _measure_host(run_host, name, study) for name, run_host in run_hosts.items()]
    return tuple(each for each in found if each is not None)


async def _measure_host(run_host: RunHost, name: str, study: Study) -> NoiseMeasured | None:
    """Measure one host; None if no arm runs on the host's own kernel."""
    boots = [
        run_host.boot_of(run_host.platforms[arm.platform], arm.options, study.release_of(label))
        for label, arm in study.arms.items()
        if study.host_of(label) == name and arm.platform in run_host.platforms
    ]
    boots = [boot for boot in boots if boot != TAKES_HOST]
    if not boots:
        return None
    began = time.monotonic()

    def missing(why: str) -> NoiseMeasured:
        took_s = time.monotonic() - began
        return NoiseMeasured(host=name, took_s=took_s, missing=why, limit_s=study.noise.limit)

    if run_host.counts_instructions:
        return missing("the host's time counts instructions")
    try:
        # The last boot is up: arms were checked with it, so that the host need not boot again.
        context = await run_host.under(boots[-1], 0)
        host = context.host
        cpus = host.topology().machines
        noise = await measure_noise(host, context.ledger, cpus, study.noise.duration)
        cpuinfo = (await host.read("/proc/cpuinfo")).decode(errors="replace")
    except NoTracing as refused:
        return missing(str(refused))
    except (TareError, OSError, ValueError) as error:
        return missing(error.message if isinstance(error, TareError) else str(error))
    return NoiseMeasured(
        host=name,
        took_s=time.monotonic() - began,
        by=noise.by,
        firmware=noise.firmware,
        system=noise.system,
        limit_s=study.noise.limit,
        virtual=any(" hypervisor" in line for line in cpuinfo.splitlines() if "flags" in line),
        emulated=run_host.emulated,
    )


def noise_check(event: NoiseMeasured) -> Check:
    """Return the pre-flight check of a host's noise: bad if the study's limit is exceeded."""
    name = f"noise on {event.host}" if event.host else "noise"
    if event.missing:
        return Check(name=name, level="warn", found=f"not measured: {event.missing}")
    parts = []
    if event.firmware:
        who = "firmware or the hypervisor below" if event.virtual else "firmware"
        least = "at least " if event.by == HWLAT else ""
        parts.append(f"{who} took {least}{_words(event.firmware)}")
    else:
        parts.append(
            "this kernel cannot measure firmware alone (hwlat, or osnoise with OSNOISE_IRQ_DISABLE)"
        )
    if event.system:
        parts.append(f"everything but the measuring thread took {_words(event.system)}")
    longest = max((each.longest_s for each in event.firmware), default=0.0)
    found = "; ".join(parts)
    if longest <= event.limit_s:
        return Check(name=name, level="ok", found=found)
    found += f"; the study allows {format_duration(event.limit_s)}"
    # An emulated host shows its emulator's noise, and its results are marked anyway.
    return Check(name=name, level="warn" if event.emulated else "bad", found=found, hint=_HINT)


def _words(cpus: Iterable[CpuNoise]) -> str:
    """Return the share of all CPUs' time, and the longest gap with its CPU."""
    each = tuple(cpus)
    share = sum(one.taken_s for one in each) / max(sum(one.watched_s for one in each), 1e-9)
    worst = max(each, key=lambda one: one.longest_s)
    of = cpu_words([one.cpu for one in each])
    text = f"{format_percent(share)} of CPU {of}"
    if worst.longest_s:
        text += f", at most {format_duration(worst.longest_s)} at once (CPU {worst.cpu})"
    return text
