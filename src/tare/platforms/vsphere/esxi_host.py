"""Facts about an ESXi host that may explain a result, and whether the host is up."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tare.platforms.contract import Carrier, Presence
from tare.platforms.vsphere.inventory import properties
from tare.study.planning.host_cpus import HostCpus

UNKNOWN = "not reported"


def proof_of(client: Any, host: Any, vim: Any) -> dict[str, str]:
    """Return the facts about the hypervisor that the environment proof records, by name.

    Args:
        client: The service instance.
        host: The ESXi host.
        vim: The API's types.
    """
    about = client.content.about
    product = host.config.product if host.config is not None else about
    parent = host.parent
    found = {
        "product": product.fullName,
        "managed by": about.fullName,
        "licence": _licence(client),
        "power policy": _power(host),
        "hyper-threading": _threads(host),
        "scheduler": _scheduler(host),
        "processors": _processors(host),
        "DRS": UNKNOWN,
        "HA": UNKNOWN,
    }
    if isinstance(parent, vim.ClusterComputeResource):
        configuration = parent.configurationEx
        drs, das = configuration.drsConfig, configuration.dasConfig
        found["DRS"] = f"on, {drs.defaultVmBehavior}" if drs.enabled else "off"
        found["HA"] = "on" if das.enabled else "off"
    else:
        found["DRS"] = found["HA"] = "none: the host is in no cluster"
    return found


def threads_of(host: Any) -> int:
    """Return the number of logical processors of an ESXi host."""
    return int(host.hardware.cpuInfo.numCpuThreads)


def carrier_of(host: Any, processors: Sequence[int] = ()) -> Carrier:
    """Return an ESXi host's CPUs and memory (``HostSystem.hardware``).

    Logical processors of one core have consecutive numbers: 0 and 1 are on the first core
    ("vSphere Resource Management", Hyperthreading and ESXi Hosts).

    Args:
        host: The ESXi host.
        processors: The logical processors that machines are to use; empty: all.
    """
    hardware, threads = host.hardware, threads_of(host)
    cores = int(hardware.cpuInfo.numCpuCores or 0)
    each = threads // cores if cores and threads % cores == 0 else 1
    nodes = {
        int(cpu): int(node.typeId)
        for node in (hardware.numaInfo.numaNode if hardware.numaInfo else None) or ()
        for cpu in node.cpuID or ()
        if int(cpu) < threads
    }
    packages = {
        int(cpu): min(int(other) for other in package.threadId)
        for package in hardware.cpuPkg or ()
        for cpu in package.threadId or ()
        if int(cpu) < threads
    }
    size = int(hardware.memorySize)
    used = host.summary.quickStats.overallMemoryUsage if host.summary is not None else None
    cpus = HostCpus(
        tuple(range(threads)),
        siblings={
            cpu: tuple(range(cpu // each * each, cpu // each * each + each))
            for cpu in range(threads)
        },
        nodes=nodes,
        packages=packages,
        measured=tuple(sorted(set(processors))),
    )
    free = None if used is None else max(0, size - (int(used) << 20))
    return Carrier(str(host.name), cpus, size, free, int(hardware.cpuInfo.numCpuPackages or 0))


def is_moved_by_drs(host: Any, vim: Any) -> bool:
    """Check whether DRS may move a host's virtual machines; vSphere hides affinity if so."""
    parent = host.parent
    if not isinstance(parent, vim.ClusterComputeResource):
        return False
    return bool(parent.configurationEx.drsConfig.enabled)


def _licence(client: Any) -> str:
    manager = client.content.licenseManager
    # Return only the names, never the licence key.
    names = sorted({licence.name for licence in (manager.licenses if manager else ())})
    return ", ".join(names) or UNKNOWN


def _power(host: Any) -> str:
    system = host.config.powerSystemInfo if host.config is not None else None
    return str(system.currentPolicy.shortName) if system is not None else UNKNOWN


def _threads(host: Any) -> str:
    info = host.config.hyperThread if host.config is not None else None
    if info is None:
        return UNKNOWN
    return "on" if info.active else "off"


def _processors(host: Any) -> str:
    info = host.hardware.cpuInfo
    return f"{info.numCpuPackages} packages, {info.numCpuCores} cores, {info.numCpuThreads} threads"


def _scheduler(host: Any) -> str:
    """Return how the scheduler treats hyper-threads (VMware knowledge base, article 55806)."""
    options = host.config.option if host.config is not None else ()
    found = {option.key: str(option.value).lower() for option in options or ()}
    aware = found.get("VMkernel.Boot.hyperthreadingMitigation")
    if aware is None:
        return UNKNOWN
    if aware != "true":
        return "default"
    within = found.get("VMkernel.Boot.hyperthreadingMitigationIntraVM", "true")
    return f"side-channel aware, version {1 if within == 'true' else 2}"


CONNECTION, POWER = "runtime.connectionState", "runtime.powerState"
MAINTENANCE, SINCE = "runtime.inMaintenanceMode", "summary.runtime.bootTime"
CONNECTED, ON = "connected", "poweredOn"
STATES = {
    "disconnected": "is disconnected from vCenter",
    "notResponding": "does not answer vCenter",
    "standBy": "is in standby",
    "poweredOff": "is off",
}
"""The states of a host that is not up (HostSystemConnectionState, HostSystemPowerState)."""


def presence_of(client: Any, types: Any, host: Any) -> Presence:
    """Return whether a host is up and accepts machines, and since when it runs.

    Args:
        client: The service instance.
        types: PyVmomi's module.
        host: The ESXi host.
    """
    found = properties(client, types, host, ("name", CONNECTION, POWER, MAINTENANCE, SINCE))
    name, since = found["name"], found.get(SINCE)
    for path, well in ((CONNECTION, CONNECTED), (POWER, ON)):
        state = str(found.get(path, well))
        if state != well:
            return Presence(absent=f"{name} {STATES.get(state, f'is {state}')}")
    if found.get(MAINTENANCE):
        return Presence(absent=f"{name} is in maintenance mode, and starts no machine")
    return Presence(since=None if since is None else since.timestamp())
