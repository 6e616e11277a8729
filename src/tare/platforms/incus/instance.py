"""One instance of Incus or LXD: the request for it, and the server's report on it."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from typing import Any

from tare.errors import InputError, MachineFault
from tare.hosts.cpusets import cpu_list
from tare.platforms.contract import MachineSpec
from tare.platforms.incus.options import IncusOptions
from tare.platforms.incus.parcels import AGENT_INSIDE, CONFIGURATION
from tare.platforms.incus.server import KINDS, Facts, Server
from tare.platforms.vendors.isolated_network import IsolatedNic
from tare.platforms.vendors.machine import VirtualMachine
from tare.platforms.vendors.own_disk import Bus
from tare.platforms.vendors.session import NoSuchObject

RUNNING = frozenset({"Running", "Starting", "Stopping", "Frozen", "Freezing", "Thawed", "Ready"})
"""States in which an instance runs, is about to run, or is about to end."""
MEMORY = "limits.memory"
AT_WORK = frozenset({"Running", "Ready"})
"""States in which nothing keeps an instance from running."""
CALLBACK = "127.0.0.1:4460"
"""The address in a container at which its agent reaches the server's proxy."""
GUEST_API = {"Incus": "security.guestapi"}
"""Key that controls the API inside instances, by server; others use ``security.devlxd``."""
VOLUME, OWN_VOLUME = "tare-cfg", "tare-disk"
BUS = Bus("virtio-scsi", frozenset({"virtio_scsi"}))
"""The bus on which servers attach disks of VMs by default."""
_EMULATED = {"raw.qemu": "-cpu max", "raw.qemu.conf": '[machine]\naccel = "tcg"\n'}


def project_of(machine: str) -> str:
    """Return the name of a machine's own project; it is short, because socket paths contain it."""
    return f"tare-{hashlib.sha256(machine.encode()).hexdigest()[:12]}"


def pins_of(spec: MachineSpec) -> tuple[int, ...]:
    """Return all host CPUs to which a machine's vCPUs are pinned, ascending."""
    vcpus = range(spec.shape.vcpus)
    return tuple(sorted({spec.cpus[number % len(spec.cpus)] for number in vcpus}))


def limits_of(options: IncusOptions, spec: MachineSpec) -> dict[str, str]:
    """Return the limits of an instance, in the form of its configuration.

    Raises:
        InputError: Two vCPUs of a VM would share a host CPU, which the server does not support.
    """
    pins = pins_of(spec) if spec.cpus else ()
    if pins and not options.is_container and len(pins) != spec.shape.vcpus:
        raise InputError(
            f"Incus and LXD give each vCPU of a VM a CPU of its own: {spec.shape.vcpus} vCPUs are "
            f"not pinned to {len(pins)} CPU(s)",
            "give the shape fewer vCPUs, or the scenario more CPUs",
        )
    # A single number is a count of CPUs; a range or list names them.
    which = f"{pins[0]}-{pins[0]}" if len(pins) == 1 else ",".join(map(str, pins))
    limits = {
        "limits.cpu": which if pins else str(spec.shape.vcpus),
        "limits.memory": str(spec.shape.memory),
    }
    if options.hugepages:
        limits["limits.memory.hugepages"] = "true"
    if options.is_container:
        limits["limits.memory.swap"] = "false"
    scheduled = options.scheduling_of(spec.role)
    if scheduled.cap is not None:
        period_ms = round(scheduled.period_s * 1000)
        limits["limits.cpu.allowance"] = f"{round(scheduled.cap * period_ms)}ms/{period_ms}ms"
    elif scheduled.weight is not None:
        # In percent of the kernel's default weight (``ParseCPU``, lxd/cgroup/cgroup_cpu.go).
        limits["limits.cpu.allowance"] = f"{scheduled.weight}%"
    return limits


def container(
    options: IncusOptions,
    spec: MachineSpec,
    pool: str,
    image: str,
    callback: str,
    *,
    product: str = "",
    isolated: IsolatedNic | None = None,
) -> dict[str, Any]:
    """Return the request for a container.

    Args:
        options: The arm's options.
        spec: The machine.
        pool: The storage pool of its root.
        image: The fingerprint of its image.
        callback: The address to which the server's proxy forwards its agent's connection.
        product: The server's product, such as ``Incus``.
        isolated: Its only network interface; None: none.
    """
    config = {
        **limits_of(options, spec),
        "boot.autostart": "false",
        GUEST_API.get(product, "security.devlxd"): "false",
        "security.privileged": str(options.privileged).lower(),
        "raw.lxc": f"lxc.init.cmd = {AGENT_INSIDE} dial {CONFIGURATION}",
    }
    devices = {
        "root": {"type": "disk", "path": "/", "pool": pool},
        "tare": {
            "type": "proxy",
            "bind": "instance",
            "listen": f"tcp:{CALLBACK}",
            "connect": f"tcp:{callback}",
        },
    }
    if isolated is not None:
        devices["eth0"] = {**_nic_device(isolated), "name": "eth0"}
    return _asked(options, spec, image, config, devices)


def virtual_machine(
    options: IncusOptions,
    spec: MachineSpec,
    pool: str,
    image: str,
    nic: Mapping[str, str],
    *,
    own: bool = False,
    isolated: IsolatedNic | None = None,
) -> dict[str, Any]:
    """Return the request for a virtual machine.

    Args:
        options: The arm's options.
        spec: The machine.
        pool: The storage pool of its disk, and of the disk with the agent's configuration.
        image: The fingerprint of its image.
        nic: Its network interface, as a device of the configuration.
        own: Whether it has its own empty disk, which must be made before.
        isolated: Its second network interface; None: none.
    """
    config = {
        **limits_of(options, spec),
        "boot.autostart": "false",
        "security.secureboot": str(options.secure_boot).lower(),
        **(_EMULATED if options.accelerator == "tcg" else {}),
    }
    devices = {
        "root": {"type": "disk", "path": "/", "pool": pool, "boot.priority": "10"},
        "tare": {"type": "disk", "pool": pool, "source": VOLUME},
        "eth0": dict(nic),
    }
    if own:
        devices["disk"] = {"type": "disk", "pool": pool, "source": OWN_VOLUME}
    if isolated is not None:
        devices["eth1"] = _nic_device(isolated)
    return _asked(options, spec, image, config, devices)


def _nic_device(isolated: IsolatedNic) -> dict[str, str]:
    # The limit applies to both directions.
    limit = {} if isolated.rate is None else {"limits.max": f"{isolated.rate:.0f}bit"}
    return {"type": "nic", "network": isolated.network, "hwaddr": isolated.mac, **limit}


def _asked(
    options: IncusOptions,
    spec: MachineSpec,
    image: str,
    config: Mapping[str, str],
    devices: Mapping[str, Any],
) -> dict[str, Any]:
    own = dict(config)
    for key, value in options.extra_config.items():
        between = " " if key == "raw.qemu" else "\n"
        own[key] = f"{own[key]}{between}{value}" if key in own else value
    return {
        "name": spec.name,
        "type": KINDS[options.type],
        "source": {"type": "image", "fingerprint": image},
        "profiles": [],
        "config": own,
        "devices": devices,
    }


def differing(wanted: Mapping[str, Any], found: Mapping[str, Any]) -> str:
    """Return how an instance differs from the request, in words; empty if it does not.

    Args:
        wanted: The instance, as requested.
        found: The instance, as the server reports it.
    """
    for part in ("config", "devices"):
        there = found.get(f"expanded_{part}")
        there = there if isinstance(there, Mapping) else {}
        for key, value in wanted[part].items():
            if there.get(key) != value:
                reported = there.get(key, "nothing")
                return f"{key} was to be {value}, but the server reports {reported}"
    return ""


def cost_in(state: Mapping[str, Any]) -> dict[str, float]:
    """Return the costs of an instance, ``cpu_s`` and ``rss_bytes``, if its state reports them.

    Args:
        state: The server's report. For VMs it has no counts, unless the server's agent runs inside.
    """
    found = {}
    for part, key, name, unit in (
        ("cpu", "usage", "cpu_s", 1e-9),
        ("memory", "usage", "rss_bytes", 1.0),
    ):
        counts = state.get(part)
        value = counts.get(key) if isinstance(counts, Mapping) else None
        if isinstance(value, int) and not isinstance(value, bool) and value > 0:
            found[name] = value * unit
    return found


def list_disturbances(
    found: Mapping[str, Any], state: Mapping[str, Any], wanted: Mapping[str, Any], home: str
) -> Iterator[str]:
    """Yield the disturbances of an instance, except snapshots and backups, one phrase each.

    Args:
        found: The instance, as the server reports it.
        state: Its state, as the server reports it.
        wanted: The instance, as requested.
        home: The cluster member on which it was started; empty: it is not known.
    """
    location = str(found.get("location") or "")
    if home and location != home:
        yield f"migrated to {location or 'nowhere'}"
    status = str(state.get("status") or "")
    if status and status not in AT_WORK:
        yield f"it was {status.lower()}"
    config = found.get("expanded_config")
    limit = config.get(MEMORY) if isinstance(config, Mapping) else None
    if limit != wanted["config"].get(MEMORY):
        yield f"its memory was changed: {MEMORY} is {limit or 'not set'}"
    memory = state.get("memory")
    swap = memory.get("swap_usage") if isinstance(memory, Mapping) else None
    # For VMs an agent inside would report the guest's own swap; Tare's guests have none.
    if isinstance(swap, int) and swap > 0:
        yield f"swapped: {swap} bytes of it"


class IncusInstance(VirtualMachine):
    """An instance that was made.

    Args:
        server: The server that runs it.
        spec: The specification of the machine.
        wanted: The request that the server got.
        facts: The server's facts about itself.
    """

    def __init__(
        self,
        server: Server,
        spec: MachineSpec,
        wanted: Mapping[str, Any],
        facts: Facts,
    ) -> None:
        self._server = server
        self._spec = spec
        self._wanted = wanted
        self._facts = facts
        self._project = project_of(spec.name)
        self._pid: int | None = None
        self._home = ""
        self._is_container = wanted["type"] == KINDS["container"]

    async def power_on(self) -> None:
        """Start it, after verifying that it matches the request."""
        found = await self._server.instance(self._project, self._spec.name)
        if why := differing(self._wanted, found):
            raise MachineFault(why)
        await self._server.start(self._project, self._spec.name)

    async def _state(self) -> Mapping[str, Any]:
        return await self._server.state(self._project, self._spec.name)

    async def why_off(self) -> str:
        """Return why it does not run; empty if it runs."""
        try:
            status = str((await self._state()).get("status"))
        except NoSuchObject:
            return f"it is gone from {self._server.name}"
        return "" if status in RUNNING else f"{self._facts.product} says that it is {status}"

    async def power_off(self) -> None:
        """Stop it at once."""
        await self._server.stop(self._project, self._spec.name)

    async def applied(self) -> Mapping[str, Any]:
        """Return the instance's hypervisor and scheduling, as the server reports them."""
        found = await self._server.instance(self._project, self._spec.name)
        self._home = str(found.get("location") or "")
        self._pid = _pid(await self._state())
        config = found.get("expanded_config") or {}
        scheduling: dict[str, Any] = {
            key: config[key] for key in ("limits.cpu", "limits.cpu.allowance") if key in config
        }
        if self._spec.cpus:
            words = ",".join(map(str, pins_of(self._spec)))
            vcpus = map(str, range(self._spec.shape.vcpus))
            scheduling["vcpus"] = dict.fromkeys(vcpus, words)
        driver = "lxc" if self._is_container else "qemu"
        hypervisor = {
            "product": self._facts.product,
            "build": self._facts.version,
            driver: self._facts.drivers.get(driver, ""),
            "kernel": self._facts.kernel,
            "scheduler": "Linux",
            "hyper-threading": self._facts.hyper_threading,
            "power policy": self._facts.power_policy,
        }
        hypervisor = {name: word for name, word in hypervisor.items() if word}
        return {"hypervisor": hypervisor, "scheduling": scheduling}

    def mismatch(self, proof: Mapping[str, Any]) -> str:
        """Return how a container's CPUs differ from the requested ones; empty if they do not."""
        if not self._is_container or not self._spec.cpus:
            return ""
        reported = str(proof.get("confinement", {}).get("cpus_allowed") or "")
        wanted = pins_of(self._spec)
        try:
            allowed = cpu_list(reported)
        except ValueError:
            allowed = ()
        if allowed == wanted:
            return ""
        return (
            f"it was to be pinned to CPUs {list(wanted)}, but its kernel reports "
            f"{reported or 'nothing'}"
        )

    async def cost(self) -> dict[str, float]:
        """Return the costs that the server's host has counted for it."""
        return cost_in(await self._state())

    async def disturbances(self) -> tuple[str, ...]:
        """Return its disturbances: snapshots, backups, a migration, a new limit or a restart."""
        try:
            events = [*await self._server.list_copies(self._project, self._spec.name)]
            found = await self._server.instance(self._project, self._spec.name)
            state = await self._state()
        except NoSuchObject:
            return (f"it left {self._server.name}",)
        events += list_disturbances(found, state, self._wanted, self._home)
        pid = _pid(state)
        if self._pid is not None and pid != self._pid:
            events.append(f"it was restarted: process {pid}")
        return tuple(events)


def _pid(state: Mapping[str, Any]) -> int | None:
    pid = state.get("pid")
    return pid if isinstance(pid, int) and pid > 0 else None
