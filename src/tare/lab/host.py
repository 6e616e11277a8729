"""A lab host: an emulated computer with a hypervisor, reached over SSH like any other host."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import time
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from tare.errors import HostFroze, InputError, MachineFault, TareError
from tare.hosts import Host
from tare.hosts.programs import install_command_for
from tare.hosts.shielded import begun
from tare.hosts.ssh.host import SshHost
from tare.hosts.ssh.options import SshOptions
from tare.lab.command import PROGRAM, LabPaths, command
from tare.lab.emulator import Emulator, emulator_of
from tare.lab.heartbeat import STAT, stopped_cpus
from tare.lab.host_files import Keys, initramfs, make_keys
from tare.lab.image import LabImage, build_lab_image, make_file_system
from tare.lab.memory import require_memory
from tare.lab.options import GIB, MIB, Hypervisor, LabOptions
from tare.lab.outer import Outer
from tare.lab.own_xen import with_own_xen
from tare.platforms.contract import Context
from tare.platforms.qemu.confinement import Confinement, prove_confined
from tare.programs import QEMU

BOOT_S = 240.0
"""Seconds after which a lab host that is not ready has failed: some ten times its usual boot."""
FIRST_BOOT_S = 90.0
"""Seconds for the first of two boots, because a boot sometimes hangs (`tare help lab`)."""

_DISK_LEAST = 2 * GIB
_CLOSE_S = 8.0
_ENDLESS_S = 10**9
_COUNTED_SILENCE_S = 600.0
_WHICH = "cat /sys/hypervisor/type 2>/dev/null; [ -c /dev/kvm ] && echo kvm; true"

_T = TypeVar("_T")


@dataclass(frozen=True)
class LabTimes:
    """The seconds that each part of a start took."""

    image_s: float
    ready_s: float
    login_s: float


class Lab:
    """A lab host. :func:`lab_up` creates it, and returns it once it is up.

    Args:
        options: The lab host's options.
        image: The image that it booted.
        places: Its files on this computer.
        outer: Its QEMU.
        host: The connection to it.
        port: The port of this computer's loopback that leads to its SSH server.
        remove: Removes its files from this computer.
        emulator: The version and corrections of its QEMU.
    """

    def __init__(
        self,
        options: LabOptions,
        image: LabImage,
        places: LabPaths,
        outer: Outer,
        host: SshHost,
        port: int,
        remove: Callable[[], Awaitable[None]],
        emulator: Emulator,
    ) -> None:
        self.options = options
        self.emulator = emulator
        self.image = image
        self.places = places
        self.host = host
        self.port = port
        self.died = outer.died
        """Set if the lab ends unexpectedly, or freezes (HostFroze), with its last console lines."""
        self.threads: tuple[int, ...] = ()
        """The ids of the threads on this computer that run the lab's CPUs."""
        self.times = LabTimes(image.took_s, 0.0, 0.0)
        self.outer = outer
        """The lab's QEMU."""
        self._remove = remove
        self._stop: asyncio.Future[None] | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.stop()

    @property
    def name(self) -> str:
        """The lab's name in messages."""
        return self.outer.name

    @property
    def pid(self) -> int:
        """The id of the process of the lab's QEMU."""
        return self.outer.pid

    def console_tail(self) -> tuple[str, ...]:
        """Return the last lines of the lab's console, oldest first."""
        return self.outer.console_tail()

    async def while_alive(self, work: Coroutine[Any, Any, _T]) -> _T:
        """Run some work on the lab, and cancel the work if the lab ends.

        Raises:
            MachineFault: The lab ended meanwhile; its own reason replaces an error of the work.
        """
        doing = asyncio.ensure_future(work)
        either: set[asyncio.Future[Any]] = {doing, self.died}
        try:
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            if self.died.done():
                raise self.died.result()
            return doing.result()
        finally:
            if not doing.done():
                doing.cancel()
                await asyncio.wait({doing})

    async def froze(self) -> HostFroze | None:
        """Return the fault if the emulation stopped the lab or one of its CPUs; None if it runs.

        A frozen lab counts as ended: :attr:`died` then holds the fault.
        """
        if not self.died.done():
            try:
                still = await self.while_alive(stopped_cpus(self._cpu_times))
            except MachineFault as fault:
                self.outer.fell_silent(fault)
            else:
                if still:
                    words = f"CPU {', '.join(map(str, still))} no longer takes interrupts"
                    self.outer.fell_silent(HostFroze(f"the emulated host froze: {words}"))
        end = self.died.result() if self.died.done() else None
        return end if isinstance(end, HostFroze) else None

    async def _cpu_times(self) -> str:
        return (await self.host.read(STAT)).decode()

    async def stop(self) -> None:
        """End the lab, and remove its files from this computer; may be called again."""
        if self._stop is None:
            # Shielded: a stop that has begun continues when its caller is cancelled.
            self._stop = begun(self._end())
        await asyncio.shield(self._stop)

    async def _end(self) -> None:
        try:
            # What runs inside ends with it, so nothing waits for an orderly end. The connection
            # is closed first, because it breaks when QEMU ends.
            with contextlib.suppress(TareError, OSError, TimeoutError):
                async with asyncio.timeout(0.0 if self.died.done() else _CLOSE_S):
                    await self.host.close()
            await self.outer.stop()
        finally:
            await self._remove()

    async def boot(self, cpus: tuple[int, ...], timeout_s: float) -> None:
        """Let the lab run, and log in to it once it is ready; for :func:`lab_up`."""
        began = time.monotonic()
        self.threads = await self.outer.go(cpus)
        await self.outer.ready(timeout_s)
        ready = time.monotonic()
        await self.while_alive(self.host.connect())
        await self.while_alive(verify(self.host, self.options.hypervisor))
        self.times = LabTimes(self.image.took_s, ready - began, time.monotonic() - ready)


async def lab_up(
    context: Context,
    options: LabOptions,
    workdir: Path,
    *,
    tell: Callable[[str], None] | None = None,
    timeout_s: float = BOOT_S,
    cpus: tuple[int, ...] | None = None,
) -> Lab:
    """Boot a lab host on this computer and log in to it; boot it once more if it hangs.

    Args:
        context: The ledger, the cache and the agent; its builder is this computer.
        options: Its options.
        workdir: A folder of its own, whose path has a part that begins with ``tare-``; made here,
            removed by :meth:`Lab.stop`. Names of sockets in it may have 107 bytes at most.
        tell: Receives a sentence when it has to be booted again, or the connection to it breaks
            or comes back.
        timeout_s: Seconds until it must be ready.
        cpus: CPUs of this computer for its CPUs, one to one in turn; by default all that this
            process may use; empty: anywhere.

    Raises:
        InputError: apt or QEMU is missing, or there is too little memory or disk.
        MachineFault: It did not boot, or runs another hypervisor than it should.
    """
    boot = partial(_boot, context, options, workdir, tell=tell, cpus=cpus)
    try:
        return await boot(timeout_s=min(FIRST_BOOT_S, timeout_s))
    except MachineFault as fault:
        if not fault.transient:
            raise
        if tell is not None:
            tell(f"{fault.message}; it is booted once more")
    return await boot(timeout_s=timeout_s)


async def _boot(
    context: Context,
    options: LabOptions,
    workdir: Path,
    *,
    tell: Callable[[str], None] | None,
    timeout_s: float,
    cpus: tuple[int, ...] | None,
) -> Lab:
    here = context.builder
    await check_room(here, options, workdir.parent)
    image = await build_lab_image(
        here, options.kernel, context.cache, options.release, options.packages
    )
    if tell is not None:
        for note in image.notes:
            tell(note)
    image = await with_own_xen(here, options, image, context.cache, tell)
    places = LabPaths(workdir)
    entry = context.ledger.record("directory", path=str(workdir))

    async def remove() -> None:
        await here.remove(workdir)
        context.ledger.done(entry)

    try:
        keys = await _furnish(here, options, image, places, context.agent)
        emulator = await emulator_of(here, options, context.cache)
        argv = command(options, image, places, workdir.name, emulator)
        name = f"the lab ({options.hypervisor})"
        outer = await Outer.start(here, context.ledger, argv, places, name)
    except BaseException:
        await remove()
        raise
    try:
        await prove_confined(here, name, outer.pid, Confinement(sandbox=emulator.filters))
        port = await outer.ssh_port()
        places.known_hosts.write_text(keys.known_hosts(port))
        reached = ssh_options(places, port, deterministic=options.deterministic)
        host = SshHost(
            reached,
            context.agent,
            tell=tell,
            leaving=context.leaving,
            # A lab that may reboot does not answer meanwhile.
            on_loss=None if options.reboots else outer.fell_silent,
        )
        lab = Lab(options, image, places, outer, host, port, remove, emulator)
    except BaseException:
        await outer.stop()
        await remove()
        raise
    try:
        await lab.boot(here.topology().online if cpus is None else cpus, timeout_s)
    except BaseException:
        await lab.stop()
        raise
    return lab


def ssh_options(places: LabPaths, port: int, *, deterministic: bool = False) -> SshOptions:
    """Return the SSH options of a lab host, given its port on this computer's loopback.

    Its CPUs are emulated and may all be busy, so its timeouts are longer than a real host's. If its
    time counts instructions, idle minutes pass at once, so its own timeouts prove nothing about
    Tare. There, each request for a sign of life also takes time from what is measured, and a slower
    computer makes more requests in one measurement. So the requests are rare.
    """
    return SshOptions(
        host="127.0.0.1",
        port=port,
        user="root",
        known_hosts=places.known_hosts,
        key=places.key,
        connect_s=60.0,
        silence_s=_COUNTED_SILENCE_S if deterministic else 30.0,
        patience_s=60.0,
        lease_s=_ENDLESS_S if deterministic else 120,
        emulated=True,
    )


async def hypervisor_of(host: Host) -> Hypervisor:
    """Return the hypervisor of a host: ``xen`` in its dom0, ``kvm`` with ``/dev/kvm``.

    Source: Linux's Documentation/ABI/stable/sysfs-hypervisor-xen, ``/sys/hypervisor/type``.
    """
    words = (await host.run(["sh", "-c", _WHICH], timeout_s=60)).stdout.decode().split()
    return "xen" if "xen" in words else "kvm" if "kvm" in words else "none"


async def verify(host: Host, wanted: Hypervisor) -> None:
    """Check that a host came up with the requested hypervisor.

    Raises:
        MachineFault: The host runs another hypervisor, or none.
    """
    found = await hypervisor_of(host)
    if found != wanted:
        names = {"xen": "Xen", "kvm": "KVM", "none": "no hypervisor"}
        raise MachineFault(
            f"{host.name} came up with {names[found]} and not with {names[wanted]}",
            "look at what it boots by default",
        )


async def check_room(here: Host, options: LabOptions, folder: Path) -> None:
    """Check that QEMU is here, and that memory and disk suffice.

    Raises:
        InputError: Something is missing; the hint says what to do.
    """
    await _require_emulator(here, options.qemu)
    require_memory((await here.read("/proc/meminfo")).decode(), options.memory)
    free = (await asyncio.to_thread(shutil.disk_usage, folder)).free
    if free < _DISK_LEAST:
        raise InputError(
            f"the lab's disk wants {_DISK_LEAST // MIB} MiB to write to, and {folder} has "
            f"{free // MIB} MiB",
            "make room there, or set TMPDIR to another directory",
        )


async def _require_emulator(here: Host, own: str) -> None:
    if own:
        try:
            answer = (await here.run([own, "--version"], timeout_s=30)).stdout
        except InputError as error:
            raise InputError(f"the lab's QEMU {own} does not run: {error.message}") from error
        if not answer.startswith(b"QEMU emulator"):
            raise InputError(
                f"{own} does not say that it is QEMU's emulator",
                "name the file of a qemu-system-x86_64",
            )
        return
    found = await here.run(["sh", "-c", f"command -v {PROGRAM}"], timeout_s=30)
    if not found.ok:
        raise InputError(
            f"there is no {PROGRAM} here, in which the lab is emulated",
            f"{await install_command_for(here, QEMU)}; or name the file of one: lab: "
            "{qemu: FILE}",
        )


async def _furnish(
    here: Host, options: LabOptions, image: LabImage, places: LabPaths, agent: Path
) -> Keys:
    """Fill the lab's folder: keys, initramfs, and the disk for writes."""
    try:
        places.folder.mkdir(mode=0o700, parents=True)
        keys = make_keys()
        await asyncio.to_thread(_secret, places.key, keys.client.export_private_key("openssh"))
        archive = await asyncio.to_thread(initramfs, image, options, keys, agent)
        await asyncio.to_thread(_secret, places.initramfs, archive)
        await make_file_system(here, places.room, size=options.disk)
    except OSError as error:
        raise InputError(
            f"the lab's folder {places.folder} cannot be made: {error.strerror or error}",
            "make room there, or set TMPDIR to another directory",
        ) from error
    return keys


def _secret(path: Path, data: bytes) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(fd, "wb") as file:
        file.write(data)
