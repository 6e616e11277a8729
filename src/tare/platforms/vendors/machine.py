"""A running virtual machine at a vendor's server, and what its driver does for it."""

from __future__ import annotations

import asyncio
import contextlib
from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

from tare.agent.client import AgentClient
from tare.errors import MachineFault, TareError
from tare.events.hypervisor import HypervisorFigures
from tare.hosts.address_pair import AddressPair
from tare.hosts.shielded import begun
from tare.platforms.contract import Machine
from tare.platforms.existing_network import Joining, own_address
from tare.platforms.guest_hello import first_hello
from tare.platforms.vendors.callback import DialledChannel
from tare.platforms.vendors.own_disk import NOT_DROPPED, OwnDisk
from tare.platforms.vendors.session import as_machine_fault
from tare.study.planning.guest_kernels import REALTIME

if TYPE_CHECKING:
    from tare.agent.client import Hello


class VirtualMachine(ABC):
    """A virtual machine that a driver has created, switched off.

    Its methods raise :class:`tare.errors.TareError` if the hypervisor refuses or is gone.
    """

    @abstractmethod
    async def power_on(self) -> None:
        """Switch it on."""

    @abstractmethod
    async def why_off(self) -> str:
        """Return why the machine does not run, in words; empty while it runs."""

    @abstractmethod
    async def power_off(self) -> None:
        """Switch it off at once, as by pulling the plug; do nothing if it is off."""

    async def applied(self) -> Mapping[str, Any]:
        """Return the machine's properties as the hypervisor reports them while it runs.

        The keys are those of :attr:`tare.platforms.machine.Machine.applied`. ``hypervisor`` is for
        the proof: build, licence, power policy, hyper-threading, scheduler, and other facts that
        may explain a result.
        """
        return {}

    def mismatch(self, proof: Mapping[str, Any]) -> str:
        """Return how the machine differs from the request, in words; empty if it does not.

        Args:
            proof: The proof of the machine's agent.
        """
        return ""

    async def cost(self) -> dict[str, float]:
        """Return the machine's cost to its host so far; see ``Machine.host_cost``."""
        return {}

    async def disturbances(self) -> tuple[str, ...]:
        """Return the events that have disturbed the machine; see ``Machine.disturbances``."""
        return ()

    async def figures(self, begun: float, ended: float) -> HypervisorFigures | None:
        """Return the host's figures for a period; see ``Machine.hypervisor_figures``."""
        return None


PARAVIRTUAL_CARDS = frozenset(
    {"virtio_net", "vmxnet3", "hv_netvsc", "vif", "xen_netfront", "xen-netfront"}
)
EMULATED_CARDS = frozenset({"e1000", "e1000e", "8139cp", "8139too", "tulip", "pcnet32"})
"""Linux's drivers for the network cards that hypervisors provide."""


def wrong_card(
    proof: Mapping[str, Any], devices: str, paravirtual: frozenset[str], emulated: frozenset[str]
) -> str:
    """Describe how the drivers of a guest's network cards differ from the request; empty: not.

    Args:
        proof: The proof of the guest's agent.
        devices: ``paravirtual`` or ``emulated``, as requested.
        paravirtual: The drivers of paravirtual cards.
        emulated: The drivers of emulated cards.
    """
    wrong = card_drivers(proof) & (paravirtual if devices == "emulated" else emulated)
    if not wrong:
        return ""
    return f"its network card is driven by {', '.join(sorted(wrong))}, and not as {devices}"


def wrong_isolated_card(proof: Mapping[str, Any], devices: str) -> str:
    """Describe how the isolated network's card differs from the request; empty: it does not.

    Args:
        proof: The proof of the guest's agent.
        devices: ``paravirtual`` or ``emulated``, as requested.
    """
    card = {"nics": [proof.get("network") or {}]}
    wrong = wrong_card(card, devices, PARAVIRTUAL_CARDS, EMULATED_CARDS)
    return wrong and f"on the isolated network, {wrong}"


def card_drivers(proof: Mapping[str, Any]) -> frozenset[str]:
    """Return the drivers of a guest's network cards; they show which device models it uses.

    Args:
        proof: The proof of the guest's agent.
    """
    return frozenset(str(nic["driver"]) for nic in proof.get("nics", ()) if nic.get("driver"))


LOOK_S = 5.0
"""Seconds between two checks whether the machine runs; the agent's end is noticed at once."""
GONE_S = 10.0
"""Seconds after the agent's end within which its hypervisor may still show it as running."""


def other_kernel(proof: Mapping[str, Any], wanted: str | None) -> str:
    """Return a message if the image's kernel is not the one that the arm names; empty: it is.

    Args:
        proof: The proof of the machine's agent.
        wanted: The kernel that the arm names; only a real-time kernel can be recognised.
    """
    kernel = proof.get("kernel")
    kernel = kernel if isinstance(kernel, Mapping) else {}
    if wanted != REALTIME or kernel.get("preempt") == REALTIME:
        return ""
    return (
        f"its image boots Linux {kernel.get('release', '')}, which is not a real-time kernel: make "
        "one with `tare image live --kernel rt`, or remove `kernel: rt`"
    )


class VendorMachine(Machine):
    """A virtual machine, with an agent that dials back.

    Args:
        name: The machine's name; the virtual machine has the same name.
        vm: The virtual machine that its driver created.
        channel: The channel that its agent opens by dialling in.
        held: Everything to release when the machine stops, in reverse order: the resources created
            for it, the session, the listener.
        power_off_s: Seconds that the guest may take to switch itself off.
        disk: Its own disk; None: none.
        joining: How the machine joins the network that it dials over; None: no network is measured.
        kernel: The kernel that its image should have; None: any.
        isolated: The devices that the arm asks for, if it has a network card on an isolated
            network; None: it has none, or the arm asks for no devices.
    """

    def __init__(
        self,
        name: str,
        vm: VirtualMachine,
        channel: DialledChannel,
        held: AsyncExitStack,
        *,
        power_off_s: float = 10.0,
        disk: OwnDisk | None = None,
        joining: Joining | None = None,
        kernel: str | None = None,
        isolated: str | None = None,
    ) -> None:
        self.name = name
        self.agent = AgentClient(channel, name=name)
        self.died: asyncio.Future[MachineFault] = asyncio.get_running_loop().create_future()
        self.applied: Mapping[str, Any] = {}
        self._vm = vm
        self._channel = channel
        self._held = held
        self._power_off_s = power_off_s
        self._disk = disk
        self._joining = joining
        self._kernel = kernel
        self._isolated = isolated
        self._answered = False
        self._watcher: asyncio.Task[None] | None = None
        self._stopping: asyncio.Future[None] | None = None

    async def bring_up(self) -> None:
        """Switch it on; if that fails, remove it.

        Raises:
            MachineFault: Its hypervisor refuses; the message contains the machine's name.
        """
        try:
            await self._vm.power_on()
        except BaseException as error:
            await self.stop()
            if isinstance(error, TareError):
                raise as_machine_fault(error, self.name) from None
            raise
        self._watcher = asyncio.create_task(self._watch(), name=f"{self.name} watcher")

    async def ready(self, timeout_s: float) -> Hello:
        """Wait for the agent's hello; see :class:`tare.platforms.contract.Machine`."""
        hello = await first_hello(self, timeout_s=timeout_s, gone_s=GONE_S)
        self._answered = True
        self.applied = await self._vm.applied()
        why = self._vm.mismatch(hello.proof) or other_kernel(hello.proof, self._kernel)
        if self._disk is not None:
            self.applied = {**self.applied, **self._disk.applied(hello.proof)}
            why = why or self._disk.mismatch(hello.proof)
        if self._isolated is not None:
            why = why or wrong_isolated_card(hello.proof, self._isolated)
        if why:
            raise MachineFault(f"{self.name}: {why}")
        if self._joining is not None:
            inside = AddressPair(there=own_address(hello.proof))
            await self._joining.join(self.name, self._channel.addresses, inside, hello.proof)
        return hello

    async def _watch(self) -> None:
        while self._stopping is None and not self.died.done():
            ended = self._channel.ended.is_set()
            if ended:
                await self._find_reason()
                return
            with contextlib.suppress(TareError):
                if why := await self._vm.why_off():
                    self._die(why)
                    return
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LOOK_S):
                    await self._channel.ended.wait()

    async def _find_reason(self) -> None:
        """Find out whether the machine ended after its agent did, and why."""
        deadline = asyncio.get_running_loop().time() + GONE_S
        while asyncio.get_running_loop().time() < deadline and self._stopping is None:
            with contextlib.suppress(TareError):
                if why := await self._vm.why_off():
                    self._die(why)
                    return
            await asyncio.sleep(0.2)

    def _die(self, why: str) -> None:
        if self._stopping is None and not self.died.done():
            fault = MachineFault(f"{self.name}: {why}", transient=not self._answered)
            self.died.set_result(fault)
            self.agent.fail(fault)

    async def host_cost(self) -> dict[str, float]:
        """Return the machine's cost to its host so far, if the host reports it."""
        return await self._vm.cost()

    async def forget_disk(self) -> Mapping[str, Any]:
        """Report that its host's caches are not dropped; empty if it has no disk."""
        return {} if self._disk is None else {"dropped": "nothing", "reason": NOT_DROPPED}

    async def disturbances(self) -> tuple[str, ...]:
        """Return the events that have disturbed the machine; see ``Machine.disturbances``."""
        return await self._vm.disturbances()

    async def hypervisor_figures(self, begun: float, ended: float) -> HypervisorFigures | None:
        """Return the host's figures for a period; see :class:`tare.platforms.contract.Machine`."""
        return await self._vm.figures(begun, ended)

    async def stop(self) -> None:
        """Ask the guest to power off, then switch it off and remove it; may be called again."""
        if self._stopping is None:
            # Shielded: once begun, stopping continues even if the caller is cancelled.
            self._stopping = begun(self._stop())
        await asyncio.shield(self._stopping)

    async def _stop(self) -> None:
        async with self._held:
            if self._watcher is not None:
                self._watcher.cancel()
                await asyncio.gather(self._watcher, return_exceptions=True)
            if self._answered and not self._channel.ended.is_set():
                await self._ask()
            await self.agent.close()
            with contextlib.suppress(TareError):
                # If the machine still runs, its removal fails and reports the reason.
                await self._vm.power_off()

    async def _ask(self) -> None:
        with contextlib.suppress(TareError, OSError, TimeoutError):
            async with asyncio.timeout(self._power_off_s):
                await self.agent.shutdown()
                await self._await_off()

    async def _await_off(self) -> None:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._power_off_s
        while loop.time() < deadline:
            if await self._vm.why_off():
                return
            await asyncio.sleep(0.5)
