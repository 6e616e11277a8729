"""``tare certify``: the conformance suite, then a study, then one file without secrets.

The request names a platform and its options, as an arm of a study would.
"""

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
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError
from rich.console import Console

from tare.errors import InputError, MachineFault
from tare.events import Fold, read_events
from tare.hosts import Ledger, LocalHost
from tare.hosts.ledger.ledger import ledger_path
from tare.hosts.lock import host_lock
from tare.outputs import put_for_user
from tare.plaintext import plain_line
from tare.platforms.certificates.model import Case, Certificate, CreatedKind, results_of
from tare.platforms.certificates.redaction import (
    hidden,
    plain_options,
    texts_to_hide,
    wanted_events,
)
from tare.platforms.contract import Capabilities, Context, Platform, PlatformOptions, Verdict
from tare.platforms.vendors.offer import least_memory
from tare.registry import installed
from tare.run.catalog import build_catalog
from tare.run.lifecycle.session import agent_path, cache_dir, study_source
from tare.run.lifecycle.setup import Decision
from tare.run.lifecycle.versions import agent_identity, tare_version
from tare.run.preflight.host_access import ALLOWING
from tare.run.ui.foreground import run_study
from tare.study.model.study import Study
from tare.study.reading.checking import message_of, suggestion
from tare.study.reading.hosts_file import HYPERVISORS, KnownHosts
from tare.study.reading.load import load_study
from tare.study.reading.named_hypervisors import options_named

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
_WORDS = 500
ADDRESS = "address"
"""The option that names the server."""
DOCTOR = "`tare doctor` lists them"
HAS = "`tare study PLATFORM` shows every option"


@dataclass(frozen=True)
class CertifyRequest:
    """A platform to certify.

    Args:
        platform: The platform.
        options: Its options.
        given: The options as the user wrote them, for the study.
        minutes: The time limit of the study, in minutes.
        figures: Whether the file includes measured values.
        named_in: The hosts file that holds some of the options; None: the user gave all of them.
        host_access: Whether the command line allows raw arguments that may act on hosts.
    """

    platform: Platform[Any]
    options: PlatformOptions
    given: dict[str, Any]
    minutes: float
    figures: bool
    named_in: Path | None = None
    host_access: bool = False


def parse_request(
    name: str,
    values: Sequence[str],
    hosts: KnownHosts,
    *,
    minutes: float,
    figures: bool,
    host_access: bool = False,
) -> CertifyRequest:
    """Parse a command line into a request.

    Args:
        name: The platform.
        values: Its options, each as ``KEY=VALUE``; they override the hosts file.
        hosts: The hosts file, which may name the user's own hypervisor of that platform.
        minutes: The time limit of the study, in minutes.
        figures: Whether the file includes measured values.
        host_access: Whether the command line allows raw arguments that may act on hosts.

    Raises:
        InputError: There is no such platform or option, the platform cannot be certified, or an
            option may act on a host and is not allowed.
    """
    known = installed().platforms
    if name not in known:
        raise InputError(f"there is no platform {name}{suggestion(name, known)}", DOCTOR)
    platform, written = known[name], _given(values)
    named = _named(platform, hosts, written)
    given = {**named, **written}
    options = _options(platform, given)
    if not platform.writes(options):
        raise InputError(
            f"{name} cannot be certified: it does not state what it makes and changes on a host",
            "its author has to implement `writes` (`tare help extending`)",
        )
    if not host_access and (refused := platform.host_access(options)):
        effects = "; ".join(f"{each.option}: `{each.value}` {each.effect}" for each in refused)
        raise InputError(effects, f"remove it; or, if you trust it with the host, add {ALLOWING}")
    named_in = hosts.path if named else None
    return CertifyRequest(platform, options, given, minutes, figures, named_in, host_access)


def _named(platform: Platform[Any], hosts: KnownHosts, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of the hypervisor in the hosts file, if its address is the given one."""
    own, wrong = options_named(platform.name, hosts, platform.options)
    if own is not None and given.get(ADDRESS, own.get(ADDRESS)) != own.get(ADDRESS):
        # Folders, pools and storages belong to one server.
        return {}
    if own is None:
        raise InputError(plain_line(wrong[0], _WORDS), HAS)
    return own


def _given(values: Sequence[str]) -> dict[str, Any]:
    given: dict[str, Any] = {}
    for value in values:
        key, equals, text = value.partition("=")
        if not equals:
            raise InputError(
                f"--set {value}: the value is missing",
                "write KEY=VALUE, such as --set accelerator=kvm",
            )
        try:
            given[key] = yaml.safe_load(text)
        except yaml.YAMLError:
            # `boot=[datastore1] tare.iso`, for example, only looks like a list.
            given[key] = text
    return given


def _options(platform: Platform[Any], given: Mapping[str, Any]) -> PlatformOptions:
    """Return a platform's options; raise InputError if a study could not have them."""
    name = platform.name
    try:
        options: PlatformOptions = platform.options.model_validate(
            {key.replace("-", "_"): value for key, value in given.items()}
        )
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        if first["type"] == "extra_forbidden":
            written = str(first["loc"][0]).replace("_", "-")
            if instead := platform.options.instead.get(written):
                words = plain_line(f"{name} has no option {written}: {instead}", _WORDS)
                raise InputError(words, HAS) from error
            keys = [key.replace("_", "-") for key in platform.options.model_fields]
            near = suggestion(first["loc"][0], keys)
            raise InputError(f"{name} has no option {first['loc'][0]}{near}", HAS) from error
        key = ".".join(str(part) for part in first["loc"]).replace("_", "-")
        words = plain_line(f"{name}: {key}: {message_of(first)}", _WORDS)
        raise InputError(words, HAS) from error
    # Apply the checks of a study file: a guest that cannot dial back, for example, never connects.
    for option, fault in options.faults(True):
        words = plain_line(f"{name}: {option.replace('_', '-')}: {fault}", _WORDS)
        raise InputError(words, HAS)
    return options


@dataclass(frozen=True)
class Tried:
    """The results of the conformance suite.

    Args:
        cases: Each case, in order.
        noted: The number of entries of each kind in the ledger.
        leftovers: A short description of each thing that was not removed.
    """

    cases: tuple[Case, ...]
    noted: Counter[str]
    leftovers: tuple[str, ...]


Suite = Callable[[str, PlatformOptions, Path, Path, Path], Awaitable[Tried]]
"""Runs the conformance suite: see :func:`tare.testing.certifying.try_all`."""


def list_steps(request: CertifyRequest) -> Iterator[str]:
    """Yield the steps of a certification as lines: every call that writes, and its reversal."""
    platform = request.platform
    yield f"{platform.name}: {platform.describe(request.options)}"
    if request.named_in is not None:
        yield f"   as {request.named_in} names it, under {HYPERVISORS}.{platform.name}"
    yield "1. looks: its check; nothing is made"
    yield "2. the conformance suite, and"
    yield f"3. a study of at most {request.minutes:g} min. Both make, and take back:"
    for each in _written(request):
        where = f" [{each.where}]" if each.where else ""
        yield f"   {each.kind}: {each.call}{where}"
        yield f"       taken back by: {each.undone}"
    yield f"   Temporary files are in {tempfile.gettempdir()}, images and caches in {cache_dir()}."
    yield "   Apart from the settings above, only objects whose name begins with tare- are changed."
    yield "4. writes one file, " + (
        "with the measured values" if request.figures else "without measured values"
    )


def _written(request: CertifyRequest) -> list[CreatedKind]:
    stated = list(request.platform.writes(request.options))
    if _has_bare(request):
        bare = installed().platforms[BARE]
        kinds = {each.kind for each in stated}
        # The baseline is the host itself.
        stated += [each for each in bare.writes(bare.options()) if each.kind not in kinds]
    return [
        CreatedKind(kind=each.kind, call=each.call, undone=each.undone, where=each.where)
        for each in stated
    ]


def _has_bare(request: CertifyRequest) -> bool:
    """Return whether this computer is the baseline because the machines are on it."""
    stated = request.platform.stated(request.options)
    return not stated.elsewhere and not stated.is_host


async def certify(
    request: CertifyRequest, file: Path, console: Console, suite: Suite
) -> Certificate:
    """Run the suite and the study, and write the certificate.

    Args:
        request: The platform to certify.
        file: The file to write.
        console: Shows progress.
        suite: Runs the conformance suite.

    Raises:
        InputError: The platform is not usable here.
        MachineFault: The suite did not run.
    """
    verdict = await _checked(request)
    name = f"certify-{secrets.token_hex(4)}"
    ledger = ledger_path(name)
    with tempfile.TemporaryDirectory(prefix="tare-certify-") as folder:
        work_dir = Path(folder)
        (work_dir / "suite").mkdir()
        with host_lock(name):
            console.print("the conformance suite runs; a boot may take a minute")
            log = work_dir / "suite.log"
            tried = await suite(
                request.platform.name, request.options, ledger, work_dir / "suite", log
            )
        for case in tried.cases:
            mark = {"passed": "✓", "failed": "✗", "skipped": "–"}[case.outcome]
            console.print(f"{mark} {case.name} {case.words}".rstrip(), markup=False)
        events = await _study(request, verdict, work_dir, console)
    _forget(ledger, tried.leftovers)
    made = _certificate(request, verdict, tried.cases, tried.noted, tried.leftovers, events)
    text = json.dumps(made.model_dump(mode="json"), indent=1, ensure_ascii=False) + "\n"
    put_for_user(file, text, "or name another file with --out")
    return made


def _forget(path: Path, leftovers: Sequence[str]) -> None:
    """Remove a ledger unless something is left on the host, for which `tare clean` needs it."""
    ledger = Ledger(path)
    if leftovers or ledger.open_entries():
        ledger.close()
    else:
        ledger.discard()


async def _checked(request: CertifyRequest) -> Verdict:
    agent = agent_path()
    look = ledger_path(f"look-{secrets.token_hex(4)}")
    ledger = Ledger(look)
    try:
        context = Context(LocalHost(agent), ledger, cache_dir(), agent)
        verdict = await request.platform.check(context, request.options)
    finally:
        ledger.discard()
    if not verdict.usable:
        raise InputError(
            f"{request.platform.name} cannot be used here: {verdict.reason}", verdict.hint
        )
    return verdict


async def _study(
    request: CertifyRequest, verdict: Verdict, work_dir: Path, console: Console
) -> list[dict[str, Any]]:
    """Run the study within its time limit; return its events as plain data."""
    file, out = work_dir / "study.yaml", work_dir / "run"
    file.write_text(yaml.safe_dump(study_of(request, verdict), sort_keys=False), encoding="utf-8")
    study = load_study(file, build_catalog())
    began = time.monotonic()

    def decide(_: Study, fold: Fold, blocks_done: int) -> Decision:
        spent = time.monotonic() - began
        if blocks_done >= LEAST_BLOCKS and spent * (1 + 1 / blocks_done) > request.minutes * 60:
            return Decision(False, f"{request.minutes:g} min are over")
        return Decision(True, "there is time for another block")

    source, allowed = study_source(file), request.host_access
    ended = await run_study(study, source, out, 1, decide, console, host_access=allowed)
    if ended is None:
        raise MachineFault(
            "the study was interrupted, so no certificate was written",
            "start again with the same command",
        )
    records = read_events(out / "events.jsonl")
    return [record.event.model_dump(mode="json") for record in records]


def study_of(request: CertifyRequest, verdict: Verdict) -> dict[str, Any]:
    """Return the study: the platform and a twin, and the bare host if the machines are on it."""
    able = verdict.capabilities
    arm = {"platform": request.platform.name, **request.given}
    arms: dict[str, Any] = {BARE: {"platform": BARE}} if _has_bare(request) else {}
    arms |= {SUBJECT: arm, f"{SUBJECT}-again": {"twin-of": SUBJECT}}
    memory = least_memory(able, 256 << 20) >> 20
    shape: dict[str, Any] = {"vcpus": 1, "memory": f"{memory}MiB"}
    if able.disk:
        shape["disk"] = _DISK
    return {
        "study": "certify",
        "title": f"What {request.platform.name} costs on a host of its owner's",
        "baseline": next(iter(arms)),
        "blocks": {"least": LEAST_BLOCKS, "most": MOST_BLOCKS},
        "shape": shape,
        "arms": arms,
        "workloads": {**WORKLOADS, **(ON_DISK if able.disk else {})},
    }


def _certificate(
    request: CertifyRequest,
    verdict: Verdict,
    cases: Sequence[Case],
    noted: Counter[str],
    leftovers: Sequence[str],
    events: Sequence[dict[str, Any]],
) -> Certificate:
    platform, options = request.platform, request.options
    accounts = [
        value
        for name, value in os.environ.items()
        if name.startswith("TARE_") and name.endswith("_USER")
    ]
    names = (socket.gethostname(), socket.getfqdn(), getpass.getuser(), str(Path.home()), *accounts)
    private = texts_to_hide(options, os.environ, _worth_hiding(names))
    stated = _written(request)
    kinds = {each.kind for each in stated}
    writes = [
        *(each.model_copy(update={"noted": noted[each.kind]}) for each in stated),
        *(CreatedKind(kind=kind, noted=many) for kind, many in noted.items() if kind not in kinds),
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
        "events": list(wanted_events(events, figures=request.figures)),
    }
    clean = hidden(parts, private)
    results = results_of(
        cases=[Case.model_validate(each) for each in clean["cases"]],
        events=clean["events"],
        declared=clean["declared"],
        found=clean["found"],
        writes=[CreatedKind.model_validate(each) for each in clean["writes"]],
        leftovers=clean["leftovers"],
    )
    return Certificate(**clean, figures=request.figures, results=results)


def _own_rights() -> str:
    """Return Tare's own rights on this computer, for products that do not report theirs."""
    return "root" if os.geteuid() == 0 else "a user without rights"


def _worth_hiding(names: Sequence[str]) -> list[str]:
    # Words that every computer and every certificate has do not identify anyone.
    ordinary = {"localhost", "root", "/root", "vm", "host", "tare", *installed().platforms}
    ordinary |= set(Certificate.model_fields)
    return [name for name in names if name not in ordinary]


def _computer() -> dict[str, str]:
    facts = {"kernel": computer.release(), "machine": computer.machine()}
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
        facts |= {"cpu": models[0], "cpus": str(len(models))} if models else {}
        facts["system"] = computer.freedesktop_os_release().get("PRETTY_NAME", "")
    except OSError:
        pass
    return facts


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
