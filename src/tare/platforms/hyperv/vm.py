"""One VM of Tare's: what is asked of the host, what it says that it is, and what befalls it."""

from __future__ import annotations

import time
import uuid
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from tare.errors import MachineFault
from tare.events.hypervisor import HypervisorFigures
from tare.platforms.contract import MachineSpec
from tare.platforms.hyperv.command import Told, chosen, cmdlet
from tare.platforms.hyperv.figures import Reading, counters_of, reading, waits
from tare.platforms.hyperv.options import HypervOptions
from tare.platforms.hyperv.server import RUNNING, Server
from tare.platforms.vendors.machine import VirtualMachine, card_drivers
from tare.platforms.vendors.session import Missing

PARAVIRTUAL = frozenset({"hv_netvsc"})
EMULATED = frozenset({"tulip", "de2104x", "de4x5"})
"""The legacy card is a DEC 21140."""
COMING_UP = ("Starting", "Resuming", "Resetting", "Reset")
ORDINARY = frozenset({"", "Ok"})
"""What a VM's status says that nothing is done with."""
KEPT = 4
"""Readings that are kept: those around the cell, and some besides."""
JITTER_S = 5.0
"""How far what Hyper-V says of its uptime may be off before it must have been started anew."""


def wanted_of(options: HypervOptions, spec: MachineSpec, switch: str) -> dict[str, Any]:
    """Return what a VM must turn out to be, by the names of Hyper-V's properties."""
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
    }


def differing(wanted: Mapping[str, Any], found: Mapping[str, str]) -> str:
    """Return what of a VM is not as was asked, in words; empty if nothing.

    Args:
        wanted: As :func:`wanted_of` returns it.
        found: The same as the host tells it, in words.
    """
    for name, value in wanted.items():
        if found.get(name, "") != str(value):
            return f"{name} was to be {value}, but Hyper-V says {found.get(name) or 'nothing'}"
    return ""


def other_devices(devices: str, proof: Mapping[str, Any]) -> str:
    """Return how a guest's drivers are not those that were asked for; empty if they are.

    Args:
        devices: ``paravirtual`` or ``emulated``.
        proof: The agent's proof of the guest.
    """
    unwanted = card_drivers(proof) & (PARAVIRTUAL if devices == "emulated" else EMULATED)
    if not unwanted:
        return ""
    return f"its network card is driven by {', '.join(sorted(unwanted))}, and not as {devices}"


class HypervVm(VirtualMachine):
    """A VM that was made.

    Args:
        server: Where.
        vm: Its id.
        name: Its name.
        wanted: As :func:`wanted_of` returns it.
        facts: What the host said of itself.
        devices: ``paravirtual`` or ``emulated``, as was asked.
        gone: Removes it with its folder, and notes that.
    """

    def __init__(
        self,
        server: Server,
        vm: uuid.UUID,
        name: str,
        wanted: Mapping[str, Any],
        facts: Mapping[str, Any],
        devices: str,
        gone: Callable[[], Awaitable[None]],
    ) -> None:
        self._server = server
        self._vm = vm
        self._name = name
        self._wanted = wanted
        self._facts = facts
        self._devices = devices
        self._gone = gone
        self._born: tuple[float, float] | None = None
        self._readings: list[Reading] = []

    async def power_on(self) -> None:
        """Start it, once it is known to be as was asked."""
        if why := differing(self._wanted, await self._found()):
            raise MachineFault(why)
        await self._server.power_on(self._vm)

    async def _found(self) -> dict[str, str]:
        told = await self._server.vm(self._vm)
        names = ("Maximum", "Reserve", "RelativeWeight")
        (processor,) = await self._server.of(self._vm, cmdlet("Get-VMProcessor"), chosen(*names))
        cards = await self._server.of(
            self._vm, cmdlet("Get-VMNetworkAdapter"), chosen("IsLegacy", "SwitchName")
        )
        if len(cards) != 1:
            raise MachineFault(f"it was to have one network card, but Hyper-V says {len(cards)}")
        sources = dict.fromkeys(names, processor) | dict.fromkeys(
            ("IsLegacy", "SwitchName"), cards[0]
        )
        return {name: sources.get(name, told).text(name) for name in self._wanted}

    async def why_off(self) -> str:
        """Return why it does not run."""
        try:
            told = await self._server.vm(self._vm)
        except Missing:
            return "its VM is gone from the host"
        state = told.text("State")
        return "" if state in (RUNNING, *COMING_UP) else f"Hyper-V says that its VM is {state}"

    async def power_off(self) -> None:
        """Switch it off at once."""
        try:
            await self._server.power_off(self._vm)
        except Missing:
            return

    async def remove(self) -> None:
        """Remove it with its folder."""
        await self._gone()

    async def applied(self) -> Mapping[str, Any]:
        """Return what Hyper-V says that it is."""
        asked = time.monotonic()
        told = await self._server.vm(self._vm)
        self._born = _birth(told, asked)
        found = await self._found()
        hypervisor = {
            **self._facts,
            "generation": found["Generation"],
            "configuration version": told.text("Version"),
        }
        shares = {"weight": "RelativeWeight", "maximum %": "Maximum", "reserve %": "Reserve"}
        scheduling = {name: int(found[key]) for name, key in shares.items()}
        return {"hypervisor": hypervisor, "scheduling": scheduling}

    def unlike(self, proof: Mapping[str, Any]) -> str:
        """Return which drivers it proves that are not those asked for."""
        return other_devices(self._devices, proof)

    async def disturbances(self) -> tuple[str, ...]:
        """Return what befell it: migration, checkpoints, backups, a pause, another start.

        Its processors' counters are read as well, which stand on either side of a cell then.
        """
        asked = time.monotonic()
        try:
            told = await self._server.vm(self._vm)
            born = _birth(told, asked)
            checkpoints = await self._server.snapshots(self._vm)
        except Missing:
            return ("it left the host, as by a migration",)
        await self._read()
        found = [f"checkpoint {each}" for each in checkpoints]
        found += list(_states(told))
        if told.truth("DynamicMemoryEnabled"):
            found.append("its memory is dynamic")
        memory = told.number("MemoryAssigned")
        if memory is not None and memory not in (0, self._wanted["MemoryStartup"]):
            found.append(f"its memory is {memory} bytes")
        if told.text("CheckpointType") not in ("", "Disabled"):
            found.append(f"checkpoints were allowed: {told.text('CheckpointType')}")
        if born is not None and self._born is not None and apart(born, self._born):
            found.append("it was started anew")
        return tuple(found)

    async def _read(self) -> None:
        asked = time.time()
        told = await self._server.optional(*reading(self._name))
        counters = counters_of(self._name, told)
        if counters:
            self._readings.append(Reading(asked, time.time(), counters))
            del self._readings[:-KEPT]

    async def figures(self, begun: float, ended: float) -> HypervisorFigures | None:
        """Return how long its processors waited per dispatch, on average."""
        return waits(self._readings, begun, ended)


def _birth(told: Told, asked: float) -> tuple[float, float] | None:
    """Return between when and when a VM was started, by this process's clock (s); None: untold.

    Args:
        told: What was told of it just now.
        asked: When that was asked for: an answer may take its time.
    """
    uptime = told.seconds("Uptime")
    return None if uptime is None else (asked - uptime, time.monotonic() - uptime)


def apart(one: tuple[float, float], other: tuple[float, float]) -> bool:
    """Return whether two spans (s) have no moment in common, or nearly."""
    return one[0] > other[1] + JITTER_S or other[0] > one[1] + JITTER_S


def _states(told: Told) -> list[str]:
    found = []
    if (state := told.text("State")) != RUNNING:
        found.append(f"it was {state.lower()}")
    for name in ("PrimaryOperationalStatus", "SecondaryOperationalStatus"):
        if (status := told.text(name)) not in ORDINARY | {"InService"}:
            found.append(f"{status} under way")
    if told.text("ReplicationState") not in ("", "Disabled"):
        found.append(f"it is replicated: {told.text('ReplicationState')}")
    return found
