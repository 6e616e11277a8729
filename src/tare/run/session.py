"""What one command of Tare works with on this computer: host, ledger, cache, lock."""

from __future__ import annotations

import hashlib
import os
import platform
import secrets
import shutil
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

from tare.errors import InputError
from tare.events import Record
from tare.hosts.cleanup import clean, clean_all
from tare.hosts.ledger import Ledger, ledger_path
from tare.hosts.local import LocalHost
from tare.hosts.lock import host_lock
from tare.platforms import PLATFORMS
from tare.platforms.base import Context
from tare.platforms.preflight import LoadWatch, preflight, watch_load
from tare.run.bench import Bench, Decide, Decision, StudySource
from tare.study.model import Study
from tare.workloads import WORKLOADS


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


def host_facts() -> dict[str, Any]:
    """Return what identifies this computer in a report; nothing personal."""
    system = platform.uname()
    return {
        "kernel": system.release,
        "machine": system.machine,
        "cpu_model": _cpu_model(),
        "cpus": os.cpu_count(),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "os": _os_name(),
    }


def _cpu_model() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor()


def _os_name() -> str:
    try:
        return platform.freedesktop_os_release().get("PRETTY_NAME", "")
    except OSError:
        return ""


def local_context(ledger: Ledger) -> Context:
    """Return the context of platforms on this computer."""
    agent = agent_path()
    return Context(host=LocalHost(agent), ledger=ledger, cache=cache_dir(), agent=agent)


@contextmanager
def inspection_bench() -> Iterator[Bench]:
    """Look at this host without holding it: for plans and the doctor, which measure nothing."""
    ledger = Ledger(ledger_path(f"look-{secrets.token_hex(4)}"))
    try:
        yield _bench(local_context(ledger), Path.cwd(), decide=_never)
    finally:
        ledger.discard()


def _never(study: Study, records: Sequence[Record], blocks_done: int) -> Decision:
    return Decision(go_on=False, reason="nothing is measured")


def _bench(
    context: Context,
    output: Path,
    *,
    decide: Decide,
    watch: LoadWatch | None = None,
    say: Callable[[str], None] = lambda _: None,
    subscribers: tuple[Callable[[Record], None], ...] = (),
    on_progress: Callable[[str, float, Mapping[str, Any]], None] = lambda *_: None,
) -> Bench:
    return Bench(
        context=context,
        platforms=PLATFORMS,
        workloads=WORKLOADS,
        cpus=context.host.topology(),
        decide=decide,
        preflight=lambda: preflight(context.host, output, watch),
        host_facts=host_facts(),
        say=say,
        subscribers=subscribers,
        on_progress=on_progress,
    )


@asynccontextmanager
async def run_session(
    run: str,
    *,
    output: Path,
    decide: Decide,
    subscribers: tuple[Callable[[Record], None], ...],
    on_progress: Callable[[str, float, Mapping[str, Any]], None],
    say: Callable[[str], None],
) -> AsyncIterator[Bench]:
    """Hold this host for one run, and leave it as it was found.

    Raises:
        InputError: Another run holds the host.
    """
    with host_lock(run):
        for sentence in await clean_all(LocalHost(agent_path())):
            say(f"left behind by a killed run: {sentence}")
        ledger = Ledger(ledger_path(run))
        context = local_context(ledger)
        try:
            yield _bench(
                context,
                output,
                decide=decide,
                watch=await watch_load(context.host),
                say=say,
                subscribers=subscribers,
                on_progress=on_progress,
            )
        finally:
            for sentence in await clean(context.host, ledger):
                say(sentence)
            ledger.discard()
