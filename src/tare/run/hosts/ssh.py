"""A run on a host over SSH, which is rebooted with GRUB if arms need another hypervisor."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import cached_property
from typing import TYPE_CHECKING, Any

from tare.errors import HostFroze, InputError, MachineFault
from tare.hosts.lock import HELD, LOCK_AFAR, holder_afar, run_of, taken
from tare.hosts.processes import OwnedProcess, start_owned
from tare.hosts.ssh.finding import options_for
from tare.hosts.ssh.options import SshOptions
from tare.platforms.contract import ANY_BOOT, KVM_BOOT, NO_HYPERVISOR
from tare.platforms.host_hypervisor import hypervisor_of, hypervisors_of
from tare.run.hosts.booted import RunningHypervisor, boot_words, running
from tare.run.hosts.contract import REMOTE_MACHINE_S, no_tracing
from tare.study.planning.host_cpus import HostCpus
from tare.study.reading.hosting import menu_key

if TYPE_CHECKING:
    from tare.hosts import Host, Ledger
    from tare.hosts.ssh.host import SshHost
    from tare.platforms.contract import Context, Platform
    from tare.platforms.host_hypervisor import HostHypervisor
    from tare.run.probes.host_trace import HostTracing
    from tare.study.model.releases import Release
    from tare.study.reading.hosting import Boot, HostSpec

REBOOT_S = 120.0
"""Seconds that a reboot takes; only for the plan's estimate."""
RETURN_S = 300.0
"""Seconds to wait for a lost host, if the study does not set them."""
TRY_EVERY_S = 2.0
ASK_S = 30.0
RELEASE_S = 5.0
"""Seconds that the process with a host's lock may take to end by itself."""


def ssh_options(spec: HostSpec) -> SshOptions:
    """Return the connection options of a study's host."""
    assert spec.ssh is not None
    return options_for(spec.ssh, spec, spec.patience, kept_in=spec.folder)


def remote_boot(platform: Platform[Any], options: Any, menu: Boot | None) -> str:
    """Return how a host over SSH has to be booted for a platform's machines.

    Without a boot menu, boots differ only by the hypervisor below the kernel. If a boot menu has no
    kernel without a hypervisor, arms that should run without one use the menu's first entry, see
    :func:`tare.run.hosts.booted.mark_of`.

    Args:
        platform: The platform.
        options: An arm's options.
        menu: The host's boot menu, if the study has one.
    """
    wanted = platform.stated(options).host_boot
    if wanted == KVM_BOOT:
        return KVM_BOOT if has_kvm_entry(menu) else NO_HYPERVISOR
    if wanted not in (ANY_BOOT, NO_HYPERVISOR):
        return wanted
    return next(iter(menu.boots), ANY_BOOT) if menu else ANY_BOOT


def has_kvm_entry(menu: Boot | None) -> bool:
    """Return whether a boot menu has one kernel for KVM and another without a hypervisor."""
    return menu is not None and menu.entry_of(KVM_BOOT) != menu.entry_of(NO_HYPERVISOR)


class SshRunHost:
    """A host over SSH.

    Args:
        host: The host, connected.
        context: The context of its platforms.
        platforms: All platforms by name.
        facts: The facts that identify the host.
        boot: Its boot menu, if the study has one.
        now: The hypervisor that it runs.
        say: Shows the user a sentence about slow steps.
    """

    here = False
    emulated = False
    crowding = ""
    machine_s = REMOTE_MACHINE_S
    counts_instructions = False

    def __init__(
        self,
        host: SshHost,
        context: Context,
        platforms: Mapping[str, Platform[Any]],
        facts: Mapping[str, Any],
        boot: Boot | None,
        now: RunningHypervisor,
        say: Callable[[str], None],
    ) -> None:
        self.context = context
        self.platforms = platforms
        self.facts = facts
        self.name = host.name
        self.boot_s = REBOOT_S if boot else 0.0
        self._host = host
        self._menu = boot
        self._now = now
        self._known_boot = host.boot_id()
        self._booted = ""
        self._say = say
        self._given_up = False
        self._lost: asyncio.Future[MachineFault] = asyncio.get_running_loop().create_future()

    @cached_property
    def _hypervisors(self) -> Mapping[str, HostHypervisor]:
        # Loads all platforms, which only a host that is rebooted needs.
        return hypervisors_of(self.platforms.values())

    @property
    def cpus(self) -> HostCpus:
        """The host's CPUs; under a hypervisor all CPUs that the hypervisor reports."""
        if cpus := self._now.details.cpus:
            return HostCpus(online=tuple(range(cpus)))
        return self._host.topology()

    @property
    def hypervisor(self) -> str:
        """The hypervisor that is currently below the host's kernel."""
        return self._now.words

    @property
    def lost(self) -> asyncio.Future[MachineFault]:
        """A future that is never set: each operation on a lost host fails by itself."""
        return self._lost

    def boot_of(self, platform: Platform[Any], options: Any, release: Release | None = None) -> str:
        """Return the boot that the platform needs, as far as the host offers it."""
        return remote_boot(platform, options, self._menu)

    async def under(self, boot: str, block: int) -> Context:
        """Reboot the host if it runs another hypervisor; return the context of its platforms.

        Raises:
            InputError: It would have to be rebooted, and the study has no entry for that.
            MachineFault: The host did not come back, or came back with another boot.
        """
        await self._reach()
        if self._runs(boot):
            return self.context
        await self._reboot(boot)
        if not self._now.is_(boot):
            raise MachineFault(
                f"{self._host.name} was rebooted for {boot} and came back with {self._now}",
                "check `host: boot:` in the study against the host's boot menu",
            )
        self._booted = boot
        return self.context

    async def froze(self) -> HostFroze | None:
        """Return None: it is not emulated."""
        return None

    def _runs(self, boot: str) -> bool:
        # Two kernels without a hypervisor look the same: Tare only knows which one it booted.
        ambiguous = boot in (NO_HYPERVISOR, KVM_BOOT) and has_kvm_entry(self._menu)
        return self._now.is_(boot) and (not ambiguous or self._booted == boot)

    def tracing(self) -> AbstractAsyncContextManager[HostTracing]:
        """Record nothing for the whole run: the host may be rebooted between its batches.

        Each batch has its own recorder, see :func:`tare.run.cells.batch.traced_cells`.
        """
        return no_tracing(self._host, f"{self._host.name} is recorded batch by batch")

    async def close(self) -> None:
        """End the processes that were started there, and the connection."""
        await self._host.close()

    async def _reach(self) -> None:
        """Wait for a lost host, and detect its hypervisor again if it was rebooted."""
        deadline = time.monotonic() + (0.0 if self._given_up else self._patience_s)
        while True:
            try:
                await self._host.connect()
                break
            except MachineFault:
                if time.monotonic() >= deadline:
                    self._given_up = True
                    raise
                await asyncio.sleep(TRY_EVERY_S)
        self._given_up = False
        if self._host.boot_id() != self._known_boot:
            self._now, self._booted = await running(self._host, self._hypervisors), ""
            self._known_boot = self._host.boot_id()

    def _scheduler_advice(self, word: str) -> str:
        """Return advice to use the running scheduler, if only the scheduler differs."""
        scheduler = self._now.details.scheduler
        if self._now.below is None or self._now.below.word != word or not scheduler:
            return ""
        return f"; or measure with the scheduler that runs: --set arms.ARM.scheduler={scheduler}"

    @property
    def _patience_s(self) -> float:
        return self._menu.patience if self._menu else RETURN_S

    async def _reboot(self, boot: str) -> None:
        word = hypervisor_of(boot)
        if word and word not in self._hypervisors:
            raise InputError(
                f"needs a host booted with {word}, but no platform declares how to detect it",
                "its platform has to state it under `host_hypervisors`, see `tare help extending`",
            )
        entry = self._menu.entry_of(boot) if self._menu else None
        if entry is None:
            raise InputError(
                f"needs {boot_words(boot, self._hypervisors)}, and {self._host.name} runs "
                f"{self._now}",
                f"boot it with that, or name the entry: host: {{boot: {{{menu_key(boot)}: "
                f"{{entry: …}}}}}}{self._scheduler_advice(word)}",
            )
        self._say(f"rebooting {self._host.name} into {entry!r}")
        before = self._host.boot_id()
        chosen = await self._host.run(["grub-reboot", entry], timeout_s=ASK_S)
        if not chosen.ok:
            raise MachineFault(f"{self._host.name}: grub-reboot {entry!r}: {chosen.words()}")
        # The connection may break before the answer comes.
        with contextlib.suppress(MachineFault, OSError):
            await self._host.run(["sync"], timeout_s=ASK_S)
            asked = await self._host.run(["reboot"], timeout_s=ASK_S)
            if not asked.ok:
                raise InputError(f"{self._host.name} refuses to reboot: {asked.words()}")
        deadline = time.monotonic() + self._patience_s
        while time.monotonic() < deadline:
            await asyncio.sleep(TRY_EVERY_S)
            # A host that comes up refuses connections, and then logins, for a while.
            with contextlib.suppress(MachineFault, InputError, OSError):
                # This logs in again once the old connection is known to be lost.
                await self._host.run(["true"], timeout_s=self._patience_s)
                if self._host.boot_id() != before:
                    break
        await self._reach()
        if self._host.boot_id() == before:
            raise MachineFault(
                f"{self._host.name} did not reboot within {self._patience_s:g} s", transient=True
            )


class RemoteLock:
    """The lock of a host over SSH, held by a process there that ends with Tare.

    A host without ``flock`` is not locked.

    Args:
        host: The host.
        ledger: The ledger that records the process.
        run: The run that holds it.
    """

    def __init__(self, host: Host, ledger: Ledger, run: str) -> None:
        self._host = host
        self._ledger = ledger
        self._run = run
        self._process: OwnedProcess | None = None

    async def take(self) -> None:
        """Take the lock; raise HostHeld if another run, on any computer, has it."""
        argv = ["sh", "-c", LOCK_AFAR, "sh", self._run]
        self._process = process = await start_owned(self._host, self._ledger, argv)
        answer = await process.stdout.readline()
        # The same run may hold the lock already, if it also uses this host as its local one.
        if answer != b"held\n":
            found = holder_afar(await process.stdout.readline())
            if await process.wait() == HELD and run_of(answer) != self._run:
                raise taken(found, self._host.name)

    async def release(self) -> None:
        """Release the lock to other runs."""
        process, self._process = self._process, None
        if process is not None:
            # A part of the script holds the lock too, and ends with its input.
            process.stdin.close()
            with contextlib.suppress(MachineFault):
                await process.end(RELEASE_S)


@asynccontextmanager
async def remote_lock(host: Host, ledger: Ledger, run: str) -> AsyncIterator[RemoteLock]:
    """Lock a host over SSH for a run: two runs at once would disturb each other.

    Raises:
        InputError: Another run, on any computer, has the lock.
    """
    lock = RemoteLock(host, ledger, run)
    try:
        await lock.take()
        yield lock
    finally:
        await lock.release()
