"""``bare-live``: the bare machine, booted from the live image by its owner."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tare.errors import InputError, MachineFault
from tare.platforms.contract import (
    ANY_BOOT,
    Capabilities,
    Context,
    Machine,
    MachineSpec,
    Platform,
    Prepared,
    Presence,
    Shape,
    Statement,
    Variant,
    Verdict,
    Write,
)
from tare.platforms.existing_network import Joining, joining, with_given
from tare.platforms.linux.process_machine import owned_directory
from tare.platforms.linux.writes import FOLDER
from tare.platforms.live.medium import read_medium
from tare.platforms.live.options import ANY, LiveOptions
from tare.platforms.vendors.callback import CallbackListener, DialledChannel
from tare.platforms.vendors.machine import VendorMachine, VirtualMachine
from tare.platforms.vendors.offer import LIVE, TOOLBOX
from tare.platforms.vendors.options import CallbackAddress, parse_callback_address

if TYPE_CHECKING:
    from tare.agent.client import Hello

MIN_MEMORY = 384 << 20
"""The least memory, in bytes, in which the live image booted without its toolbox (tests/images)."""
MAX_VCPUS = 1024
"""A high limit: only the boot shows how many CPUs exist; a machine with too few is refused."""
RESTART_S = 30.0
"""The time limit, in seconds, for the agent to disappear after it was asked to restart."""
LISTEN_S = 15.0
"""The seconds within which a machine that is up dials: its agent tries every other second."""
NAME_ONE = "a study names its medium, as in {platform: bare-live, medium: tare-cfg.img}"


class BareLive(Platform[LiveOptions]):
    """The bare machine, booted from the live image by its owner: the same kernel as in guests."""

    name = "bare-live"
    options = LiveOptions
    variants = (Variant("", {"medium": ANY}),)

    def describe(self, options: LiveOptions) -> str:
        """Return a phrase for reports."""
        what = "virtual machine in the place of the bare one" if options.virtual else "bare machine"
        return f"{what}, booted from the live image"

    def stated(self, options: LiveOptions) -> Statement:
        """Return the features of the bare machine; nothing is tried."""
        stated = Statement(
            capabilities=Capabilities(
                pinning=False,
                max_vcpus=MAX_VCPUS,
                min_memory=MIN_MEMORY,
                neighbours=False,
                notes=(
                    "if the machine has more CPUs than the shape has vCPUs, only that many are "
                    "used",
                    "it is rebooted for each batch; its owner or its firmware must make it boot "
                    "the live image",
                    TOOLBOX,
                ),
                no_disk="the machine's disks are its owner's, and Tare formats none of them",
                toolbox=frozenset({LIVE}),
            ),
            elsewhere=True,
            only_measures=True,
            boots_each=True,
            kernel="the live image's",
            channel="TLS, dialled by the agent to the medium's `callback`",
            needs=("the live image and a medium (`tare image live`, `tare image medium`)",),
            untested="Tested only on a machine that QEMU emulates.",
            confirmed="simulator",
            emulated=options.virtual,
            host_boot=ANY_BOOT,
            boot_s=120.0,
            emulated_boot_s=120.0,
            runs_as="the live image's only user, root; the machine runs nothing else",
        )
        over = "the network that it dials back over (the medium's `callback`)"
        return with_given(stated, options, where="to a machine that boots by itself", over=over)

    def writes(self, options: LiveOptions) -> tuple[Write, ...]:
        """Return the writes on this computer; the machine's own live image is in memory."""
        return (FOLDER,)

    async def check(self, context: Context, options: LiveOptions) -> Verdict:
        """Read the medium, and check that Tare can listen at its address."""
        stated = self.stated(options)
        able, emulated = stated.capabilities, stated.emulated
        if options.medium == ANY:
            return Verdict(False, NAME_ONE, "", emulated, {}, able)
        try:
            medium = read_medium(Path(options.medium))
            place = _place(options, medium.callback)
            _require_free(place)
        except InputError as error:
            return Verdict(False, error.message, error.hint, emulated, {}, able)
        return Verdict(
            True,
            f"boot the machine from the live image; it is waited for at {place}",
            "",
            emulated,
            {},
            able,
            uncontrolled=("its firmware's settings, its frequencies and its temperature",),
        )

    async def presence(self, context: Context, options: LiveOptions) -> Presence:
        """Check whether the machine dials; it gets no answer, so that it keeps dialling."""
        try:
            place = _place(options, read_medium(Path(options.medium)).callback)
            heard = await dials(place)
        except InputError as error:
            return Presence(absent=error.message)
        return Presence() if heard else Presence(absent=f"no machine dials {place}")

    async def prepare(
        self, context: Context, options: LiveOptions, shape: Shape, realtime: bool
    ) -> Prepared:
        """Return a phrase for the kernel that the machine boots, which its owner chose."""
        return Prepared(kernel="that of the live image", digest="", cached=True, took_s=0.0)

    async def start(
        self, context: Context, options: LiveOptions, prepared: Prepared, spec: MachineSpec
    ) -> Machine:
        """Wait at the listener for the machine, which boots or will boot soon.

        Raises:
            InputError: The medium cannot be read, or Tare cannot listen at its address.
        """
        medium = read_medium(Path(options.medium))
        async with AsyncExitStack() as held:
            await held.enter_async_context(
                owned_directory(context.host, context.ledger, spec.workdir)
            )
            listener = CallbackListener(medium.certificate)
            held.push_async_callback(listener.close)
            await listener.open(_place(options, medium.callback))
            caller = held.enter_context(listener.expect(spec.name, medium.key))
            there = _There(caller.channel, virtual=options.virtual)
            machine = LiveMachine(
                spec.name,
                there,
                caller.channel,
                held.pop_all(),
                options,
                spec.shape.vcpus,
                joining(context.host, spec),
            )
        await machine.bring_up()
        return machine


class LiveMachine(VendorMachine):
    """The bare machine for one batch; after the batch it restarts, and waits for the next batch.

    Args:
        name: The machine's name in this batch.
        there: The state of the machine, to the extent that it is known.
        channel: The channel that its agent opens by dialling in.
        held: Closes the listener and removes the folder at the end.
        options: The arm's options.
        vcpus: The number of its CPUs that are measured.
        joining: How the machine joins the network that it dials over; None: no network is measured.
    """

    def __init__(
        self,
        name: str,
        there: VirtualMachine,
        channel: DialledChannel,
        held: AsyncExitStack,
        options: LiveOptions,
        vcpus: int,
        joining: Joining | None,
    ) -> None:
        super().__init__(name, there, channel, held, power_off_s=RESTART_S, joining=joining)
        self._patience_s = options.patience
        self._vcpus = vcpus

    async def ready(self, timeout_s: float) -> Hello:
        """Wait for the agent's hello, for as long as such a machine may take to boot.

        Raises:
            MachineFault: The machine did not dial back, is not a bare machine, or has too few CPUs.
        """
        hello = await super().ready(max(timeout_s, self._patience_s))
        cpus = tuple(int(cpu) for cpu in hello.proof.get("topology", {}).get("usable", ()))
        if len(cpus) < self._vcpus:
            raise MachineFault(
                f"{self.name}: the machine has {len(cpus)} CPUs, and {self._vcpus} are asked for",
                "write fewer `vcpus` in the arm's shape",
            )
        self.inner_cpus = cpus[: self._vcpus]
        return hello


class _There(VirtualMachine):
    """A machine that only its owner switches on and off."""

    def __init__(self, channel: DialledChannel, *, virtual: bool) -> None:
        self._channel = channel
        self._virtual = virtual

    async def power_on(self) -> None:
        """Do nothing: the owner switches the machine on."""

    async def why_off(self) -> str:
        """Report that the machine's agent is gone; empty while it is connected."""
        gone = self._channel.dialled and self._channel.ended.is_set()
        return "its agent is gone: it was switched off or restarted, or lost its network" * gone

    async def power_off(self) -> None:
        """Do nothing: when the agent has no host, it restarts the machine."""

    def mismatch(self, proof: Mapping[str, Any]) -> str:
        """Report a hypervisor on a machine that must be a bare one; empty if there is none."""
        hypervisor = proof.get("hypervisor")
        signatures = hypervisor.get("signatures") if isinstance(hypervisor, Mapping) else None
        if self._virtual or not signatures:
            return ""
        names = ", ".join(map(str, signatures))
        return f"it is not a bare machine: it runs on a hypervisor ({names}); see `virtual`"


def _require_free(place: CallbackAddress) -> None:
    """Check that Tare can listen at an address; no connection is accepted.

    Raises:
        InputError: This computer does not have the address, or the port is taken.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as tried:
        tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            tried.bind((place.address, place.port))
        except OSError as error:
            raise InputError(
                f"the machine cannot dial back to {place}: {error.strerror or error}",
                "name an address of this computer and a free port by `listen`",
            ) from None


def _place(options: LiveOptions, callback: CallbackAddress) -> CallbackAddress:
    return callback if options.listen is None else parse_callback_address(options.listen)


async def dials(place: CallbackAddress, patience_s: float = LISTEN_S) -> bool:
    """Return whether a machine dials an address within a time limit.

    The connection is closed without an answer, so that the agent dials again. If a conversation had
    begun, the agent would restart its machine at the end.

    Args:
        place: The address that machines dial.
        patience_s: The time limit in seconds.

    Raises:
        InputError: This computer does not have the address, or the port is taken.
    """
    heard = asyncio.Event()

    def hear(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heard.set()
        writer.close()

    try:
        server = await asyncio.start_server(hear, place.address, place.port)
    except OSError as error:
        raise InputError(
            f"the machine cannot dial back to {place}: {error.strerror or error}",
            "name an address of this computer and a free port by `listen`",
        ) from None
    try:
        async with asyncio.timeout(patience_s):
            await heard.wait()
    except TimeoutError:
        return False
    finally:
        server.close()
    return True
