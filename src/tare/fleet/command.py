"""Run or resume a study on a cluster, with live progress in the terminal."""

from __future__ import annotations

import secrets
import shutil
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.text import Text

from tare.errors import InputError
from tare.events import Fold, RunFinished, RunResumed, RunStarted, read_fold
from tare.fleet.assignment import Deal, Dealing, Lockstep, Way
from tare.fleet.cluster import Cluster, Task
from tare.fleet.controller import Controller, FleetSetup
from tare.fleet.labs import are_labs, count_labs, require_labs_of
from tare.fleet.retrying import Pauses
from tare.fleet.worker_task import run_part
from tare.outputs import put_for_user
from tare.run.catalog import build_catalog
from tare.run.lifecycle.folder import (
    RunFolder,
    create_folder,
    is_shared,
    open_event_log,
    open_folder,
)
from tare.run.lifecycle.only_writer import only_writer
from tare.run.lifecycle.session import new_run_id
from tare.run.lifecycle.setup import Decide, StudySource
from tare.run.lifecycle.versions import run_versions
from tare.run.preflight.host_access import require_allowed
from tare.run.ui.progress import ProgressView, Tally
from tare.study.model.study import Study
from tare.study.planning.baselines import hosts_with_arms, scenario_across
from tare.study.reading.load import restore_study

if TYPE_CHECKING:
    from distributed import Security

PATIENCE_S = 300.0
"""Seconds that a host may be away before its blocks are given to others."""
PAUSES = Pauses()
"""The pauses between tries of a failed host."""


@dataclass(frozen=True)
class ClusterChoice:
    """The cluster that a command names.

    Args:
        address: ``tcp://NAME:PORT``, ``tls://NAME:PORT`` or ``local:N``.
        security: The certificates for ``tls://``.
        program: The program that runs a host's part; Tare's own if empty.
        task: The Dask task of each attempt.
    """

    address: str
    security: Security | None = None
    program: Sequence[str] = ()
    task: Task = run_part


@asynccontextmanager
async def cluster_of(choice: ClusterChoice, study: Study) -> AsyncIterator[Cluster]:
    """Connect to the cluster that a command names.

    Raises:
        InputError: It does not exist, or it cannot run the study.
    """
    # Imported here, because only this needs Dask.
    from tare.fleet.connections import connected, local_labs

    _require_shareable(study)
    if are_labs(choice.address):
        opening = local_labs(count_labs(choice.address), study, choice.program)
    else:
        opening = connected(choice.address, choice.security, choice.program, choice.task)
    async with opening as cluster:
        yield cluster


def _require_shareable(study: Study) -> None:
    if study.sessions is not None:
        raise InputError(
            "the sessions of this study are on one computer that is booted in turns",
            "run it without --cluster",
        )
    if not _bound(study):
        return
    if study.spread is not None:
        raise InputError(
            "the arms of this study name the host they are `on`, but with `spread` each host runs "
            "all arms",
            "remove one of the two",
        )
    if name := scenario_across(study):
        raise InputError(
            f"the scenario {name} has machines on hosts other than its arm's, but each host of a "
            "cluster runs its arms alone",
            "run it without --cluster",
        )


def _bound(study: Study) -> bool:
    return len(study.computers) > 1


async def run_on_cluster(
    study: Study,
    source: StudySource,
    out: Path,
    seed: int | None,
    decide: Decide,
    console: Console,
    choice: ClusterChoice,
    *,
    strict: bool = False,
    host_access: bool = False,
) -> RunFinished | None:
    """Run a study on a cluster, into the new folder ``out``.

    Args:
        study: The study.
        source: The origin of the study.
        out: A new or empty folder.
        seed: Overrides the study's own seed; without either, a random seed is drawn.
        decide: Decides after each block whether to continue.
        console: Shows progress.
        choice: The cluster.
        strict: Whether the run ends as soon as an arm does.
        host_access: Whether the command line allows raw arguments that may act on hosts.

    Returns:
        The last event; None if the run was interrupted and can be resumed.

    Raises:
        InputError: The folder or the cluster cannot be used; nothing was started.
    """
    require_allowed(study, Path(source.path), allowed=host_access)
    async with cluster_of(choice, study) as cluster:
        hosts = await _wanted(cluster, study)
        how = _choose_way(study, hosts, choice)
        folder = create_folder(out)
        fold = Fold()
        chosen = seed if seed is not None else study.seed
        started = RunStarted(
            run=new_run_id(),
            study=study.model_dump(mode="json"),
            study_path=source.path,
            study_sha256=source.sha256,
            seed=secrets.randbits(32) if chosen is None else chosen,
            host={name: {"worker": address, "spread": how} for name, address in hosts.items()},
            versions=run_versions(),
            changes=source.changes,
        )
        written = Path(source.path).read_bytes()
        put_for_user(folder.study, written, "choose another folder with --out")
        ways = _Ways(decide, console, strict, choice.address)
        finished = await _execute(cluster, study, started, folder, fold, ways, True)
        if finished is not None and not fold.joined:
            shutil.rmtree(folder.path)
            raise InputError(
                "no host could run the study", "the lines above show what each host lacks"
            )
        return finished


async def resume_on_cluster(
    directory: Path,
    decide: Decide,
    console: Console,
    choice: ClusterChoice,
    *,
    strict: bool = False,
    host_access: bool = False,
) -> RunFinished | None:
    """Resume a shared run at its first unfinished cells.

    Returns:
        The last event; None if the run was interrupted again.

    Raises:
        InputError: There is no run, it is complete, it is not shared, or the cluster cannot be
            used.
    """
    folder = open_folder(directory)
    with only_writer(folder.path):
        fold = read_fold(folder.events)
        started = fold.started
        if started is None or not is_shared(started):
            raise InputError(
                f"the run in {directory} was started on one host", f"write: tare resume {directory}"
            )
        if fold.ended is not None and fold.ended.status == "complete":
            raise InputError(
                f"the run in {directory} is complete", f"see its report: tare report {directory}"
            )
        require_labs_of(started, choice.address, directory)
        study = restore_study(started.study, build_catalog())
        require_allowed(study, folder.study, allowed=host_access)
        async with cluster_of(choice, study) as cluster:
            ways = _Ways(decide, console, strict, choice.address)
            if note := _unused_hosts(await cluster.hosts(), started):
                console.print(Text(note, "yellow"))
            return await _execute(cluster, study, started, folder, fold, ways, False)


def _unused_hosts(workers: Mapping[str, str], started: RunStarted) -> str:
    """Return a note on hosts in the cluster that do not take part; empty if all do."""
    found = [name for name in workers if name not in started.host]
    if not found:
        return ""
    return (
        f"not part of this run: {', '.join(sorted(found))}; it was started on "
        f"{', '.join(started.host)}"
    )


@dataclass(frozen=True)
class _Ways:
    """The options of the command for a run."""

    decide: Decide
    console: Console
    strict: bool
    address: str


async def _execute(
    cluster: Cluster,
    study: Study,
    started: RunStarted,
    folder: RunFolder,
    fold: Fold,
    ways: _Ways,
    is_new: bool,
) -> RunFinished | None:
    blocks = study.blocks
    view = ProgressView(ways.console, Tally(fold, blocks.most, blocks.least, blocks.budget))
    how: Way = next(iter(started.host.values()))["spread"]
    setup = FleetSetup(
        cluster,
        ways.decide,
        view.progress,
        lambda sentence: ways.console.print(Text(sentence, "yellow")),
        PATIENCE_S,
        ways.strict,
        PAUSES,
    )
    deal = _deal(how, tuple(started.host), study, fold)
    with view, open_event_log(folder, ways.address) as log:
        log.subscribe(fold.take)
        log.subscribe(view.take)
        if is_new:
            log.append(started)
        else:
            log.append(RunResumed(run=started.run, versions=run_versions(), doubts=fold.doubts))
        controller = Controller(setup, study, started, deal, how, folder, log, fold)
        return await controller.run()


def _deal(how: Way, hosts: Sequence[str], study: Study, fold: Fold) -> Dealing:
    """Return the remaining blocks, to be assigned in the way in which the hosts share the run."""
    most = study.blocks.most
    if how != "bound":
        return Deal(how, hosts, most, frozenset(fold.block.finished), fold.block.hosts)
    measured = Counter(
        (done.result.block, study.host_of(done.result.arm))
        for cell, done in fold.finished.items()
        if fold.is_settled(cell)
    )
    done = {
        block: {
            host
            for host, joined in fold.joined.items()
            if measured[block, host] >= joined.cells_per_block
        }
        for block in range(1, fold.block.number + 1)
    }
    return Lockstep(hosts, most, done)


async def _wanted(cluster: Cluster, study: Study) -> dict[str, str]:
    """Return the addresses of the workers of the study's hosts, by host.

    Raises:
        InputError: One of them has no worker.
    """
    workers = await cluster.hosts()
    wanted = tuple(study.spread.hosts) if study.spread is not None else ()
    if _bound(study):
        wanted = hosts_with_arms(study)
    for name in wanted:
        if name not in workers:
            raise InputError(
                f"there is no worker for the host {name}"
                + (f"; there are workers for {', '.join(workers)}" if workers else ""),
                f"start one: tare worker --host {name} ADDRESS",
            )
    if not workers:
        raise InputError(
            "the cluster has no worker for a host",
            "start one for each host: tare worker --host NAME ADDRESS",
        )
    return {name: workers[name] for name in wanted or sorted(workers)}


def _choose_way(study: Study, hosts: dict[str, str], choice: ClusterChoice) -> Way:
    if study.spread is not None:
        return study.spread.how
    if _bound(study):
        return "bound"
    if len(hosts) == 1 or are_labs(choice.address):
        return "split"
    raise InputError(
        f"the study does not define how {len(hosts)} hosts share it",
        "write `spread: replicate` (each host measures all blocks) or `spread: split` (equal hosts "
        "share the blocks; or --set spread=split)",
    )
