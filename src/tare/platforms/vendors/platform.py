"""The base of platforms with a vendor's API: check the server, create a machine, switch it on."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar

from tare.errors import InputError, MachineFault, TareError
from tare.hosts.contract import Host
from tare.hosts.ledger.ledger import Ledger
from tare.platforms.contract import (
    Capabilities,
    Context,
    Machine,
    MachineSpec,
    Platform,
    Prepared,
    Presence,
    Resource,
    Shape,
    Verdict,
    created,
)
from tare.platforms.existing_network import joining
from tare.platforms.linux.process_machine import owned_directory
from tare.platforms.vendors.callback import CallbackListeners
from tare.platforms.vendors.configuration import REPORT_NETWORK, configuration_image
from tare.platforms.vendors.isolated_network import MAC_PREFIX, IsolatedNic, isolated_nic
from tare.platforms.vendors.machine import VendorMachine, VirtualMachine
from tare.platforms.vendors.options import ANY, VendorOptions
from tare.platforms.vendors.own_disk import Bus, OwnDisk, own_disk, scratch_configuration
from tare.platforms.vendors.resource import ServerResource
from tare.platforms.vendors.session import Session, as_machine_fault, opened
from tare.study.model.platform_options import ISOLATED
from tare.study.planning.host_cpus import Carrier

HOST_DOWN = "start it, and have it take machines; or name another"
SEE = "see that {address} is up and reached from here, and that `address` and `port` are right"
RUNS_ON = "runs on"
"""The key of :attr:`Verdict.shown` whose value is the computer that runs the machines."""
V = TypeVar("V", bound=VendorOptions)
S = TypeVar("S", bound=Session[Any])


@dataclass(frozen=True)
class ServerFindings:
    """The facts found at a server.

    Args:
        reason: One sentence that names the product and its location.
        versions: The versions of the software involved, by name.
        capabilities: The features that machines there can have.
        shown: Facts that the server reports about itself, by name.
        rights: The rights of the account there, see :class:`~tare.platforms.contract.Verdict`.
        carrier: The computer that runs machines; None: its API does not report it.
    """

    reason: str
    versions: Mapping[str, str]
    capabilities: Capabilities
    shown: Mapping[str, str] = field(default_factory=dict)
    rights: tuple[str, ...] = ()
    carrier: Carrier | None = None


@dataclass(frozen=True)
class VmRequest(Generic[V]):
    """One virtual machine to create.

    Args:
        options: The arm's options.
        spec: The specification of the machine.
        configuration: The configuration that its agent is given; all of it is secret.
        ledger: Records everything before it is created.
        created: Holds everything that was created for the machine. It is removed in reverse order
            when the machine is stopped, or if the machine cannot be completed.
        agent: The agent's program, on this computer.
        disk: The empty disk that it gets; None: none.
        isolated: Its second NIC, on the batch's isolated network; None: none.
    """

    options: V
    spec: MachineSpec
    configuration: dict[str, Any] = field(repr=False)
    ledger: Ledger
    created: AsyncExitStack
    agent: Path
    disk: OwnDisk | None = None
    isolated: IsolatedNic | None = None

    @property
    def image(self) -> bytes:
        """The bytes of the image labelled TARE-CFG, with the agent's configuration."""
        return configuration_image(self.configuration)

    @property
    def details(self) -> dict[str, Any]:
        """The details for the ledger of every resource: the server and the machine's name."""
        return {**self.options.connection(), "name": self.spec.name}

    async def create(self, resource: Resource) -> None:
        """Create a resource, recorded in the ledger first; it is removed with the machine.

        Raises:
            TareError: The server refuses; a partly created resource is removed.
        """
        await self.created.enter_async_context(created(self.ledger, resource))


def as_words(facts: Mapping[str, Any]) -> dict[str, str]:
    """Convert a server's facts to the words that a verdict shows."""
    return {name: str(value) for name, value in facts.items()}


def shown_of(carrier: Carrier | None) -> dict[str, str]:
    """Return the words a verdict shows for the computer that runs machines; empty if unknown."""
    return {} if carrier is None else {RUNS_ON: f"{carrier.name}: {carrier.words}"}


class VendorPlatform(Platform[V], Generic[V, S]):
    """A hypervisor that is controlled through its vendor's API.

    A subclass says how to log in, what must be at the server, what machines boot and how a virtual
    machine is created; the rest is the same for all, see :mod:`tare.platforms.vendors`.
    """

    example: ClassVar[str]
    """An arm as written in a study: ``{platform: proxmox, address: pve.example}``."""
    session_type: ClassVar[type[Session[Any]]]
    """The class of its sessions."""
    mac_prefix: ClassVar[str] = MAC_PREFIX
    """The first three bytes of the MACs on isolated networks."""

    def __init__(self) -> None:
        self._listeners = CallbackListeners()

    def require_library(self) -> None:
        """Check that the vendor's library is installed, without importing it.

        Raises:
            InputError: The library is not installed; the hint is the command that installs it.
        """
        self.session_type.require_library()

    @abstractmethod
    def session(self, connection: Mapping[str, Any]) -> S:
        """Return a session that is not open yet.

        Args:
            connection: As :meth:`VendorOptions.connection` returns it.

        Raises:
            InputError: The library, the credentials or the certificates are missing.
        """

    @asynccontextmanager
    async def logged_in(self, host: Host, connection: Mapping[str, Any]) -> AsyncIterator[S]:
        """Hold a session open; a driver overrides this if its server is reached through its host.

        Args:
            host: The host of the arm.
            connection: As :meth:`VendorOptions.connection` returns it.

        Raises:
            TareError: The server does not answer, or rejects the login.
        """
        async with opened(self.session(connection)) as session:
            yield session

    @abstractmethod
    async def look(self, session: S, options: V, able: Capabilities) -> ServerFindings:
        """Find everything that the options name, and the rights of the account; create nothing.

        Args:
            session: An open session.
            options: The arm's options.
            able: The capabilities that the platform states.

        Raises:
            TareError: Something is missing, or not allowed: the arm is not usable.
        """

    @abstractmethod
    def boots(self, options: V) -> str:
        """Return which kernel machines boot, in words.

        Raises:
            InputError: The options name nothing that boots.
        """

    @abstractmethod
    async def make(self, session: S, request: VmRequest[V]) -> VirtualMachine:
        """Create a virtual machine, switched off, by :meth:`VmRequest.create`.

        The machine's session is closed only after the machine is removed.

        Raises:
            TareError: It cannot be created; what was created is removed afterwards.
        """

    def network_resources(
        self, session: S, options: V, name: str, rate: float | None = None
    ) -> Sequence[ServerResource[S]]:
        """Return the resources of an isolated network, in the order of their creation.

        See :mod:`tare.platforms.vendors.isolated_network`. By default a driver creates none.

        Args:
            session: An open session.
            options: The arm's options.
            name: The network's name.
            rate: The speed of each machine's card, in bits per second, where the network itself
                limits it; None: no limit.

        Raises:
            TareError: It cannot be created there.
        """
        raise MachineFault(f"Tare creates no network at {self.product or self.name}")

    @asynccontextmanager
    async def isolated_network(
        self, context: Context, options: V, name: str, rate: float | None = None
    ) -> AsyncIterator[None]:
        """Hold an isolated network at the server: record it, create it, and finally remove it."""
        async with AsyncExitStack() as held:
            session = await held.enter_async_context(
                self.logged_in(context.host, options.connection())
            )
            for resource in self.network_resources(session, options, name, rate):
                await held.enter_async_context(created(context.ledger, resource))
            yield

    def disk_bus(self, options: V) -> Bus | None:
        """Return how the disk of a machine's shape is attached; None: machines get none.

        :meth:`make` attaches ``request.disk`` in this way, and the guest's kernel proves it.
        """
        return None

    async def check(self, context: Context, options: V) -> Verdict:
        """Log in and look at the server; nothing is created."""
        stated = self.stated(options)
        able, emulated = stated.capabilities, stated.emulated
        try:
            self.require_library()
            if options.address == ANY:
                reason = f"a study names a server, as in {self.example}"
                return Verdict(False, reason, "", emulated, {}, able)
            async with self.logged_in(context.host, options.connection()) as session:
                absent = ""
                # If this request fails, `look` gives a better reason, such as a missing right.
                with suppress(TareError):
                    absent = (await self.host_presence(session, options)).absent
                if absent:
                    # It may be up soon, for instance if the computer is being rebooted.
                    return Verdict(False, absent, HOST_DOWN, emulated, {}, able, lasting=False)
                seen = await self.look(session, options, able)
        except TareError as error:
            lasting = isinstance(error, InputError)
            hint = error.hint or ("" if lasting else SEE.format(address=options.address))
            return Verdict(False, error.message, hint, emulated, {}, able, lasting)
        return Verdict(
            True,
            seen.reason,
            "",
            emulated,
            seen.versions,
            seen.capabilities,
            shown={**seen.shown, **shown_of(seen.carrier)},
            rights=seen.rights,
            carrier=seen.carrier,
        )

    async def presence(self, context: Context, options: V) -> Presence:
        """Ask the server whether the host of the machines is up, and since when."""
        try:
            self.require_library()
            async with self.logged_in(context.host, options.connection()) as session:
                return await self.host_presence(session, options)
        except TareError as error:
            return Presence(absent=error.message)

    async def host_presence(self, session: S, options: V) -> Presence:
        """Find out whether the host that the machines run on is up; it may not be the server.

        By default the server is the host, so it is up, and its boots cannot be distinguished.

        Args:
            session: An open session.
            options: The arm's options.

        Raises:
            TareError: There is no such host, or the account does not see it.
        """
        return Presence()

    async def prepare(self, context: Context, options: V, shape: Shape, realtime: bool) -> Prepared:
        """Return the kernel that machines boot, which is at the server; raises as :meth:`boots`."""
        return Prepared(kernel=self.boots(options), digest="", cached=True, took_s=0.0)

    async def start(
        self, context: Context, options: V, prepared: Prepared, spec: MachineSpec
    ) -> Machine:
        """Create a virtual machine and switch it on; its agent dials back."""
        async with AsyncExitStack() as held:
            await held.enter_async_context(
                owned_directory(context.host, context.ledger, spec.workdir)
            )
            session = await held.enter_async_context(
                self.logged_in(context.host, options.connection())
            )
            listener = await held.enter_async_context(
                self._listeners.open(options.callback_address)
            )
            agent = held.enter_context(listener.expect(spec.name))
            session.hide(agent.key)
            disk = own_disk(spec.shape.disk, self.disk_bus(options))
            join = joining(context.host, spec)
            nic = None
            if spec.network is not None and spec.way == ISOLATED:
                nic = isolated_nic(await spec.network.isolated(spec.name), self.mac_prefix)
            configuration = {
                **agent.configuration,
                **(scratch_configuration(disk.size) if disk is not None else {}),
                **(REPORT_NETWORK if join is not None else {}),
                **(nic.configuration if nic is not None else {}),
            }
            request = VmRequest(
                options,
                spec,
                configuration,
                context.ledger,
                AsyncExitStack(),
                context.agent,
                disk,
                nic,
            )
            try:
                vm = await self.make(session, request)
            except BaseException as error:
                with suppress(TareError):
                    # Resources that cannot be removed now stay in the ledger; the first error is
                    # raised.
                    await request.created.aclose()
                if isinstance(error, TareError):
                    raise as_machine_fault(error, spec.name) from None
                raise
            held.push_async_exit(request.created)
            machine = VendorMachine(
                spec.name,
                vm,
                agent.channel,
                held.pop_all(),
                power_off_s=options.power_off,
                disk=disk,
                joining=join,
                kernel=context.kernel,
                isolated=None if nic is None else options.wanted_devices or None,
            )
        await machine.bring_up()
        return machine


def require_cpus(wanted: tuple[int, ...], there: int, where: str, instead: str) -> None:
    """Check that a server has the CPUs of a placement, because some APIs accept any number.

    Args:
        wanted: The numbers of the CPUs.
        there: The number of CPUs that the server has; 0: unknown.
        where: The server, in words.
        instead: The hint for the user if a CPU is missing.

    Raises:
        InputError: One is missing.
    """
    if beyond := [cpu for cpu in wanted if there and cpu >= there]:
        raise InputError(f"CPU {beyond[0]} is not there: {where} has {there}", instead)


def image_named(image: str | None, product: str, instead: str) -> str:
    """Return the origin of the kernel that machines boot, for arms that must name an image.

    Args:
        image: The image that the arm names.
        product: The product, in words.
        instead: The hint for the user if the arm names no image.

    Raises:
        InputError: The arm names no image.
    """
    if image is None:
        raise InputError(f"nothing is named that VMs of {product} boot", instead)
    return f"of {image}"
