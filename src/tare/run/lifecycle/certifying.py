"""What ``tare certify`` does: the suite, then a study, then one file without secrets."""

from __future__ import annotations

import getpass
import json
import os
import platform as computer
import secrets
import socket
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from rich.console import Console

from tare.errors import InputError, MachineFault
from tare.events import Fold, read_events
from tare.hosts import Ledger, LocalHost
from tare.hosts.ledger.ledger import ledger_path
from tare.hosts.lock import host_lock
from tare.outputs import put_for_user
from tare.platforms.certificates.hiding import (
    hidden,
    plain_options,
    texts_to_hide,
    wanted_events,
)
from tare.platforms.certificates.model import Case, Certificate, Written, results_of
from tare.platforms.contract import Capabilities, Context, PlatformOptions, Verdict
from tare.platforms.vendors.offer import least_memory
from tare.registry import installed
from tare.run.catalog import build_catalog
from tare.run.lifecycle.certifying_order import Order
from tare.run.lifecycle.session import agent_path, cache_dir, study_source
from tare.run.lifecycle.setup import Decision
from tare.run.lifecycle.versions import agent_identity, tare_version
from tare.run.ui.foreground import carry_out as carry_study_out
from tare.study.model.study import Study
from tare.study.reading.hosts_file import HYPERVISORS
from tare.study.reading.load import load_study

SUBJECT, BARE = "subject", "bare"
WORKLOADS: dict[str, dict[str, Any]] = {
    "tick": {"samples": 20000},
    "switch": {"threads": 2, "samples": 20000},
    "memory-bandwidth": {"duration": "50ms"},
    "numeric-sort": {"duration": "0.5s"},
}
ON_DISK = {"filebench": {"work": "varmail", "duration": "2s", "files": 100}}
LEAST_BLOCKS, MOST_BLOCKS = 2, 100
_DISK = "64MiB"
_CHECK_S = 30.0


@dataclass(frozen=True)
class Tried:
    """What came of the conformance suite.

    Args:
        cases: Each case, in order.
        noted: How often the ledger noted each kind of thing.
        leftovers: What was left behind, a few words each.
    """

    cases: tuple[Case, ...]
    noted: Counter[str]
    leftovers: tuple[str, ...]


Suite = Callable[[str, PlatformOptions, Path, Path, Path], Awaitable[Tried]]
"""Runs the conformance suite: see :func:`tare.testing.certifying.try_all`."""


def steps(order: Order) -> Iterator[str]:
    """Yield what will be done, line by line: every call that writes, and what takes it back."""
    platform = order.platform
    yield f"{platform.name}: {platform.describe(order.options)}"
    if order.named_in is not None:
        yield f"   as {order.named_in} names it, under {HYPERVISORS}.{platform.name}"
    yield "1. looks: its check; nothing is made"
    yield "2. the conformance suite, and"
    yield f"3. a study of at most {order.minutes:g} min. Both make, and take back:"
    for each in _written(order):
        where = f" [{each.where}]" if each.where else ""
        yield f"   {each.kind}: {each.call}{where}"
        yield f"       taken back by: {each.undone}"
    yield f"   Temporary files are in {tempfile.gettempdir()}, images and caches in {cache_dir()}."
    yield "   Nothing is touched whose name does not begin with tare-, but for the settings above."
    yield "4. writes one file, " + (
        "with the measured values" if order.figures else "without measured values"
    )


def _written(order: Order) -> list[Written]:
    stated = list(order.platform.writes(order.options))
    if _has_bare(order):
        bare = installed().platforms[BARE]
        kinds = {each.kind for each in stated}
        # The baseline is the host itself.
        stated += [each for each in bare.writes(bare.options()) if each.kind not in kinds]
    return [
        Written(kind=each.kind, call=each.call, undone=each.undone, where=each.where)
        for each in stated
    ]


def _has_bare(order: Order) -> bool:
    """Return whether the machines are on this computer, so that it is the baseline."""
    stated = order.platform.stated(order.options)
    return not stated.elsewhere and not stated.is_host


async def carry_out(order: Order, file: Path, console: Console, suite: Suite) -> Certificate:
    """Do all of it, and write the file.

    Args:
        order: What is to be certified.
        file: What to write.
        console: Where progress is shown.
        suite: Runs the conformance suite.

    Raises:
        InputError: The platform is not usable here.
        MachineFault: The suite could not be run.
    """
    verdict = await _checked(order)
    name = f"certify-{secrets.token_hex(4)}"
    ledger = ledger_path(name)
    with tempfile.TemporaryDirectory(prefix="tare-certify-") as folder:
        place = Path(folder)
        (place / "suite").mkdir()
        with host_lock(name):
            console.print("the conformance suite runs; a boot may take a minute")
            log = place / "suite.log"
            tried = await suite(order.platform.name, order.options, ledger, place / "suite", log)
        for case in tried.cases:
            mark = {"passed": "✓", "failed": "✗", "skipped": "–"}[case.outcome]
            console.print(f"{mark} {case.name} {case.words}".rstrip(), markup=False)
        events = await _study(order, verdict, place, console)
    _forget(ledger, tried.leftovers)
    made = _certificate(order, verdict, tried.cases, tried.noted, tried.leftovers, events)
    text = json.dumps(made.model_dump(mode="json"), indent=1, ensure_ascii=False) + "\n"
    put_for_user(file, text, "or name another file with --out")
    return made


def _forget(path: Path, leftovers: Sequence[str]) -> None:
    """Remove a ledger of which nothing is left; with anything left, `tare clean` needs it."""
    ledger = Ledger(path)
    if leftovers or ledger.open_entries():
        ledger.close()
    else:
        ledger.discard()


async def _checked(order: Order) -> Verdict:
    agent = agent_path()
    look = ledger_path(f"look-{secrets.token_hex(4)}")
    ledger = Ledger(look)
    try:
        context = Context(LocalHost(agent), ledger, cache_dir(), agent)
        verdict = await order.platform.check(context, order.options)
    finally:
        ledger.discard()
    if not verdict.usable:
        raise InputError(
            f"{order.platform.name} cannot be used here: {verdict.reason}", verdict.hint
        )
    return verdict


async def _study(
    order: Order, verdict: Verdict, place: Path, console: Console
) -> list[dict[str, Any]]:
    """Carry the study out for as long as it may take; return its events as plain data."""
    file, out = place / "study.yaml", place / "run"
    file.write_text(yaml.safe_dump(study_of(order, verdict), sort_keys=False), encoding="utf-8")
    study = load_study(file, build_catalog())
    began = time.monotonic()

    def decide(_: Study, fold: Fold, blocks_done: int) -> Decision:
        spent = time.monotonic() - began
        if blocks_done >= LEAST_BLOCKS and spent * (1 + 1 / blocks_done) > order.minutes * 60:
            return Decision(False, f"{order.minutes:g} min are over")
        return Decision(True, "there is time for another block")

    source, allowed = study_source(file), order.host_access
    ended = await carry_study_out(study, source, out, 1, decide, console, host_access=allowed)
    if ended is None:
        raise MachineFault(
            "the study was interrupted, so no certificate was written",
            "begin again with the same command",
        )
    records = read_events(out / "events.jsonl")
    return [record.event.model_dump(mode="json") for record in records]


def study_of(order: Order, verdict: Verdict) -> dict[str, Any]:
    """Return the study: the platform beside the bare host where it is this one, and a twin."""
    able = verdict.capabilities
    arm = {"platform": order.platform.name, **order.given}
    arms: dict[str, Any] = {BARE: {"platform": BARE}} if _has_bare(order) else {}
    arms |= {SUBJECT: arm, f"{SUBJECT}-again": {"twin-of": SUBJECT}}
    memory = least_memory(able, 256 << 20) >> 20
    shape: dict[str, Any] = {"vcpus": 1, "memory": f"{memory}MiB"}
    if able.disk:
        shape["disk"] = _DISK
    return {
        "study": "certify",
        "title": f"What {order.platform.name} costs on a host of its owner's",
        "baseline": next(iter(arms)),
        "blocks": {"least": LEAST_BLOCKS, "most": MOST_BLOCKS},
        "shape": shape,
        "arms": arms,
        "workloads": {**WORKLOADS, **(ON_DISK if able.disk else {})},
    }


def _certificate(
    order: Order,
    verdict: Verdict,
    cases: Sequence[Case],
    noted: Counter[str],
    leftovers: Sequence[str],
    events: Sequence[dict[str, Any]],
) -> Certificate:
    platform, options = order.platform, order.options
    accounts = [
        value
        for name, value in os.environ.items()
        if name.startswith("TARE_") and name.endswith("_USER")
    ]
    names = (socket.gethostname(), socket.getfqdn(), getpass.getuser(), str(Path.home()), *accounts)
    private = texts_to_hide(options, os.environ, _worth_hiding(names))
    stated = _written(order)
    kinds = {each.kind for each in stated}
    writes = [
        *(each.model_copy(update={"noted": noted[each.kind]}) for each in stated),
        *(Written(kind=kind, noted=many) for kind, many in noted.items() if kind not in kinds),
    ]
    agent = agent_identity(agent_path())
    parts: dict[str, Any] = {
        "made": time.strftime("%Y-%m-%d", time.gmtime()),
        "tare": {"version": tare_version(), "agent_sha256": agent["sha256"]},
        "platform": platform.name,
        "options": plain_options(options),
        "description": platform.describe(options),
        "build": dict(verdict.versions),
        "shown": dict(verdict.shown),
        "licence": verdict.shown.get("licence", ""),
        "host": _computer(),
        "rights": list(verdict.rights or (_own_rights(),)),
        "declared": _plain(platform.stated(options).capabilities),
        "found": _plain(verdict.capabilities),
        "writes": [each.model_dump() for each in writes],
        "cases": [each.model_dump() for each in cases],
        "leftovers": list(leftovers),
        "events": list(wanted_events(events, figures=order.figures)),
    }
    clean = hidden(parts, private)
    results = results_of(
        cases=[Case.model_validate(each) for each in clean["cases"]],
        events=clean["events"],
        declared=clean["declared"],
        found=clean["found"],
        writes=[Written.model_validate(each) for each in clean["writes"]],
        leftovers=clean["leftovers"],
    )
    return Certificate(**clean, figures=order.figures, results=results)


def _own_rights() -> str:
    """Return with which rights Tare works where no product tells: its own, on this computer."""
    return "root" if os.geteuid() == 0 else "a user without rights"


def _worth_hiding(names: Sequence[str]) -> list[str]:
    # Words that every computer has, and every certificate, tell nobody's name.
    ordinary = {"localhost", "root", "/root", "vm", "host", "tare", *installed().platforms}
    ordinary |= set(Certificate.model_fields)
    return [name for name in names if name not in ordinary]


def _computer() -> dict[str, str]:
    told = {"kernel": computer.release(), "machine": computer.machine()}
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
        told |= {"cpu": models[0], "cpus": str(len(models))} if models else {}
        told["system"] = computer.freedesktop_os_release().get("PRETTY_NAME", "")
    except OSError:
        pass
    return told


def _plain(able: Capabilities) -> dict[str, Any]:
    return {
        "pinning": able.pinning,
        "neighbours": able.neighbours,
        "max_vcpus": able.max_vcpus,
        "min_memory": able.min_memory,
        "devices": sorted(able.devices),
        "knobs": sorted(able.knobs),
        "disk": sorted(able.disk),
        "toolbox": sorted(able.toolbox),
    }
