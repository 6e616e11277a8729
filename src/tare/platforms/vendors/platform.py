"""The road of every platform whose machines are made by its maker's API: look, make, switch on."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar

from tare.errors import InputError, TareError
from tare.hosts.contract import Host
from tare.hosts.ledger.ledger import Entry, Ledger
from tare.hosts.ledger.undoing import Undo, require_own
from tare.platforms.contract import (
    Capabilities,
    Context,
    Machine,
    MachineSpec,
    Platform,
    Prepared,
    Presence,
    Shape,
    Verdict,
)
from tare.platforms.existing_network import joining
from tare.platforms.linux.process_machine import owned_directory
from tare.platforms.vendors.callback import Doors
from tare.platforms.vendors.configuration import TELLS_NETWORK, picture
from tare.platforms.vendors.machine import VendorMachine, VirtualMachine
from tare.platforms.vendors.options import ANY, VendorOptions
from tare.platforms.vendors.own_disk import Bus, OwnDisk, own_disk, scratch_words
from tare.platforms.vendors.session import Session, named, opened

HOST_DOWN = "start it, and have it take machines; or name another"
SEE = "see that {address} is up and reached from here, and that `address` and `port` are right"
V = TypeVar("V", bound=VendorOptions)
S = TypeVar("S", bound=Session[Any])


@dataclass(frozen=True)
class Seen:
    """What a look at a server found.

    Args:
        reason: One sentence: the product and where it is.
        versions: Name to version of what is involved.
        capabilities: What machines there can have.
        shown: What the server shows of itself, name to words.
        rights: What the account may do there, see :class:`~tare.platforms.contract.Verdict`.
    """

    reason: str
    versions: Mapping[str, str]
    capabilities: Capabilities
    shown: Mapping[str, str] = field(default_factory=dict)
    rights: tuple[str, ...] = ()


@dataclass(frozen=True)
class Order(Generic[V]):
    """One machine that is to be made.

    Args:
        options: The arm's options.
        spec: The machine.
        configuration: What its agent is given, secret as a whole.
        ledger: Is told of everything before it is made.
        undo: What takes back what was made, last first, where no machine comes of it.
        agent: The agent's program, on this computer.
        disk: The empty disk that it is to be given; None: none.
    """

    options: V
    spec: MachineSpec
    configuration: dict[str, Any] = field(repr=False)
    ledger: Ledger
    undo: AsyncExitStack
    agent: Path
    disk: OwnDisk | None = None

    @property
    def image(self) -> bytes:
        """The bytes of the image labelled TARE-CFG, with the agent's configuration."""
        return picture(self.configuration)

    def noted(
        self, kind: str, remove: Callable[[str], Awaitable[object]], **more: Any
    ) -> Callable[[], Awaitable[None]]:
        """Note the VM that is about to be made, which bears the machine's name.

        Args:
            kind: The ledger's word for such VMs, see :func:`removal`.
            remove: Removes what has a name; nothing happens where it is gone.
            more: What else the ledger needs to remove it later.

        Returns:
            What removes it and notes that; it is done by itself where no machine comes of it.
        """
        name = self.spec.name
        entry = self.ledger.record(kind, **self.options.way(), name=name, **more)

        async def gone() -> None:
            await remove(name)
            self.ledger.done(entry)

        self.undo.push_async_callback(gone)
        return gone


def shown_of(facts: Mapping[str, Any]) -> dict[str, str]:
    """Return what a server says of itself as a verdict shows it."""
    return {name: str(value) for name, value in facts.items()}


class VendorPlatform(Platform[V], Generic[V, S]):
    """A hypervisor that is reached by its maker's API.

    A subclass says how to log in, what a look at the server must find, what is booted and how a
    virtual machine is made; the rest is the same road for all, see :mod:`tare.platforms.vendors`.
    """

    example: ClassVar[str]
    """An arm as a study has it: ``{platform: proxmox, address: pve.example}``."""

    def __init__(self) -> None:
        self._doors = Doors()

    @abstractmethod
    def require_library(self) -> None:
        """Check that the vendor's library is installed, without importing it.

        Raises:
            InputError: It is not; the hint is the command that installs it.
        """

    @abstractmethod
    def session(self, way: Mapping[str, Any]) -> S:
        """Return a session that is not open yet.

        Args:
            way: As :meth:`VendorOptions.way` returns it.

        Raises:
            InputError: The library, the credentials or the certificates are not there.
        """

    @asynccontextmanager
    async def logged_in(self, host: Host, way: Mapping[str, Any]) -> AsyncIterator[S]:
        """Hold a session open; overridden where the server is reached by way of its host.

        Args:
            host: The host of the arm.
            way: As :meth:`VendorOptions.way` returns it.

        Raises:
            TareError: The server does not answer, or does not let one in.
        """
        async with opened(self.session(way)) as session:
            yield session

    @abstractmethod
    async def look(self, session: S, options: V, able: Capabilities) -> Seen:
        """Find all that the options name, and what the account may do; nothing is made.

        Args:
            session: A session that is open.
            options: The arm's options.
            able: What is stated.

        Raises:
            TareError: Something is not there, or not allowed: the arm is not usable.
        """

    @abstractmethod
    def boots(self, options: V) -> str:
        """Return which kernel machines boot, in words.

        Raises:
            InputError: The options name nothing that boots.
        """

    @abstractmethod
    async def make(self, session: S, order: Order[V]) -> VirtualMachine:
        """Make a virtual machine, switched off.

        Each thing is noted in ``order.ledger`` before it is made, and what removes it pushed on
        ``order.undo``. The machine's session is closed only once the machine is removed.

        Raises:
            TareError: It cannot be made; what was made is removed afterwards.
        """

    def disk_bus(self, options: V) -> Bus | None:
        """Return how machines get the disk that their shape asks for; None: they get none.

        What :meth:`make` makes of ``order.disk`` is attached so, and the guest's kernel proves it.
        """
        return None

    async def check(self, context: Context, options: V) -> Verdict:
        """Log in and look; nothing is made."""
        stated = self.stated(options)
        able, emulated = stated.capabilities, stated.emulated
        try:
            self.require_library()
            if options.address == ANY:
                reason = f"a study names a server, as in {self.example}"
                return Verdict(False, reason, "", emulated, {}, able)
            async with self.logged_in(context.host, options.way()) as session:
                absent = ""
                # What cannot be asked the look says better, as with all rights that are missing.
                with suppress(TareError):
                    absent = (await self.host_presence(session, options)).absent
                if absent:
                    # It may be up soon, as where a computer is being booted anew.
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
            shown=seen.shown,
            rights=seen.rights,
        )

    async def presence(self, context: Context, options: V) -> Presence:
        """Ask the server whether the host of the machines is up, and since when."""
        try:
            self.require_library()
            async with self.logged_in(context.host, options.way()) as session:
                return await self.host_presence(session, options)
        except TareError as error:
            return Presence(absent=error.message)

    async def host_presence(self, session: S, options: V) -> Presence:
        """Find out whether the host is up that the machines run on, which may not be the server.

        By default a server that lets one in is the host itself, and no boot is told from another.

        Args:
            session: A session that is open.
            options: The arm's options.

        Raises:
            TareError: There is no such host, or it is not shown to the account.
        """
        return Presence()

    async def prepare(self, context: Context, options: V, shape: Shape, realtime: bool) -> Prepared:
        """Return what machines boot, which is at the server already; raises as :meth:`boots`."""
        return Prepared(kernel=self.boots(options), digest="", cached=True, took_s=0.0)

    async def start(
        self, context: Context, options: V, prepared: Prepared, spec: MachineSpec
    ) -> Machine:
        """Make a virtual machine and switch it on; its agent dials back."""
        async with AsyncExitStack() as held:
            await held.enter_async_context(
                owned_directory(context.host, context.ledger, spec.workdir)
            )
            session = await held.enter_async_context(self.logged_in(context.host, options.way()))
            door = await held.enter_async_context(self._doors.open(options.place))
            caller = held.enter_context(door.expected(spec.name))
            session.hide(caller.key)
            disk = own_disk(spec.shape.disk, self.disk_bus(options))
            told = scratch_words(disk.size) if disk is not None else {}
            join = joining(context.host, spec)
            order = Order(
                options,
                spec,
                {**caller.configuration, **told, **({} if join is None else TELLS_NETWORK)},
                context.ledger,
                AsyncExitStack(),
                context.agent,
                disk,
            )
            try:
                vm = await self.make(session, order)
            except BaseException as error:
                with suppress(TareError):
                    # What cannot be removed now stays in the ledger; the first reason is told.
                    await order.undo.aclose()
                if isinstance(error, TareError):
                    raise named(error, spec.name) from None
                raise
            # From here on the machine removes itself.
            order.undo.pop_all()
            machine = VendorMachine(
                spec.name,
                vm,
                caller.channel,
                held.pop_all(),
                power_off_s=options.power_off,
                disk=disk,
                joining=join,
            )
        await machine.bring_up()
        return machine


def removal(
    session: Callable[[Mapping[str, Any]], S],
    remove: Callable[[S, Mapping[str, Any]], Awaitable[bool]],
    told: str,
) -> Undo:
    """Return how a VM is removed that the ledger lists, see :meth:`Order.noted`.

    Args:
        session: Makes a session of the details that were noted.
        remove: Removes what the details name; returns whether there was anything.
        told: What was done, with ``{name}``.
    """

    async def undo(host: Host, entry: Entry) -> str:
        require_own(str(entry.details["name"]))
        async with opened(session(entry.details)) as there:
            removed = await remove(there, entry.details)
        return told.format(name=entry.details["name"]) if removed else ""

    return undo


def require_cpus(wanted: tuple[int, ...], there: int, where: str, instead: str) -> None:
    """Check that a server has the CPUs of a placement: some APIs take any number.

    Args:
        wanted: The CPUs.
        there: How many there are; 0: it does not say.
        where: The server, in words.
        instead: What to do where one is not there.

    Raises:
        InputError: One is not there.
    """
    if beyond := [cpu for cpu in wanted if there and cpu >= there]:
        raise InputError(f"CPU {beyond[0]} is not there: {where} has {there}", instead)


def image_named(image: str | None, product: str, instead: str) -> str:
    """Return whose kernel machines boot, where an arm has to name an image.

    Args:
        image: What the arm names.
        product: The product, in words.
        instead: What to write where it names none.

    Raises:
        InputError: It names none.
    """
    if image is None:
        raise InputError(f"nothing is named that VMs of {product} boot", instead)
    return f"of {image}"
