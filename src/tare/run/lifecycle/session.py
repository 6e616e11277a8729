"""The resources of one command of Tare: hosts, their ledgers and locks, and the cache."""

from __future__ import annotations

import hashlib
import os
import secrets
import shutil
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tare.errors import InputError, TareError
from tare.events import Fold, Record
from tare.hosts.leaving import Leaving
from tare.hosts.ledger.cleanup import clean, clean_all
from tare.hosts.ledger.ledger import Ledger, ledger_path, state_dir
from tare.hosts.local import LocalHost
from tare.hosts.lock import host_lock
from tare.platforms.contract import Context
from tare.platforms.linux.preflight import preflight, watch_load
from tare.registry import installed
from tare.run.catalog import probe_kinds
from tare.run.hosts.contract import LocalRunHost, RunHost
from tare.run.hosts.host_facts import host_facts, remote_host_facts
from tare.run.lifecycle.setup import Decide, Decision, RunSetup, StudySource
from tare.run.lifecycle.undoers import all_undoers
from tare.run.preflight.cache_wait import ReleasableLock, releasing_while_waiting
from tare.run.preflight.calibrating import calibrate
from tare.run.preflight.checking import arranged_cpus, arranging_of
from tare.run.preflight.noise import noise_of_hosts
from tare.study.model.study import Study

if TYPE_CHECKING:
    from tare.events import Calibrated, Check, NoiseMeasured
    from tare.hosts import Host
    from tare.hosts.ssh.host import SshHost
    from tare.hosts.ssh.options import SshOptions
    from tare.study.reading.hosting import HostSpec, LabSpec

__all__ = [
    "agent_path",
    "cache_dir",
    "host_facts",
    "inspection_setup",
    "local_context",
    "local_setup",
    "new_run_id",
    "reach",
    "run_session",
    "study_source",
]


def new_run_id() -> str:
    """Return a short identity, unique enough for names of machines on one host."""
    return f"{time.strftime('%m%d')}-{secrets.token_hex(3)}"


def agent_path() -> Path:
    """Find the agent that was installed with Tare.

    Raises:
        InputError: The agent is missing.
    """
    adjacent = Path(sys.executable).parent / "tare-agent"
    found = str(adjacent) if adjacent.is_file() else shutil.which("tare-agent")
    if found is None:
        raise InputError(
            "Tare's agent, the program that measures in machines, is missing: there is neither "
            f"{adjacent} nor a tare-agent on the PATH",
            "install Tare's package again, which includes it; in Tare's repository: make setup",
        )
    return Path(found)


def cache_dir() -> Path:
    """Return the folder of images and packages: ``$XDG_CACHE_HOME/tare`` or ``~/.cache/tare``."""
    base = os.environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser()
    return Path(base) / "tare"


def study_source(path: Path, changes: tuple[str, ...] = ()) -> StudySource:
    """Return the origin of a study: its file, the SHA-256 of its bytes, and the changes."""
    return StudySource(str(path), hashlib.sha256(path.read_bytes()).hexdigest(), changes)


def local_context(ledger: Ledger, say: Callable[[str], None] = lambda _: None) -> Context:
    """Return the context of platforms on this computer; ``say`` shows the user a sentence."""
    agent = agent_path()
    return Context(host=LocalHost(agent), ledger=ledger, cache=cache_dir(), agent=agent, say=say)


@contextmanager
def local_setup() -> Iterator[RunSetup]:
    """Open this computer for inspection without locking it, for ``tare doctor``."""
    ledger = Ledger(ledger_path(f"look-{secrets.token_hex(4)}"))
    try:
        run_host = LocalRunHost(local_context(ledger), installed().platforms, host_facts())
        yield _look({"": run_host})
    finally:
        ledger.discard()


@asynccontextmanager
async def inspection_setup(study: Study) -> AsyncIterator[RunSetup]:
    """Open a study's hosts for inspection without locking them, for ``tare plan``."""
    name = f"look-{secrets.token_hex(4)}"
    async with _run_host_of(study, name, lambda _: None, hold=False) as run_hosts:
        yield _look(run_hosts)


def _look(run_hosts: Mapping[str, RunHost]) -> RunSetup:
    async def nothing() -> tuple[Check, ...]:
        return ()

    workloads = installed().workloads
    return RunSetup(run_hosts=run_hosts, workloads=workloads, decide=_never, preflight=nothing)


def _never(study: Study, fold: Fold, blocks_done: int) -> Decision:
    return Decision(continues=False, reason="nothing is measured")


@asynccontextmanager
async def run_session(
    run: str,
    study: Study,
    *,
    output: Path,
    decide: Decide,
    subscribers: tuple[Callable[[Record], None], ...],
    on_progress: Callable[[str, float, Mapping[str, Any]], None],
    say: Callable[[str], None],
) -> AsyncIterator[RunSetup]:
    """Lock a study's hosts for one run, and restore them afterwards.

    Raises:
        InputError: Another run holds a host, or a host cannot be used.
        MachineFault: A host cannot be reached.
    """
    async with _run_host_of(study, run, say, hold=True) as run_hosts:
        watches = {name: await watch_load(each.context.host) for name, each in run_hosts.items()}

        async def checks() -> tuple[Check, ...]:
            found: list[Check] = []
            for name, run_host in run_hosts.items():
                context = run_host.context
                there = await preflight(context.host, output, watches[name], context.builder)
                found += [_named(check, name) for check in there]
            return tuple(found)

        async def noise() -> tuple[NoiseMeasured, ...]:
            return await noise_of_hosts(run_hosts, installed().workloads, study)

        async def calibrated() -> tuple[Calibrated, ...]:
            # An emulated computer's clock and memory are its emulator's.
            real = {name: each for name, each in run_hosts.items() if not each.emulated}
            return tuple([await calibrate(each.context, name) for name, each in real.items()])

        yield RunSetup(
            run_hosts=run_hosts,
            workloads=installed().workloads,
            decide=decide,
            preflight=checks,
            noise=noise,
            calibrate=calibrated,
            say=say,
            subscribers=subscribers,
            on_progress=on_progress,
            probe_kinds=probe_kinds(study),
        )


def _counts_instructions(study: Study) -> bool:
    """Return whether all machines that a study runs here are timed by counted instructions."""
    here = [spec for spec in study.computers.values() if spec.kind != "ssh"]
    return study.lab.deterministic and all(spec.kind == "lab" for spec in here)


def _named(check: Check, host: str) -> Check:
    """Return a check with the name of its host, if the host has one."""
    return check.model_copy(update={"name": f"{check.name} on {host}"}) if host else check


@asynccontextmanager
async def _run_host_of(
    study: Study, run: str, say: Callable[[str], None], *, hold: bool
) -> AsyncIterator[Mapping[str, RunHost]]:
    """Connect to a study's hosts, remove leftovers of killed runs, and keep a ledger of each."""
    async with AsyncExitStack() as held:
        holds: list[ReleasableLock] = []
        if hold:
            held.enter_context(releasing_while_waiting(holds, say))
        if hold and any(spec.kind != "ssh" for spec in study.computers.values()):
            holds.append(held.enter_context(host_lock(run, shared=_counts_instructions(study))))
            await _clear(LocalHost(agent_path()), say)
        run_hosts: dict[str, RunHost] = {}
        for name, spec in study.computers.items():
            ledger = f"{run}-{name}" if name else run
            if spec.kind == "ssh":
                opening = _remote(spec, run, ledger, say, holds if hold else None)
            else:
                opening = _here(spec, study.lab, ledger, say)
            run_hosts[name] = run_host = await held.enter_async_context(opening)
            arranged_cpus(study, name, run_host.cpus)
            if not run_host.emulated:
                run_host.context.host.arrange(arranging_of(study, name))
        yield run_hosts


@asynccontextmanager
async def _here(
    spec: HostSpec, lab: LabSpec, ledger_name: str, say: Callable[[str], None]
) -> AsyncIterator[RunHost]:
    async with AsyncExitStack() as held:
        ledger = await held.enter_async_context(_ledger(ledger_name, lambda: context.host, say))
        context = local_context(ledger, say)
        run_host: RunHost = LocalRunHost(context, installed().platforms, host_facts())
        if spec.kind == "lab":
            from tare.run.hosts.lab import LabRunHost

            run_host = LabRunHost(context, installed().platforms, host_facts(), lab, say)
        held.push_async_callback(run_host.close)
        yield run_host


@asynccontextmanager
async def _remote(
    spec: HostSpec,
    run: str,
    ledger_name: str,
    say: Callable[[str], None],
    holds: list[ReleasableLock] | None,
) -> AsyncIterator[RunHost]:
    # Imported here, because a run on this computer does not need it.
    from tare.hosts.ssh.host import SshHost
    from tare.hosts.ssh.options import way_of
    from tare.run.hosts.booted import running
    from tare.run.hosts.ssh import SshRunHost, remote_lock, ssh_options

    agent, leaving = agent_path(), Leaving()
    options = ssh_options(spec)
    async with AsyncExitStack() as held:
        if holds is not None:
            own = state_dir() / f"lock-{_slug(options)}"
            holds.append(held.enter_context(host_lock(run, own)))
        with leaving.if_cancelled():
            host = await held.enter_async_context(
                SshHost(options, agent, tell=say, leaving=leaving)
            )
            if holds is not None:
                await _clear(host, say)
            made = _ledger(ledger_name, lambda: host, say, afar=(host, way_of(options)))
            ledger = await held.enter_async_context(made)
            if holds is not None:
                lock = remote_lock(host, ledger, run)
                holds.append(await held.enter_async_context(lock))
            context = Context(
                host=host,
                ledger=ledger,
                cache=cache_dir(),
                agent=agent,
                here=LocalHost(agent),
                leaving=leaving,
                say=say,
            )
            yield SshRunHost(
                host,
                context,
                installed().platforms,
                await remote_host_facts(host),
                spec.boot,
                await running(host, installed().hypervisors),
                say,
            )


@asynccontextmanager
async def _ledger(
    name: str,
    host: Callable[[], Host],
    say: Callable[[str], None],
    afar: tuple[SshHost, Mapping[str, Any]] | None = None,
) -> AsyncIterator[Ledger]:
    """Keep a run's ledger of one host, and finally undo its open entries."""
    path = ledger_path(name)
    if afar is None:
        ledger = Ledger(path)
    else:
        ledger = Ledger(path, host=afar[0].name, boot=afar[0].boot_id, reach=afar[1])
    try:
        yield ledger
    finally:
        try:
            if ledger.open_entries() and afar is not None:
                # Connect once for all entries: if that fails, it fails for each.
                await afar[0].connect()
            undoers = all_undoers() if ledger.open_entries() else {}
            for sentence in await clean(host(), ledger, undoers):
                say(sentence)
        except TareError as error:
            say(f"What is left on {host().name} is listed for `tare clean`: {error}.")
        ledger.discard()


async def _clear(host: Host, say: Callable[[str], None]) -> None:
    for sentence in await clean_all(host, all_undoers, report_running=False):
        say(f"left behind by a killed run: {sentence}")


def _slug(options: SshOptions) -> str:
    return hashlib.sha256(options.name.encode()).hexdigest()[:16]


@asynccontextmanager
async def reach(way: Mapping[str, Any]) -> AsyncIterator[Host]:
    """Open a remote host by the connection options that a ledger recorded.

    Raises:
        InputError, MachineFault: See :meth:`tare.hosts.ssh.host.SshHost.connect`.
    """
    from tare.hosts.ssh.host import SshHost
    from tare.hosts.ssh.options import options_of

    async with SshHost(options_of(way), agent_path()) as host:
        yield host
