"""A machine's scheduling under Xen: apply it, verify it, and hold shared settings meanwhile."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

from tare.errors import MachineFault
from tare.hosts import Host, Ledger
from tare.hosts.ledger.settings import value_before
from tare.platforms.contract import MachineSpec, changed
from tare.platforms.xen import output as xen_output
from tare.platforms.xen import rtds
from tare.platforms.xen import toolstack as xen
from tare.platforms.xen.options import CREDIT_SCHEDULERS, DEFAULT_POOL, XenOptions
from tare.platforms.xen.settings import (
    Dom0Pinning,
    Dom0Vcpus,
    Dom0Weight,
    RtdsGrant,
    SchedulerParameters,
    XenSetting,
    pinned_cpus,
    scheduler_parameters,
    weight_and_cap,
)

LEAST_RATELIMIT_US = 100


async def pool_of(host: Host, options: XenOptions) -> xen_output.Pool | None:
    """Return the CPU pool that the options name; None if Xen has no pool of that name."""
    pools = xen_output.pools(await xen.asked(host, "cpupool-list"))
    return next((pool for pool in pools if pool.name == options.pool), None)


def wanted_parameters(options: XenOptions, now: Mapping[str, str]) -> dict[str, str]:
    """Return the scheduler parameters to set, in microseconds as text; empty to change none.

    Args:
        options: The requested options.
        now: Their present values: ``tslice`` and ``ratelimit`` as far as the scheduler has them.
    """
    wanted: dict[str, str] = {}
    if options.slice_ms is not None:
        wanted["tslice"] = str(options.slice_ms * 1000)
    if options.ratelimit_us is not None:
        wanted["ratelimit"] = str(options.ratelimit_us)
    elif options.slice_ms is not None:
        half = max(LEAST_RATELIMIT_US, options.slice_ms * 500)
        # Xen refuses a slice shorter than the limit, because the limit would determine the slice.
        if int(now.get("ratelimit", "0")) > half:
            wanted["ratelimit"] = str(half)
    return wanted


@asynccontextmanager
async def held_settings(
    host: Host, ledger: Ledger, options: XenOptions
) -> AsyncIterator[Mapping[str, Any]]:
    """Hold the settings of Xen and dom0 that a machine asks for; restore them at the end.

    Yields:
        ``scheduler`` and ``pool``. If they were changed, also the former values: ``before`` (the
        pool's parameters, in microseconds), ``dom0_vcpus``, ``dom0`` (the CPUs of its vCPUs) and
        ``dom0_weight``.

    Raises:
        MachineFault: Xen refuses, with its message, or does not take a setting.
    """
    async with AsyncExitStack() as held:

        async def hold(setting: XenSetting, values: dict[str, str]) -> dict[str, str]:
            return await held.enter_async_context(changed(ledger, setting, values))

        pool = await pool_of(host, options)
        if pool is None:
            raise MachineFault(f"Xen has no CPU pool {options.pool}", "see `xl cpupool-list`")
        found: dict[str, Any] = {"scheduler": pool.scheduler, "pool": pool.name}
        asks = options.slice_ms is not None or options.ratelimit is not None
        if asks and pool.scheduler in CREDIT_SCHEDULERS:
            now = await _parameters_before(host, ledger, pool)
            if wanted := wanted_parameters(options, now):
                parameters = SchedulerParameters(host, pool.scheduler, pool.name, wanted)
                found["before"] = await hold(parameters, wanted)
        if options.dom0_vcpus is not None:
            vcpus = {"vcpus": str(options.dom0_vcpus)}
            found["dom0_vcpus"] = await hold(Dom0Vcpus(host), vcpus)
        if options.dom0 == "pinned":
            cpus = kept_on(options, await _cpus(host))
            pins = dict.fromkeys(await pinned_cpus(host, 0), cpus)
            found["dom0"] = await hold(Dom0Pinning(host, pins), pins)
        if options.dom0_weight is not None:
            dom0_weight = Dom0Weight(host, await _dom0s_scheduler(host))
            found["dom0_weight"] = await hold(dom0_weight, {"weight": str(options.dom0_weight)})
        yield found


async def _dom0s_scheduler(host: Host) -> str:
    """Return the scheduler of dom0's pool, which is always the first one."""
    pools = xen_output.pools(await xen.asked(host, "cpupool-list"))
    scheduler = next((pool.scheduler for pool in pools if pool.name == DEFAULT_POOL), "")
    if scheduler not in CREDIT_SCHEDULERS:
        raise MachineFault(f"dom0's scheduler {scheduler or 'here'} has no weight that can be set")
    return scheduler


def kept_on(options: XenOptions, all_cpus: int) -> str:
    """Return the CPUs to which dom0 is to be restricted, as Xen writes them.

    Raises:
        MachineFault: The host lacks one of them.
    """
    if not options.dom0_cpus:
        return listed((0,), all_cpus)
    if lacking := [cpu for cpu in options.dom0_cpus if cpu >= all_cpus]:
        raise MachineFault(
            f"`dom0-cpus`: the host has no CPU {lacking[0]}, only {all_cpus} CPUs",
            f"name CPUs from 0 to {all_cpus - 1}",
        )
    return listed(options.dom0_cpus, all_cpus)


def listed(cpus: Sequence[int], all_cpus: int) -> str:
    """Format CPUs as ``xl vcpu-list`` prints them: ``0-1,3``, or ``all``.

    Args:
        cpus: The CPU numbers.
        all_cpus: The host's number of CPUs.
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


async def _parameters_before(
    host: Host, ledger: Ledger, pool: xen_output.Pool
) -> Mapping[str, str]:
    """Return the pool's parameters before any machine of the run changed them."""
    now = await scheduler_parameters(host, pool.scheduler, pool.name)
    parameters = SchedulerParameters(host, pool.scheduler, pool.name, now)
    before: dict[str, str] = value_before(ledger, parameters, {})
    return {**now, **before}


async def apply_and_verify_scheduling(
    host: Host, options: XenOptions, spec: MachineSpec, id: int, held: Mapping[str, Any]
) -> dict[str, Any]:
    """Grant a paused domain its budget, and verify all of its scheduling.

    Its guest file has already set pinning, weight and cap. RTDS's budget is set here.

    Args:
        host: The host.
        options: The requested options.
        spec: Its pinning and role.
        id: The domain's number.
        held: The value that :func:`held_settings` yielded.

    Returns:
        Xen's report on it, for the record.

    Raises:
        MachineFault: A setting differs from the request.
    """
    scheduler = held["scheduler"]
    record: dict[str, Any] = {**held, "vcpus": await _verified_pinning(host, spec, id)}
    if scheduler in CREDIT_SCHEDULERS:
        record["now"] = await scheduler_parameters(host, scheduler, held["pool"])
    record |= await _verified_share(host, options, spec, id, scheduler)
    if scheduler == rtds.SCHEDULER:
        record |= await _granted(host, options, spec, id)
    return {"scheduling": record}


async def _verified_pinning(host: Host, spec: MachineSpec, id: int) -> dict[str, str]:
    """Return the CPUs of each of a domain's vCPUs; raises MachineFault if a pin is missing."""
    pinned = await pinned_cpus(host, id)
    if "all" in pinned.values() and await _cpus(host) == 1:
        # On a computer with one CPU, Xen writes `all` for it.
        pinned = {number: "0" if cpus == "all" else cpus for number, cpus in pinned.items()}
    for number in range(spec.shape.vcpus if spec.cpus else 0):
        wanted = str(spec.cpus[number % len(spec.cpus)])
        if pinned.get(str(number)) != wanted:
            raise MachineFault(
                f"{spec.name}: vCPU {number} was pinned to CPU {wanted}, but Xen lets it run on "
                f"{pinned.get(str(number), 'no CPU')}"
            )
    return pinned


async def _verified_share(
    host: Host, options: XenOptions, spec: MachineSpec, id: int, scheduler: str
) -> dict[str, int]:
    """Return weight and cap of a domain if they were requested; raises MachineFault."""
    wanted = {"weight": options.weight_of(spec.role), "cap_percent": options.cap_of(spec.role)}
    asked = {name: value for name, value in wanted.items() if value is not None}
    if asked:
        has = scheduler in CREDIT_SCHEDULERS
        found = await weight_and_cap(host, scheduler, id) if has else {}
        if any(found.get(name) != value for name, value in asked.items()):
            raise MachineFault(
                f"{spec.name}: Xen was set to {asked}, and reports {found or 'nothing'}"
            )
    return asked


async def _granted(
    host: Host, options: XenOptions, spec: MachineSpec, id: int
) -> dict[str, dict[str, int | bool]]:
    """Apply RTDS's grant to a paused domain, and return it for the record."""
    try:
        wanted = options.granted(spec.role, spec.shape.vcpus)
    except ValueError as error:
        raise MachineFault(f"{spec.name}: {error}", "ask for less, or for more vCPUs") from error
    grant = RtdsGrant(host, id, spec.name)
    if wanted is None:
        found = await grant.read()
        return {"granted": next(iter(found.values())).record} if found else {}
    await grant.apply(dict.fromkeys(range(spec.shape.vcpus), wanted))
    return {"granted": wanted.record}


async def _cpus(host: Host) -> int:
    return int(xen_output.info(await xen.asked(host, "info")).get("nr_cpus", "0"))
