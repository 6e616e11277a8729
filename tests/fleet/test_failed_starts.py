"""An attempt that does not begin, or that no host can run: reported, and finally given up."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Callable
from io import StringIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from distributed import Client
from distributed.scheduler import KilledWorker
from rich.console import Console

from fleet.fleet_cluster import cluster, run, study_file, worker_process
from tare.cli.ending import decide_on
from tare.errors import InputError
from tare.events import HostLost, read_events
from tare.fleet import command
from tare.fleet.cluster import RESOURCE, Cluster, PartAttempt
from tare.fleet.command import ClusterChoice, run_on_cluster
from tare.fleet.faults import ClusterGone, HostGone, HostTaken, PartFailed, PartRefused
from tare.fleet.retrying import Pauses, Retries
from tare.fleet.wire import Notice, StillThere
from tare.run.catalog import build_catalog
from tare.run.lifecycle.session import study_source
from tare.study.reading.load import load_study


class Scheduler:
    """Knows one worker, that of h1."""

    async def identity(self, n_workers: int) -> dict[str, Any]:
        return {"workers": {"tcp://w1": {"resources": {RESOURCE + "h1": 1}}}}


class Mute:
    """A queue that never has anything, or whose scheduler is gone."""

    def __init__(self, given_value: Any = None, gone: bool = False) -> None:
        self._said = given_value
        self._gone = gone

    async def get(self, *, batch: bool = False) -> Any:
        if batch:
            return []
        if self._said is None:
            return await asyncio.Event().wait()
        pending, self._said = self._said, None
        return [pending]

    async def put(self, message: object) -> None:
        if self._gone:
            raise OSError("closed")


def attempt(up: Mute, status: str = "pending", error: Exception | None = None) -> PartAttempt:
    """Return an attempt on h1, whose work has come to what Dask says of it."""

    async def exception() -> Exception | None:
        return error

    known = Cluster(cast("Any", SimpleNamespace(scheduler=Scheduler(), status="running")))
    future = SimpleNamespace(status=status, exception=exception)
    return PartAttempt(known, "h1", cast("Any", future), cast("Any", up), cast("Any", up))


async def heard(of: PartAttempt) -> list[object]:
    return [message async for message in of.messages()]


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tare.fleet.cluster.LOOK_S", 0.05)


@pytest.mark.parametrize(
    ("status", "error", "kind", "text"),
    [
        ("error", ImportError("No module named 'tare'"), PartFailed, "No module named 'tare'"),
        ("error", KilledWorker("t", cast("Any", None), 0), HostGone, "the worker of h1 died"),
        ("cancelled", None, HostGone, "dropped the work of h1"),
        ("lost", None, HostGone, "dropped the work of h1"),
    ],
)
async def test_a_failed_dask_task_ends_the_attempt_at_once(
    status: str, error: Exception | None, kind: type[Exception], text: str
) -> None:
    with pytest.raises(kind, match=text):
        await asyncio.wait_for(heard(attempt(Mute(), status, error)), 5)


async def test_a_worker_with_unknown_messages_is_refused() -> None:
    words = {"kind": "hello", "worker": "tcp://w1", "versions": {}, "of-a-later-version": 1}
    with pytest.raises(PartRefused, match="this version of Tare does not know"):
        await asyncio.wait_for(heard(attempt(Mute(words))), 5)


async def test_scheduler_lost_during_a_report_ends_the_run_in_order() -> None:
    with pytest.raises(ClusterGone):
        await attempt(Mute(gone=True)).send(StillThere())


async def test_worker_that_does_not_begin_is_reported_once_and_awaited(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("tare.fleet.cluster.BUSY_S", 0.1)
    waited = attempt(Mute())
    waiting = asyncio.create_task(heard(waited))
    await asyncio.sleep(0.6)
    assert not waiting.done()
    waited.withdraw()
    (notice,) = await asyncio.wait_for(waiting, 5)
    assert isinstance(notice, Notice) and "may be busy with another run" in notice.sentence


async def test_one_that_has_begun_is_not_withdrawn() -> None:
    begun = attempt(Mute({"kind": "hello", "worker": "tcp://w1", "versions": {}}))
    waiting = asyncio.create_task(heard(begun))
    await asyncio.sleep(0.2)
    begun.withdraw()
    await asyncio.sleep(0.3)
    assert begun.begun and not waiting.done()
    waiting.cancel()


def test_each_kind_of_failure_is_counted_for_itself() -> None:
    retries = Retries(Pauses(failed_s=(1.0,), taken_s=(2.0, 3.0), gone_s=(0.0, 0.0)))
    gone, taken, failed = HostGone("gone"), HostTaken("taken"), PartFailed("failed")
    assert [retries.pause_after(each) for each in (gone, taken, gone, taken, failed)] == [
        0.0, 2.0, 0.0, 3.0, 1.0
    ]  # fmt: skip
    assert retries.pause_after(gone) is None
    retries.measured()
    assert retries.pause_after(gone) == 0.0


async def _wait_for_ever() -> None:
    await asyncio.sleep(600)


async def _fails(assignment: str, up: str, down: str, program: object = ()) -> None:
    raise ImportError("No module named 'tare'")


async def test_ctrl_c_ends_the_waiting_for_a_worker_that_has_other_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tare.fleet.cluster.BUSY_S", 0.1)
    shown = StringIO()
    path, out = study_file(tmp_path, 2), tmp_path / "run"
    async with (
        cluster("h1") as (address, _),
        Client(address, asynchronous=True, set_as_default=False) as other,
    ):
        busy = other.submit(_wait_for_ever, resources={RESOURCE + "h1": 1}, pure=False)
        while not any((await other.processing()).values()):
            await asyncio.sleep(0.05)
        running = asyncio.create_task(run(path, address, out, Console(file=shown, width=300)))
        async with asyncio.timeout(30):
            while "may be busy with another run" not in shown.getvalue():
                await asyncio.sleep(0.05)
        os.kill(os.getpid(), signal.SIGINT)
        assert await asyncio.wait_for(running, 20) is None
        assert busy.status == "pending"
        await busy.cancel(force=True)


async def test_work_that_no_worker_can_begin_is_given_up_with_its_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "PAUSES", Pauses(failed_s=(0.1, 0.1)))
    shown, path = StringIO(), study_file(tmp_path, 2)
    study, source = load_study(path, build_catalog()), study_source(path)
    console = Console(file=shown, width=300)
    async with cluster("h1") as (address, _):
        choice = ClusterChoice(address, task=_fails)
        running = run_on_cluster(study, source, tmp_path / "run", 7, decide_on, console, choice)
        with pytest.raises(InputError, match="no host could run the study"):
            await asyncio.wait_for(running, 60)
    assert shown.getvalue().count("its worker could not run its part: No module named 'tare'") == 4
    assert "started by `tare worker`, with this version of Tare" in shown.getvalue()


@pytest.mark.slow
@pytest.mark.boots
async def test_a_host_whose_worker_dies_again_and_again_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TARE_STUB_CELL_S", "60")
    monkeypatch.setattr("tare.fleet.cluster.LOOK_S", 0.2)
    monkeypatch.setattr(command, "PAUSES", Pauses(gone_s=(0.0,)))
    out, shown = tmp_path / "run", StringIO()
    console = Console(file=shown, width=200)
    async with cluster() as (address, _):
        running = None
        for times in (1, 2):
            async with worker_process(address, "h1") as worker:
                running = running or asyncio.create_task(
                    run(study_file(tmp_path, 2), address, out, console)
                )
                await at_least(times, lambda: begun_cells(out))
                worker.kill()
                await at_least(times, lambda: shown.getvalue().count("the worker of h1 is gone"))
        assert running is not None
        finished = await asyncio.wait_for(running, 60)
    assert finished is not None and finished.status == "failed", shown.getvalue()
    events = [record.event for record in read_events(out / "events.jsonl")]
    (lost,) = [event for event in events if isinstance(event, HostLost)]
    assert lost.reason == "its worker died repeatedly, without a finished cell in between"


def begun_cells(out: Path) -> int:
    """Return how often a run has begun a cell."""
    path = out / "events.jsonl"
    events = (record.event for record in read_events(path)) if path.exists() else ()
    return sum(event.type == "cell_started" for event in events)


async def at_least(times: int, count: Callable[[], int]) -> None:
    """Wait until something was counted so often."""
    ends = time.monotonic() + 60
    while count() < times:
        assert time.monotonic() < ends
        await asyncio.sleep(0.1)
