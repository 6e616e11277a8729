"""What Xen's scheduler is told for a machine, held while it runs, and read back."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

from tare.errors import MachineFault
from tare.hosts import Host, Ledger
from tare.platforms.contract import MachineSpec
from tare.platforms.xen import output as xen_output
from tare.platforms.xen import rtds
from tare.platforms.xen import toolstack as xen
from tare.platforms.xen.options import CREDIT_SCHEDULERS, DEFAULT_POOL, XenOptions

LEAST_RATELIMIT_US = 100


async def pool_of(host: Host, options: XenOptions) -> xen_output.Pool | None:
    """Return the CPU pool that the options name; None where Xen has none of that name."""
    pools = xen_output.pools(await xen.asked(host, "cpupool-list"))
    return next((pool for pool in pools if pool.name == options.pool), None)


def wanted_parameters(options: XenOptions, now: Mapping[str, str]) -> dict[str, str]:
    """Return the scheduler parameters to set, in microseconds as text; empty to leave all.

    Args:
        options: What is asked for.
        now: What they are: ``tslice`` and ``ratelimit`` as far as the scheduler has them.
    """
    wanted: dict[str, str] = {}
    if options.slice_ms is not None:
        wanted["tslice"] = str(options.slice_ms * 1000)
    if options.ratelimit_us is not None:
        wanted["ratelimit"] = str(options.ratelimit_us)
    elif options.slice_ms is not None:
        half = max(LEAST_RATELIMIT_US, options.slice_ms * 500)
        # Xen refuses a slice that is shorter than the limit, and the limit would decide instead.
        if int(now.get("ratelimit", "0")) > half:
            wanted["ratelimit"] = str(half)
    return wanted


@asynccontextmanager
async def held_settings(
    host: Host, ledger: Ledger, options: XenOptions
) -> AsyncIterator[Mapping[str, Any]]:
    """Hold the settings of the host that a machine asks for; all are given back at the end.

    Yields:
        ``scheduler``, ``pool``, ``changed`` (name to what it was before, in microseconds) and
        ``dom0`` (the CPUs of its vCPUs before, where they were changed).

    Raises:
        MachineFault: Xen refuses, in its words.
    """
    async with AsyncExitStack() as held:
        pool = await pool_of(host, options)
        if pool is None:
            raise MachineFault(f"Xen has no CPU pool {options.pool}", "see `xl cpupool-list`")
        told: dict[str, Any] = {"scheduler": pool.scheduler, "pool": pool.name}
        asks = options.slice_ms is not None or options.ratelimit is not None
        if asks and pool.scheduler in CREDIT_SCHEDULERS:
            now = await _before(host, ledger, pool)
            wanted = wanted_parameters(options, now)
            if wanted:
                place = {"what": "scheduler", "scheduler": pool.scheduler, "pool": pool.name}
                told["before"] = await held.enter_async_context(
                    xen.changed(host, ledger, wanted, **place)
                )
        if options.dom0_vcpus is not None:
            many = {"vcpus": str(options.dom0_vcpus)}
            told["dom0_vcpus"] = await held.enter_async_context(
                xen.changed(host, ledger, many, what="dom0-vcpus")
            )
        if options.dom0 == "pinned":
            vcpus = await xen.pinned_cpus(host)
            cpus = kept_on(options, await _cpus(host)) if options.dom0_cpus else "0"
            told["dom0"] = await held.enter_async_context(
                xen.changed(host, ledger, dict.fromkeys(vcpus, cpus), what="pin")
            )
        if options.dom0_weight is not None:
            weight = {"weight": str(options.dom0_weight)}
            place = {"what": "dom0-weight", "scheduler": await _dom0s_scheduler(host)}
            told["dom0_weight"] = await held.enter_async_context(
                xen.changed(host, ledger, weight, **place)
            )
        yield told


async def _dom0s_scheduler(host: Host) -> str:
    """Return the scheduler of the pool that dom0 is in, which is always the first."""
    pools = xen_output.pools(await xen.asked(host, "cpupool-list"))
    scheduler = next((pool.scheduler for pool in pools if pool.name == DEFAULT_POOL), "")
    if scheduler not in CREDIT_SCHEDULERS:
        raise MachineFault(f"dom0's scheduler {scheduler or 'here'} has no weight that can be set")
    return scheduler


def kept_on(options: XenOptions, all_cpus: int) -> str:
    """Return the CPUs that dom0 is to be kept on, as Xen writes them.

    Raises:
        MachineFault: The host has not all of them.
    """
    if lacking := [cpu for cpu in options.dom0_cpus if cpu >= all_cpus]:
        raise MachineFault(
            f"`dom0-cpus`: the host has no CPU {lacking[0]}, only {all_cpus} CPUs",
            f"name CPUs from 0 to {all_cpus - 1}",
        )
    return listed(options.dom0_cpus, all_cpus)


def listed(cpus: Sequence[int], all_cpus: int) -> str:
    """Return CPUs as ``xl vcpu-list`` writes them: ``0-1,3``, or ``all``.

    Args:
        cpus: Their numbers.
        all_cpus: How many the host has.
    """
    wanted = sorted(set(cpus))
    if wanted == list(range(all_cpus)):
        return "all"
    runs: list[list[int]] = []
    for cpu in wanted:
        if runs and runs[-1][-1] == cpu - 1:
            runs[-1].append(cpu)
        else:
            runs.append([cpu])
    return ",".join(f"{run[0]}-{run[-1]}" if len(run) > 1 else str(run[0]) for run in runs)


async def _before(host: Host, ledger: Ledger, pool: xen_output.Pool) -> Mapping[str, str]:
    """Return the pool's parameters as they are when no machine of the run holds them."""
    now = await xen.scheduler_values(host, pool.scheduler, pool.name)
    for entry in ledger.open_entries():
        if entry.kind == "xen-setting" and entry.details.get("pool") == pool.name:
            return {**now, **entry.details["before"]}
    return now


async def told_by_xen(
    host: Host, options: XenOptions, spec: MachineSpec, id: int, held: Mapping[str, Any]
) -> dict[str, Any]:
    """Return what Xen says of a machine's scheduling, and prove that it is as asked.

    Args:
        host: The host.
        options: What was asked for.
        spec: Its pinning and role.
        id: The domain's number.
        held: What :func:`held_settings` yielded.

    Raises:
        MachineFault: A vCPU may run elsewhere than it was pinned to.
    """
    listed = xen_output.vcpus(await xen.asked(host, "vcpu-list", str(id)))
    own = {vcpu.number: vcpu.hard for vcpu in listed if vcpu.domain == id}
    if "all" in own.values() and await _cpus(host) == 1:
        # So Xen writes the one CPU that there is.
        own = {number: "0" if hard == "all" else hard for number, hard in own.items()}
    for number in range(spec.shape.vcpus if spec.cpus else 0):
        wanted = str(spec.cpus[number % len(spec.cpus)])
        if own.get(number) != wanted:
            raise MachineFault(
                f"{spec.name}: vCPU {number} was pinned to CPU {wanted}, but Xen lets it run on "
                f"{own.get(number, 'no CPU')}"
            )
    proof: dict[str, Any] = {**held, "vcpus": {str(key): value for key, value in own.items()}}
    if held["scheduler"] in CREDIT_SCHEDULERS:
        proof["now"] = await xen.scheduler_values(host, held["scheduler"], held["pool"])
    wanted_of_xen = {
        "weight": options.weight_of(spec.role),
        "cap_percent": options.cap_of(spec.role),
    }
    asked = {name: value for name, value in wanted_of_xen.items() if value is not None}
    if asked:
        found = await _weight_and_cap(host, held["scheduler"], id)
        if any(found.get(name) != value for name, value in asked.items()):
            raise MachineFault(f"{spec.name}: Xen was told {asked}, and says {found or 'nothing'}")
        proof |= asked
    return {"scheduling": {**proof, **await _granted(host, options, spec, id, held["scheduler"])}}


async def _granted(
    host: Host, options: XenOptions, spec: MachineSpec, id: int, scheduler: str
) -> dict[str, Any]:
    """Grant the machine what RTDS is to; it does not run yet."""
    if scheduler != rtds.SCHEDULER:
        return {}
    try:
        wanted = options.granted(spec.role, spec.shape.vcpus)
    except ValueError as error:
        raise MachineFault(f"{spec.name}: {error}", "ask for less, or for more vCPUs") from error
    if wanted is None:
        shown = rtds.granted(await xen.asked(host, "sched-rtds", "-d", str(id), "-v", "all"))
        return {"granted": next(iter(shown.values())).told()} if shown else {}
    return {"granted": await rtds.grant(host, id, spec.name, wanted)}


async def _weight_and_cap(host: Host, scheduler: str, id: int) -> dict[str, int]:
    """Return what Xen says of a domain; empty where its scheduler has no such thing."""
    if scheduler not in CREDIT_SCHEDULERS:
        return {}
    shown = await xen.asked(host, f"sched-{scheduler}", "-d", str(id))
    return xen_output.weight_and_cap(shown)


async def _cpus(host: Host) -> int:
    return int(xen_output.info(await xen.asked(host, "info")).get("nr_cpus", "0"))
