"""A study shared by hosts: real scheduler, real workers, and parts that say what hosts say."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections import Counter
from contextlib import AsyncExitStack
from io import StringIO
from pathlib import Path

import pytest
from distributed import Security
from rich.console import Console

from fleet.fleet_cluster import STUB, begun, cluster, run, study_file, worker_process
from processes import of_state
from tare.cli.ending import decide_on
from tare.errors import InputError
from tare.events import (
    BlockFinished,
    BlockStarted,
    CellFinished,
    Fold,
    HostLost,
    read_events,
    read_fold,
)
from tare.fleet import command, connections
from tare.fleet.command import ClusterChoice, resume_on_cluster, run_on_cluster
from tare.fleet.faults import fleet_versions
from tare.fleet.retrying import Pauses
from tare.fleet.servers import WorkersHost
from tare.run.catalog import build_catalog
from tare.run.lifecycle.session import study_source
from tare.study.reading.load import load_study


def cells_by_host(fold: Fold) -> Counter[str]:
    """Return how many cells each host measured."""
    return Counter(fold.block.hosts[done.result.block] for done in fold.finished.values())


async def test_equal_hosts_share_the_blocks_and_every_file_arrives(tmp_path: Path) -> None:
    async with cluster("h1", "h2") as (address, _):
        finished = await run(study_file(tmp_path, 6), address, tmp_path / "run", Console())
    assert finished is not None and finished.status == "complete", finished
    assert finished.cells["planned"] == finished.cells["ok"] == 6 * 4
    fold = read_fold(tmp_path / "run" / "events.jsonl")
    assert fold.doubts == ()
    assert set(fold.joined) == {"h1", "h2"} and set(fold.block.hosts.values()) == {"h1", "h2"}
    assert sorted(fold.block.finished) == [1, 2, 3, 4, 5, 6]
    saved = [each for done in fold.finished.values() for each in done.saved]
    assert len(saved) == 24
    assert all((tmp_path / "run" / each.path).stat().st_size == 100 for each in saved)


async def test_each_host_measures_all_blocks_where_they_are_replicated(tmp_path: Path) -> None:
    path = study_file(tmp_path, 3, "spread: replicate\nhosts: [h2, h1]")
    async with cluster("h1", "h2", "h3") as (address, _):
        finished = await run(path, address, tmp_path / "run", Console())
    assert finished is not None and finished.status == "complete"
    assert cells_by_host(read_fold(tmp_path / "run" / "events.jsonl")) == {"h1": 12, "h2": 12}


@pytest.mark.slow
@pytest.mark.boots
async def test_a_worker_that_is_killed_loses_only_its_unfinished_cell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TARE_STUB_CELL_S", "0.2")
    monkeypatch.setattr("tare.fleet.cluster.LOOK_S", 0.2)
    out, shown = tmp_path / "run", StringIO()
    console = Console(file=shown, width=200)
    async with cluster("h1") as (address, _):
        async with worker_process(address, "h2") as worker:
            running = await begun(study_file(tmp_path, 4), address, out, "h2", console)
            worker.kill()
        async with worker_process(address, "h2"):
            finished = await asyncio.wait_for(running, 60)
    assert finished is not None and finished.status == "complete", shown.getvalue()
    assert finished.cells["ok"] == finished.cells["planned"]
    assert "measured again" in shown.getvalue()
    ends = Counter(
        record.event.cell
        for record in read_events(out / "events.jsonl")
        if record.event.type == "cell_finished"
    )
    assert set(ends.values()) == {1}


@pytest.mark.slow
@pytest.mark.boots
async def test_absent_host_is_reported_and_its_blocks_go_to_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Long enough that the host is gone before all is measured, on a busy computer too.
    monkeypatch.setenv("TARE_STUB_CELL_S", "0.4")
    monkeypatch.setattr("tare.fleet.cluster.LOOK_S", 0.2)
    monkeypatch.setattr(command, "PATIENCE_S", 0.5)
    out, shown = tmp_path / "run", StringIO()
    console = Console(file=shown, width=200)
    async with cluster("h1") as (address, _):
        async with worker_process(address, "h2") as worker:
            running = await begun(study_file(tmp_path, 4), address, out, "h2", console)
            worker.kill()
        finished = await asyncio.wait_for(running, 60)
    assert finished is not None and finished.status == "complete"
    records = [record.event for record in read_events(out / "events.jsonl")]
    assert [event.host for event in records if isinstance(event, HostLost)] == ["h2"]
    assert "h2 is left out from here on: h2 had no worker for" in shown.getvalue()
    # The block that it had begun was begun again: no block has two hosts.
    on: dict[str, str] = {}
    cells: dict[str, set[tuple[str, str]]] = {}
    for event in records:
        if isinstance(event, BlockStarted):
            on[f"b{event.block:03}"] = event.host
        elif isinstance(event, BlockFinished):
            found = cells[f"b{event.block:03}"]
            assert {cell for cell, host in found if host == on[f"b{event.block:03}"]} == {
                cell for cell, _ in found
            }
        elif isinstance(event, CellFinished):
            block = event.cell.split("/")[0]
            cells.setdefault(block, set()).add((event.cell, on[block]))
    begun_by_lost = [e for e in records if isinstance(e, BlockStarted) and e.host == "h2"]
    assert begun_by_lost and len(cells) == 4 and finished.cells["ok"] == 16
    fold = read_fold(out / "events.jsonl")
    assert fold.finished.keys() == {cell for each in cells.values() for cell, _ in each}


@pytest.mark.parametrize("name", ["tare", "distributed"])
async def test_a_worker_of_another_version_is_refused_at_once(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    theirs = {**fleet_versions(), name: "0.0.1"}
    monkeypatch.setattr("tare.fleet.worker_task.fleet_versions", lambda: theirs)
    shown = StringIO()
    console = Console(file=shown, width=200)
    async with cluster("h1") as (address, _):
        with pytest.raises(InputError, match="no host could run the study"):
            await run(study_file(tmp_path, 2), address, tmp_path / "run", console)
    words = f"the worker has {name} 0.0.1, and the controller {fleet_versions()[name]}"
    # Reported where it is refused and where the host is left out, and not tried three times.
    assert shown.getvalue().count(words) == 2
    assert "install the same version on h1's worker" in shown.getvalue()


async def test_interrupted_run_resumes_where_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TARE_STUB_CELL_S", "0.2")
    out = tmp_path / "run"
    async with cluster("h1", "h2") as (address, _):
        running = await begun(study_file(tmp_path, 4), address, out, "h1")
        os.kill(os.getpid(), signal.SIGINT)
        assert await asyncio.wait_for(running, 60) is None
        cut = read_fold(out / "events.jsonl")
        assert 0 < len(cut.finished) < 16 and cut.ended is None
        choice = ClusterChoice(address, program=STUB)
        finished = await asyncio.wait_for(resume_on_cluster(out, decide_on, Console(), choice), 60)
    assert finished is not None and finished.status == "complete"
    fold = read_fold(out / "events.jsonl")
    assert len(fold.finished) == 16 and fold.resumed == 1
    assert set(cut.finished) <= set(fold.finished)


async def test_run_resumes_with_fewer_and_with_other_workers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TARE_STUB_CELL_S", "0.2")
    out, shown = tmp_path / "run", StringIO()
    async with cluster("h1", "h2") as (address, _):
        running = await begun(study_file(tmp_path, 4), address, out, "h2")
        os.kill(os.getpid(), signal.SIGINT)
        assert await asyncio.wait_for(running, 60) is None
    cut = set(read_fold(out / "events.jsonl").finished)
    monkeypatch.setattr(command, "PATIENCE_S", 1.0)
    async with cluster("h1", "h3") as (address, _):
        choice = ClusterChoice(address, program=STUB)
        console = Console(file=shown, width=300)
        finished = await asyncio.wait_for(resume_on_cluster(out, decide_on, console, choice), 60)
    assert finished is not None and finished.status == "complete", shown.getvalue()
    text = shown.getvalue()
    assert "not part of this run: h3; it was started on h1, h2" in text
    assert "waiting for a worker of h2, for at most 1" in text
    assert "tare worker --host h2 ADDRESS" in text
    fold = read_fold(out / "events.jsonl")
    assert len(fold.finished) == 16 and 0 < len(cut) < 16
    # What the missing host had measured of whole blocks stays; no block is of two hosts.
    assert set(fold.block.hosts.values()) <= {"h1", "h2"}


@pytest.mark.slow
@pytest.mark.boots
async def test_a_second_ctrl_c_stops_a_hosts_cell_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    out, path = tmp_path / "run", study_file(tmp_path, 4)
    path.write_text(path.read_text().replace("duration: 0.1", "duration: 100"))
    async with cluster("h1") as (address, _):
        running = asyncio.create_task(run(path, address, out, Console(), ()))
        async with asyncio.timeout(60):
            while not started_cells(out):
                await asyncio.sleep(0.1)
        assert of_state(tmp_path)
        for _ in range(2):
            os.kill(os.getpid(), signal.SIGINT)
            await asyncio.sleep(0.5)
        assert await asyncio.wait_for(running, 60) is None
    assert read_fold(out / "events.jsonl").finished == {}
    async with asyncio.timeout(10):
        while of_state(tmp_path):
            await asyncio.sleep(0.1)
    assert not list((tmp_path / "state").rglob("ledgers/*.jsonl"))


def started_cells(out: Path) -> list[str]:
    """Return the cells that a run has begun."""
    path = out / "events.jsonl"
    events = (record.event for record in read_events(path)) if path.exists() else ()
    return [event.cell for event in events if event.type == "cell_started"]


async def test_a_run_without_a_hosts_own_blocks_is_not_complete(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TARE_STUB_CELL_S", "0.5")
    monkeypatch.setattr(command, "PATIENCE_S", 0.2)
    path = study_file(tmp_path, 2, "spread: replicate")
    async with cluster("h1", "h2") as (address, held):
        study = load_study(path, build_catalog())
        choice = ClusterChoice(address, program=STUB)
        begin = run_on_cluster(
            study, study_source(path), tmp_path / "run", 7, decide_on, Console(), choice
        )
        running = asyncio.create_task(begin)
        while not (tmp_path / "run" / "events.jsonl").exists():
            await asyncio.sleep(0.01)
        await held["h2"].aclose()
        finished = await asyncio.wait_for(running, 60)
    assert finished is not None and finished.status == "failed", finished
    assert "blocks of hosts that were away were never measured" in finished.reason


@pytest.mark.slow
@pytest.mark.boots
async def test_a_scheduler_that_dies_leaves_a_run_that_resumes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TARE_STUB_CELL_S", "0.2")
    monkeypatch.setattr("tare.fleet.cluster.LOOK_S", 0.2)
    out = tmp_path / "run"
    async with cluster("h1") as (address, _):
        running = await begun(study_file(tmp_path, 3), address, out, "h1")
    assert await asyncio.wait_for(running, 90) is None
    async with cluster("h1") as (address, _):
        choice = ClusterChoice(address, program=STUB)
        finished = await asyncio.wait_for(resume_on_cluster(out, decide_on, Console(), choice), 60)
    assert finished is not None and finished.cells["ok"] == 12


@pytest.mark.parametrize(
    ("hosts", "more", "text"),
    [
        ((), "spread: split", "no worker for a host"),
        (("h1",), "spread: split\nhosts: [h1, xen9]", "there is no worker for the host xen9"),
        (("h1", "h2"), "", "does not define how 2 hosts share it"),
    ],
)
async def test_a_study_that_the_cluster_cannot_run_is_refused_before_anything_starts(
    hosts: tuple[str, ...], more: str, text: str, tmp_path: Path
) -> None:
    async with connections.scheduler("tcp://127.0.0.1:0") as serving, AsyncExitStack() as held:
        for host in hosts:
            standing = connections.worker(serving.address, host, WorkersHost())
            await held.enter_async_context(standing)
        with pytest.raises(InputError, match=text):
            await run(study_file(tmp_path, 2, more), serving.address, tmp_path / "run", Console())
    assert not (tmp_path / "run").exists()


async def test_a_second_worker_for_a_host_is_refused() -> None:
    async with cluster("h1") as (address, _):
        with pytest.raises(InputError, match="the host h1 has a worker already"):
            async with connections.worker(address, "h1", WorkersHost()):
                pass


async def test_over_tls_only_those_with_a_certificate_of_the_ca_are_let_in(tmp_path: Path) -> None:
    ours, theirs = Security.temporary(), Security.temporary()
    path = study_file(tmp_path, 2)
    study, source = load_study(path, build_catalog()), study_source(path)
    async with AsyncExitStack() as held:
        serving = await held.enter_async_context(connections.scheduler("tls://127.0.0.1:0", ours))
        standing = connections.worker(serving.address, "h1", WorkersHost(), ours)
        await held.enter_async_context(standing)
        for stranger in (theirs, None):
            choice = ClusterChoice(serving.address, stranger, STUB)
            with pytest.raises(InputError, match="no scheduler answers"):
                await run_on_cluster(
                    study, source, tmp_path / "no", 7, decide_on, Console(), choice
                )
        choice = ClusterChoice(serving.address, ours, STUB)
        finished = await run_on_cluster(
            study, source, tmp_path / "run", 7, decide_on, Console(), choice
        )
    assert finished is not None and finished.status == "complete"


async def test_nothing_listens_but_the_scheduler_and_its_workers() -> None:
    async with AsyncExitStack() as held:
        serving = await held.enter_async_context(connections.scheduler("tcp://127.0.0.1:0"))
        standing = await held.enter_async_context(
            connections.worker(serving.address, "h1", WorkersHost())
        )
        assert serving.services == standing.services == {}
        addresses = (serving.address, standing.address)
        assert all(address.startswith("tcp://127.0.0.1:") for address in addresses)


async def test_part_that_always_fails_is_reported_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "PAUSES", Pauses(failed_s=(0.1, 0.1)))
    shown = StringIO()
    program = (sys.executable, "-c", "import sys; sys.exit('no disk here')")
    async with cluster("h1") as (address, _):
        with pytest.raises(InputError, match="no host could run the study"):
            await run(
                study_file(tmp_path, 2), address, tmp_path / "run", Console(file=shown), program
            )
    assert "no disk here" in shown.getvalue()
    assert not (tmp_path / "run").exists()
