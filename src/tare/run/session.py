"""What one command of Tare works with: a host, its ledger, the cache, and who holds it."""

from __future__ import annotations

import hashlib
import os
import secrets
import shutil
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tare.errors import InputError, TareError
from tare.events import Record
from tare.hosts.cleanup import clean, clean_all
from tare.hosts.ledger import Ledger, ledger_path, state_dir
from tare.hosts.local import LocalHost
from tare.hosts.lock import host_lock
from tare.platforms import PLATFORMS
from tare.platforms.base import Context
from tare.platforms.preflight import preflight, watch_load
from tare.run.bench import Bench, Decide, Decision, StudySource
from tare.run.hostfacts import facts_afar, host_facts
from tare.run.station import LocalStation, Station
from tare.study.model import Study
from tare.workloads import WORKLOADS

if TYPE_CHECKING:
    from tare.events import Check
    from tare.hosts import Host
    from tare.hosts.ssh import SshHost
    from tare.hosts.ssh_options import SshOptions

__all__ = [
    "agent_path",
    "cache_dir",
    "host_facts",
    "inspection_bench",
    "local_bench",
    "local_context",
    "new_run_id",
    "reach",
    "run_session",
    "study_source",
]


def new_run_id() -> str:
    """Return a short identity, unique enough to name machines on one host by."""
    return f"{time.strftime('%m%d')}-{secrets.token_hex(3)}"


def agent_path() -> Path:
    """Find the agent that was installed with Tare.

    Raises:
        InputError: It is not there.
    """
    beside = Path(sys.executable).parent / "tare-agent"
    found = str(beside) if beside.is_file() else shutil.which("tare-agent")
    if found is None:
        raise InputError(f"the agent is missing ({beside})", "run `make setup`")
    return Path(found)


def cache_dir() -> Path:
    """Return where images and packages are kept: ``$XDG_CACHE_HOME/tare`` or ``~/.cache/tare``."""
    base = os.environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser()
    return Path(base) / "tare"


def study_source(path: Path) -> StudySource:
    """Return where a study came from, with the SHA-256 of its bytes."""
    return StudySource(str(path), hashlib.sha256(path.read_bytes()).hexdigest())


def local_context(ledger: Ledger) -> Context:
    """Return the context of platforms on this computer."""
    agent = agent_path()
    return Context(host=LocalHost(agent), ledger=ledger, cache=cache_dir(), agent=agent)


@contextmanager
def local_bench() -> Iterator[Bench]:
    """Look at this computer without holding it: for the doctor, which measures nothing."""
    ledger = Ledger(ledger_path(f"look-{secrets.token_hex(4)}"))
    try:
        station = LocalStation(local_context(ledger), PLATFORMS, host_facts())
        yield _look(station)
    finally:
        ledger.discard()


@asynccontextmanager
async def inspection_bench(study: Study) -> AsyncIterator[Bench]:
    """Look at a study's host without holding it: for plans, which measure nothing."""
    name = f"look-{secrets.token_hex(4)}"
    async with _stationed(study, name, lambda _: None, hold=False) as station:
        yield _look(station)


def _look(station: Station) -> Bench:
    async def nothing() -> tuple[Check, ...]:
        return ()

    return Bench(station=station, workloads=WORKLOADS, decide=_never, preflight=nothing)


def _never(study: Study, records: Sequence[Record], blocks_done: int) -> Decision:
    return Decision(go_on=False, reason="nothing is measured")


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
) -> AsyncIterator[Bench]:
    """Hold a study's host for one run, and leave it as it was found.

    Raises:
        InputError: Another run holds the host, or the host cannot be used.
        MachineFault: The host cannot be reached.
    """
    async with _stationed(study, run, say, hold=True) as station:
        host = station.context.host
        watch = await watch_load(host)
        yield Bench(
            station=station,
            workloads=WORKLOADS,
            decide=decide,
            preflight=lambda: preflight(host, output, watch, station.context.builder),
            say=say,
            subscribers=subscribers,
            on_progress=on_progress,
        )


@asynccontextmanager
async def _stationed(
    study: Study, run: str, say: Callable[[str], None], *, hold: bool
) -> AsyncIterator[Station]:
    """Reach the study's host, clear it of what killed runs left, and keep a ledger of it."""
    async with AsyncExitStack() as held:
        if study.host.kind == "ssh":
            opening = _afar(study, run, say, hold=hold)
        else:
            opening = _here(study, run, say, hold=hold)
        yield await held.enter_async_context(opening)


@asynccontextmanager
async def _here(
    study: Study, run: str, say: Callable[[str], None], *, hold: bool
) -> AsyncIterator[Station]:
    async with AsyncExitStack() as held:
        if hold:
            held.enter_context(host_lock(run))
            await _clear(LocalHost(agent_path()), say)
        ledger = await held.enter_async_context(_ledger(run, lambda: context.host, say))
        context = local_context(ledger)
        station: Station = LocalStation(context, PLATFORMS, host_facts())
        if study.host.kind == "lab":
            from tare.run.labstation import LabStation

            station = LabStation(context, PLATFORMS, host_facts(), study.lab, say)
        held.push_async_callback(station.close)
        yield station


@asynccontextmanager
async def _afar(
    study: Study, run: str, say: Callable[[str], None], *, hold: bool
) -> AsyncIterator[Station]:
    # Loaded here: a run on this computer should not wait for it.
    from tare.hosts.ssh import SshHost
    from tare.run.sshstation import SshStation, remote_lock, running, ssh_options, way_of

    agent = agent_path()
    options = ssh_options(study.host)
    async with AsyncExitStack() as held:
        if hold:
            held.enter_context(host_lock(run, state_dir() / f"lock-{_slug(options)}"))
        host = await held.enter_async_context(SshHost(options, agent, tell=say))
        if hold:
            await _clear(host, say)
        made = _ledger(run, lambda: host, say, afar=(host, way_of(options)))
        ledger = await held.enter_async_context(made)
        if hold:
            await held.enter_async_context(remote_lock(host, ledger, run))
        context = Context(
            host=host, ledger=ledger, cache=cache_dir(), agent=agent, here=LocalHost(agent)
        )
        yield SshStation(
            host,
            context,
            PLATFORMS,
            await facts_afar(host),
            study.host.boot,
            await running(host),
            say,
        )


@asynccontextmanager
async def _ledger(
    run: str,
    host: Callable[[], Host],
    say: Callable[[str], None],
    afar: tuple[SshHost, Mapping[str, Any]] | None = None,
) -> AsyncIterator[Ledger]:
    """Keep a run's ledger, and undo in the end what is still open in it."""
    path = ledger_path(run)
    if afar is None:
        ledger = Ledger(path)
    else:
        ledger = Ledger(path, host=afar[0].name, boot=afar[0].boot_id, reach=afar[1])
    try:
        yield ledger
    finally:
        try:
            if ledger.open_entries() and afar is not None:
                # One attempt for all of them: a host that is gone stays so for each.
                await afar[0].connect()
            for sentence in await clean(host(), ledger):
                say(sentence)
        except TareError as error:
            say(f"What is left on {host().name} is listed for `tare clean`: {error}.")
        ledger.discard()


async def _clear(host: Host, say: Callable[[str], None]) -> None:
    for sentence in await clean_all(host):
        say(f"left behind by a killed run: {sentence}")


def _slug(options: SshOptions) -> str:
    return hashlib.sha256(options.name.encode()).hexdigest()[:16]


@asynccontextmanager
async def reach(way: Mapping[str, Any]) -> AsyncIterator[Host]:
    """Open another host by what a ledger says of the way to it.

    Raises:
        InputError, MachineFault: As :meth:`tare.hosts.ssh.SshHost.connect` says.
    """
    from tare.hosts.ssh import SshHost
    from tare.run.sshstation import options_of

    async with SshHost(options_of(way), agent_path()) as host:
        yield host
