"""A VM on a Hyper-V host: its requested and reported properties, and its disturbances."""

from __future__ import annotations

import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tare.errors import MachineFault
from tare.events.hypervisor import HypervisorFigures
from tare.platforms.contract import MachineSpec
from tare.platforms.hyperv.command import PsObject, chosen, cmdlet
from tare.platforms.hyperv.cpu_groups import group_of
from tare.platforms.hyperv.figures import Reading, counters_of, reading, waits
from tare.platforms.hyperv.network import adapter_address
from tare.platforms.hyperv.options import HypervOptions
from tare.platforms.hyperv.server import RUNNING, Server
from tare.platforms.vendors.isolated_network import IsolatedNic
from tare.platforms.vendors.machine import VirtualMachine, wrong_card
from tare.platforms.vendors.session import NoSuchObject

PARAVIRTUAL = frozenset({"hv_netvsc"})
EMULATED = frozenset({"tulip", "de2104x", "de4x5"})
"""Linux's drivers for the legacy card, which is a DEC 21140."""
COMING_UP = ("Starting", "Resuming", "Resetting", "Reset")
ORDINARY = frozenset({"", "Ok"})
"""The status values of a VM with no operation under way."""
ISOLATED = "the card on the isolated network"
"""The key for the card on the isolated network; its value is the card's address and switch."""
KEPT = 4
"""The number of readings that are kept: those around the cell, and a few more."""
JITTER_S = 5.0
"""The largest difference, in seconds, between start times from the uptimes of one start."""


def wanted_of(
    options: HypervOptions, spec: MachineSpec, switch: str, isolated: IsolatedNic | None = None
) -> dict[str, Any]:
    """Return the properties that a VM must have, by Hyper-V's names.

    Args:
        options: The arm's options.
        spec: The specification of the machine.
        switch: The switch that its agent dials back over.
        isolated: Its card on an isolated network; None: it has no such card.
    """
    processor = options.processor(spec.role, spec.shape.vcpus)
    return {
        "Generation": options.generation,
        "MemoryStartup": spec.shape.memory,
        "DynamicMemoryEnabled": False,
        "CheckpointType": "Disabled",
        "ProcessorCount": processor.pop("Count"),
        **processor,
        "IsLegacy": options.devices == "emulated",
        "SwitchName": switch,
        **({} if isolated is None else {ISOLATED: card_words(isolated.network, isolated.mac)}),
    }


def card_words(switch: str, mac: str) -> str:
    """Format a network card's MAC address and its switch."""
    return f"{adapter_address(mac)} on {switch}"


def differing(wanted: Mapping[str, Any], found: Mapping[str, str]) -> str:
    """Describe how a VM differs from the request; empty if it does not.

    Args:
        wanted: The requested properties, as :func:`wanted_of` returns them.
        found: The same properties as the host reports them, as text.
    """
    for name, value in wanted.items():
        if found.get(name, "") != str(value):
            return f"{name} was to be {value}, but Hyper-V reports {found.get(name) or 'nothing'}"
    return ""


def other_devices(devices: str, proof: Mapping[str, Any]) -> str:
    """Describe how a guest's drivers differ from the request; see :func:`wrong_card`."""
    return wrong_card(proof, devices, PARAVIRTUAL, EMULATED)


@dataclass(frozen=True)
class CpuGroupConfinement:
    """The CPU group that confines a VM.

    Args:
        group: The id of the group.
        processors: The host's processors that belong to the group.
    """

    group: uuid.UUID
    processors: tuple[int, ...]


class HypervVm(VirtualMachine):
    """A VM that has been created.

    Args:
        server: The host.
        vm: The VM's id.
        name: The VM's name.
        wanted: The requested properties, as :func:`wanted_of` returns them.
        facts: The facts that the host reported about itself.
        devices: ``paravirtual`` or ``emulated``, as requested.
        confinement: The CPU group that confines it; None: it has none.
    """

    def __init__(
        self,
        server: Server,
        vm: uuid.UUID,
        name: str,
        wanted: Mapping[str, Any],
        facts: Mapping[str, Any],
        devices: str,
        confinement: CpuGroupConfinement | None = None,
    ) -> None:
        self._server = server
        self._vm = vm
        self._name = name
        self._wanted = wanted
        self._facts = facts
        self._devices = devices
        self._confinement = confinement
        self._born: tuple[float, float] | None = None
        self._readings: list[Reading] = []

    async def power_on(self) -> None:
        """Check that the VM is as requested, and start it."""
        if why := differing(self._wanted, await self._found()):
            raise MachineFault(why)
        if self._confinement is not None:
            await self._require_confined(self._confinement.group)
        await self._server.power_on(self._vm)

    async def _require_confined(self, wanted: uuid.UUID) -> None:
        found = await group_of(self._server.session, self._vm)
        if found != str(wanted):
            raise MachineFault(
                f"its CPU group was to be {wanted}, but Hyper-V reports {found or 'none'}"
            )

    async def _found(self) -> dict[str, str]:
        vm = await self._server.vm(self._vm)
        names = ("Maximum", "Reserve", "RelativeWeight")
        (processor,) = await self._server.of(self._vm, cmdlet("Get-VMProcessor"), chosen(*names))
        cards = await self._server.of(
            self._vm, cmdlet("Get-VMNetworkAdapter"), chosen("IsLegacy", "SwitchName", "MacAddress")
        )
        many = 2 if ISOLATED in self._wanted else 1
        if len(cards) != many or len({card.text("IsLegacy") for card in cards}) != 1:
            kinds = ", ".join(_kind_of(card) for card in cards) or "none"
            raise MachineFault(
                f"it was to have {many} network card(s), and Hyper-V reports {kinds}"
            )
        # Hyper-V reports the cards in any order.
        cards.sort(key=lambda card: card.text("SwitchName") != self._wanted["SwitchName"])
        sources = dict.fromkeys(names, processor) | dict.fromkeys(
            ("IsLegacy", "SwitchName"), cards[0]
        )
        isolated = card_words(cards[-1].text("SwitchName"), cards[-1].text("MacAddress"))
        found = {name: sources.get(name, vm).text(name) for name in self._wanted}
        return {**found, **({ISOLATED: isolated} if ISOLATED in found else {})}

    async def why_off(self) -> str:
        """Return why the VM does not run; empty while it runs."""
        try:
            vm = await self._server.vm(self._vm)
        except NoSuchObject:
            return "its VM is gone from the host"
        state = vm.text("State")
        return "" if state in (RUNNING, *COMING_UP) else f"Hyper-V reports that its VM is {state}"

    async def power_off(self) -> None:
        """Switch the VM off at once; do nothing if it is gone."""
        try:
            await self._server.power_off(self._vm)
        except NoSuchObject:
            return

    async def applied(self) -> Mapping[str, Any]:
        """Return the VM's properties as Hyper-V reports them."""
        asked = time.monotonic()
        vm = await self._server.vm(self._vm)
        self._born = _birth(vm, asked)
        found = await self._found()
        hypervisor = {
            **self._facts,
            "generation": found["Generation"],
            "configuration version": vm.text("Version"),
        }
        shares = {"weight": "RelativeWeight", "maximum %": "Maximum", "reserve %": "Reserve"}
        scheduling: dict[str, Any] = {name: int(found[key]) for name, key in shares.items()}
        if self._confinement is None:
            return {"hypervisor": hypervisor, "scheduling": scheduling}
        processors = ",".join(map(str, self._confinement.processors))
        vcpus = dict.fromkeys(map(str, range(int(found["ProcessorCount"]))), processors)
        return {"hypervisor": hypervisor, "scheduling": {**scheduling, "vcpus": vcpus}}

    def mismatch(self, proof: Mapping[str, Any]) -> str:
        """Describe how the guest's drivers differ from the request."""
        return other_devices(self._devices, proof)

    async def disturbances(self) -> tuple[str, ...]:
        """Return the events that disturbed it: migration, checkpoints, backups, a pause, a restart.

        This also reads the counters of its processors, so that there is a reading on both sides of
        a cell.
        """
        asked = time.monotonic()
        try:
            vm = await self._server.vm(self._vm)
            born = _birth(vm, asked)
            checkpoints = await self._server.snapshots(self._vm)
        except NoSuchObject:
            return ("it left the host, as by a migration",)
        await self._read()
        found = [f"checkpoint {each}" for each in checkpoints]
        found += list(_states(vm))
        if vm.truth("DynamicMemoryEnabled"):
            found.append("its memory is dynamic")
        memory = vm.number("MemoryAssigned")
        if memory is not None and memory not in (0, self._wanted["MemoryStartup"]):
            found.append(f"its memory is {memory} bytes")
        if vm.text("CheckpointType") not in ("", "Disabled"):
            found.append(f"checkpoints were allowed: {vm.text('CheckpointType')}")
        if born is not None and self._born is not None and is_apart(born, self._born):
            found.append("it was restarted")
        return tuple(found)

    async def _read(self) -> None:
        asked = time.time()
        found = await self._server.optional(*reading(self._name))
        counters = counters_of(self._name, found)
        if counters:
            self._readings.append(Reading(asked, time.time(), counters))
            del self._readings[:-KEPT]

    async def figures(self, begun: float, ended: float) -> HypervisorFigures | None:
        """Return how long the VM's processors waited per dispatch, on average."""
        return waits(self._readings, begun, ended)


def _kind_of(card: PsObject) -> str:
    return "legacy" if card.text("IsLegacy") == "True" else "synthetic"


def _birth(vm: PsObject, asked: float) -> tuple[float, float] | None:
    """Return the interval in which a VM was started, by ``time.monotonic`` (s); None: unknown.

    Args:
        vm: The VM's properties, read just now.
        asked: The time of the request, by the same clock.
    """
    uptime = vm.seconds("Uptime")
    return None if uptime is None else (asked - uptime, time.monotonic() - uptime)


def is_apart(one: tuple[float, float], other: tuple[float, float]) -> bool:
    """Check whether two intervals (s) are more than :data:`JITTER_S` apart."""
    return one[0] > other[1] + JITTER_S or other[0] > one[1] + JITTER_S


def _states(vm: PsObject) -> list[str]:
    found = []
    if (state := vm.text("State")) != RUNNING:
        found.append(f"it was {state.lower()}")
    for name in ("PrimaryOperationalStatus", "SecondaryOperationalStatus"):
        if (status := vm.text(name)) not in ORDINARY | {"InService"}:
            found.append(f"{status} under way")
    if vm.text("ReplicationState") not in ("", "Disabled"):
        found.append(f"it is replicated: {vm.text('ReplicationState')}")
    return found
