"""One virtual machine, as a vendor's driver sees it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

from tare.events.hypervisor import HypervisorFigures


class VirtualMachine(ABC):
    """A virtual machine that a driver has made, switched off.

    Its methods raise :class:`tare.errors.TareError` where the hypervisor refuses or is gone.
    """

    @abstractmethod
    async def power_on(self) -> None:
        """Switch it on."""

    @abstractmethod
    async def why_off(self) -> str:
        """Return why it does not run, in words; empty while it does."""

    @abstractmethod
    async def power_off(self) -> None:
        """Switch it off as by pulling the plug; nothing happens where it is off already."""

    @abstractmethod
    async def remove(self) -> None:
        """Remove it with all its files; nothing happens where it is gone."""

    async def applied(self) -> Mapping[str, Any]:
        """Return what the hypervisor says that the machine is, once it runs.

        As :attr:`tare.platforms.machine.Machine.applied`; ``hypervisor`` is for the proof: build,
        licence, power policy, hyper-threading, scheduler, and what else may explain a result.
        """
        return {}

    def unlike(self, proof: Mapping[str, Any]) -> str:
        """Return how what its agent proves is not what was asked for, in words; empty if it is.

        Args:
            proof: The agent's, of its machine.
        """
        return ""

    async def cost(self) -> dict[str, float]:
        """Return what it cost its host so far; see ``Machine.host_cost``."""
        return {}

    async def disturbances(self) -> tuple[str, ...]:
        """Return what befell it so far; see ``Machine.disturbances``."""
        return ()

    async def figures(self, begun: float, ended: float) -> HypervisorFigures | None:
        """Return what its host tells of a while; see ``Machine.hypervisor_figures``."""
        return None


def card_drivers(proof: Mapping[str, Any]) -> frozenset[str]:
    """Return the drivers of a guest's network cards, which tell what devices it really uses.

    Args:
        proof: The agent's, of its machine.
    """
    return frozenset(str(nic["driver"]) for nic in proof.get("nics", ()) if nic.get("driver"))
