"""A VM in a pool: its record, devices, disturbances and figures.

Figures are Xen's run states of the VM from XenAPI's round-robin databases, one row per 5 s.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from tare.errors import MachineFault
from tare.events.hypervisor import HypervisorFigure, HypervisorFigures
from tare.platforms.contract import MachineSpec
from tare.platforms.vendors.machine import VirtualMachine, wrong_card
from tare.platforms.vendors.session import NoSuchObject
from tare.platforms.xenserver.options import XenserverOptions
from tare.platforms.xenserver.pool import NULL, OFF, OWNER, Pool

RUNNING = "Running"
PARAVIRTUAL = frozenset({"vif", "xen_netfront", "xen-netfront", "vbd", "xen_blkfront"})
EMULATED = frozenset({"8139cp", "8139too", "e1000"})


def vm_record(options: XenserverOptions, spec: MachineSpec, host: str) -> dict[str, Any]:
    """Return a VM's record for ``VM.create``: an HVM guest without a balloon.

    Args:
        options: The arm's options.
        spec: The specification of the machine.
        host: The host that it runs on.
    """
    memory, vcpus = str(spec.shape.memory), str(spec.shape.vcpus)
    empty = dict.fromkeys(
        ("PV_bootloader", "PV_kernel", "PV_ramdisk", "PV_args", "PV_bootloader_args"), ""
    )
    return {
        **empty,
        "PV_legacy_args": "",
        "PCI_bus": "",
        "recommendations": "",
        "name_label": spec.name,
        "name_description": "a machine of Tare's, removed when it was measured",
        "user_version": "1",
        "is_a_template": False,
        "affinity": host,
        # All four numbers are equal, so no memory can be ballooned.
        "memory_static_max": memory,
        "memory_dynamic_max": memory,
        "memory_dynamic_min": memory,
        "memory_static_min": memory,
        "VCPUs_params": options.vcpus_params(spec.role, spec.shape.vcpus, spec.cpus),
        "VCPUs_max": vcpus,
        "VCPUs_at_startup": vcpus,
        "actions_after_shutdown": "destroy",
        "actions_after_reboot": "destroy",
        "actions_after_crash": "destroy",
        "HVM_boot_policy": "BIOS order",
        # Boot from a CD first, then from the disk.
        "HVM_boot_params": {"order": "dc", "firmware": options.firmware},
        "platform": {
            "acpi": "1",
            "apic": "true",
            "pae": "true",
            "nx": "true",
            "nic_type": options.nic,
            "device-model": f"qemu-upstream-{'uefi' if options.firmware == 'uefi' else 'compat'}",
        },
        "other_config": {OWNER: spec.name},
    }


def differing(wanted: Mapping[str, Any], found: Mapping[str, Any]) -> str:
    """Describe how a VM differs from the request; empty if it does not."""
    for key in ("memory_static_max", "VCPUs_max", "memory_dynamic_min", "memory_dynamic_max"):
        if str(found.get(key)) != str(wanted[key]):
            return f"{key} was to be {wanted[key]}, but XenAPI reports {found.get(key)}"
    params = found.get("VCPUs_params", {})
    for key, value in wanted["VCPUs_params"].items():
        if params.get(key) != value:
            return f"{key} was to be {value}, but XenAPI reports {params.get(key)}"
    nic = found.get("platform", {}).get("nic_type")
    if nic != wanted["platform"]["nic_type"]:
        return f"nic_type was to be {wanted['platform']['nic_type']}, but XenAPI reports {nic}"
    return ""


def other_devices(devices: str, proof: Mapping[str, Any]) -> str:
    """Describe how a guest's drivers differ from the request; empty if they do not.

    Args:
        devices: ``paravirtual`` or ``emulated``, as requested.
        proof: The proof of the guest's agent.
    """
    wrong = wrong_card(proof, devices, PARAVIRTUAL, EMULATED)
    word = "with" if devices == "emulated" else "without"
    return wrong and f"{wrong}: boot an image {word} `xen_emul_unplug=never nopv` for its kernel"


class XenVm(VirtualMachine):
    """A VM that has been created.

    Args:
        pool: The pool.
        vm: The VM's reference.
        host: The reference of its host.
        wanted: The record that was requested.
        facts: The facts that the host reported about itself.
        devices: ``paravirtual`` or ``emulated``, as requested.
    """

    def __init__(
        self,
        pool: Pool,
        vm: str,
        host: str,
        wanted: Mapping[str, Any],
        facts: Mapping[str, Any],
        devices: str,
    ) -> None:
        self._pool = pool
        self._vm = vm
        self._host = host
        self._wanted = wanted
        self._facts = facts
        self._devices = devices
        self._domain: str | None = None
        self._uuid = ""
        self._address: str | None = None

    async def power_on(self) -> None:
        """Check that the VM is as requested, and start it."""
        record = await self._pool.record(self._vm)
        if why := differing(self._wanted, record):
            raise MachineFault(why)
        self._uuid = str(record["uuid"])
        await self._pool.power_on(self._vm, self._host)
        self._domain = str((await self._pool.record(self._vm))["domid"])
        self._address = str(await self._pool.ask(lambda api: api.host.get_address(self._host)))
        for name in STATES:
            # By default these data sources are not recorded (rrdp_cpu.ml).
            await self._pool.record_figure(self._vm, name)

    async def why_off(self) -> str:
        """Return why the VM does not run; empty while it runs."""
        try:
            state = (await self._pool.record(self._vm))["power_state"]
        except NoSuchObject:
            return "its VM is gone from the pool"
        return "" if state == RUNNING else f"XenAPI reports that its VM is {state}"

    async def power_off(self) -> None:
        """Switch the VM off at once; do nothing if it is off or gone."""
        try:
            if (await self._pool.record(self._vm))["power_state"] != OFF:
                await self._pool.power_off(self._vm)
        except NoSuchObject:
            return

    async def applied(self) -> Mapping[str, Any]:
        """Return the VM's properties as XenAPI reports them."""
        record = await self._pool.record(self._vm)
        params = dict(record["VCPUs_params"])
        scheduling: dict[str, Any] = {
            key: params[key] for key in ("weight", "cap") if key in params
        }
        if mask := params.get("mask"):
            scheduling["vcpus"] = {str(key): cpus for key, cpus in enumerate(mask.split(";"))}
        shown = {"hypervisor": {**self._facts, "domain type": record.get("domain_type", "hvm")}}
        return {**shown, "scheduling": scheduling} if scheduling else shown

    def mismatch(self, proof: Mapping[str, Any]) -> str:
        """Describe how the guest's drivers differ from the request."""
        return other_devices(self._devices, proof)

    async def cost(self) -> dict[str, float]:
        """Return the memory that the VM uses; for CPU time XenAPI has only averages."""
        record = await self._pool.record(self._vm)
        metrics = record["metrics"]
        if metrics == NULL:
            return {}
        actual = await self._pool.ask(lambda api: api.VM_metrics.get_memory_actual(metrics))
        return {"rss_bytes": float(actual)} if int(actual) > 0 else {}

    async def disturbances(self) -> tuple[str, ...]:
        """Return the events that disturbed it: migration, snapshots, operations, another domain."""
        try:
            record = await self._pool.record(self._vm)
        except NoSuchObject:
            return ("it left the pool",)
        found = [f"snapshot {snapshot}" for snapshot in record.get("snapshots", ())]
        found += [f"{what} under way" for what in record.get("current_operations", {}).values()]
        if record["resident_on"] not in (self._host, NULL):
            found.append(f"migrated to {record['resident_on']}")
        if self._domain is not None and str(record["domid"]) != self._domain:
            found.append(f"it is another domain: {record['domid']}")
        for edge in ("memory_dynamic_min", "memory_dynamic_max"):
            if str(record[edge]) != self._wanted[edge]:
                found.append(f"ballooned: {edge} is {record[edge]}")
        return tuple(found)

    async def figures(self, begun: float, ended: float) -> HypervisorFigures | None:
        """Return Xen's run states, in intervals of 5 s, that are entirely within a period."""
        if ended - begun < 2 * STEP_S:
            return None
        asked = {"start": str(int(begun) - 1), "cf": "AVERAGE", "interval": str(STEP_S)}
        about = {"host": "false", "uuid": self._uuid, "vm_uuid": self._uuid, "json": "true"}
        try:
            answer = await self._pool.session.get_json(
                self._address, "/rrd_updates", {**asked, **about}
            )
            return rows_within(answer, self._uuid, begun, ended)
        except (MachineFault, ValueError, LookupError, TypeError):
            # The cell is valid even without figures.
            return None


STEP_S = 5
SOURCE = "Xen's run states by XenAPI (rrd_updates), averages of all the VM's vCPUs together"
STATES = {
    "runstate_fullrun": "all vCPUs ran",
    "runstate_full_contention": "all vCPUs waited for a CPU",
    "runstate_concurrency_hazard": "some vCPUs ran while some waited for a CPU",
    "runstate_blocked": "all vCPUs were idle",
    "runstate_partial_run": "some vCPUs ran, the others were idle",
    "runstate_partial_contention": "some vCPUs waited for a CPU, the others were idle",
}
"""The run states and their meaning: shares of the time of a whole VM (xen-api's rrdp_cpu.ml)."""


def rows_within(answer: Any, uuid: str, begun: float, ended: float) -> HypervisorFigures | None:
    """Return the rows that are entirely within a period; None if there are none.

    A row's time is one end of its 5 s, so the period must contain the 5 s on both sides of it.

    Args:
        answer: The JSON of ``rrd_updates``.
        uuid: The VM's UUID.
        begun: The period's start (Unix time in seconds).
        ended: The period's end, in the same unit.

    Raises:
        ValueError, LookupError, TypeError: The answer has another form.
    """
    meta = answer["meta"]
    step = int(meta["step"])
    if step != STEP_S:
        # A coarser archive has averages over longer intervals.
        return None
    columns: dict[str, int] = {}
    for number, name in enumerate(meta["legend"]):
        how, kind, whose, source = str(name).split(":", 3)
        if (how, kind, whose) == ("AVERAGE", "vm", uuid) and source in STATES:
            columns[source] = number
    rows = sorted(
        (
            (float(row["t"]), row["values"])
            for row in answer["data"]
            if begun <= float(row["t"]) - step and float(row["t"]) + step <= ended
        ),
        key=lambda row: row[0],
    )
    figures = []
    for state, words in STATES.items():
        if state not in columns:
            continue
        values = [(at, float(row[columns[state]])) for at, row in rows]
        # Unknown values are NaN, and are left out.
        if known := [(at, value) for at, value in values if math.isfinite(value)]:
            ends, parts = zip(*known, strict=True)
            figures.append(HypervisorFigure(state.replace("_", "-"), words, "1", parts, ends))
    return HypervisorFigures(SOURCE, step, "interval", tuple(figures)) if figures else None
