"""How often a scheduler is asked for the workers of hosts, and how its answers are used."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tare.fleet.cluster import LOOK_S, RESOURCE, Cluster, PartAttempt
from tare.fleet.faults import ClusterGone, HostGone
from tare.fleet.wire import Hello

HOSTS = 50


class Scheduler:
    """Answers who stands for hosts, and counts how often it is asked."""

    def __init__(self, workers: Mapping[str, str]) -> None:
        self.workers = dict(workers)
        self.before: list[dict[str, str]] = []
        self.asked = 0
        self.gone = False

    async def identity(self, n_workers: int) -> dict[str, Any]:
        assert n_workers == -1
        self.asked += 1
        await asyncio.sleep(0.01)
        if self.gone:
            raise OSError("closed")
        known = self.before.pop() if self.before else self.workers
        workers = {at: {"resources": {RESOURCE + host: 1}} for host, at in known.items()}
        return {"workers": workers}


class Queue:
    """Says hello once, and nothing more."""

    def __init__(self, worker: str) -> None:
        self._said = [[Hello(worker=worker, versions={}).model_dump(mode="json")]]

    async def get(self, *, batch: bool = False) -> Any:
        if batch:
            return []
        if self._said:
            return self._said.pop()
        return await asyncio.Event().wait()

    async def put(self, message: object) -> None:
        """Take what the controller says."""


def cluster_of(scheduler: Scheduler) -> Cluster:
    return Cluster(cast("Any", SimpleNamespace(scheduler=scheduler, status="running")))


async def heard(cluster: Cluster, host: str, worker: str) -> AsyncIterator[object]:
    """Yield what a host says in an attempt."""
    future, queue = SimpleNamespace(status="pending"), Queue(worker)
    attempt = PartAttempt(
        cluster, host, cast("Any", future), cast("Any", queue), cast("Any", queue)
    )
    async for message in attempt.messages():
        yield message


@asynccontextmanager
async def waiting(cluster: Cluster, workers: Mapping[str, str]) -> AsyncIterator[list[Any]]:
    """Wait for what each host says, until the block ends; yield the tasks."""

    async def wait(host: str, worker: str) -> None:
        async for _ in heard(cluster, host, worker):
            pass

    tasks = [asyncio.create_task(wait(host, worker)) for host, worker in workers.items()]
    try:
        yield tasks
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def test_all_that_wait_for_hosts_share_what_the_scheduler_says(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("tare.fleet.cluster.LOOK_S", 0.2)
    workers = {f"h{number}": f"tcp://w{number}" for number in range(HOSTS)}
    scheduler = Scheduler(workers)
    async with waiting(cluster_of(scheduler), workers) as tasks:
        await asyncio.sleep(1)
        assert not any(task.done() for task in tasks)
    # One look each 0.2 s of all together, and not of each of the fifty.
    assert 2 <= scheduler.asked <= 6


async def test_a_worker_that_is_younger_than_the_answer_is_not_gone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("tare.fleet.cluster.LOOK_S", 0.2)
    scheduler = Scheduler({"h1": "tcp://new"})
    scheduler.before = [{"h1": "tcp://old"}]
    cluster = cluster_of(scheduler)
    async with waiting(cluster, {"h1": "tcp://new"}) as tasks:
        await asyncio.sleep(0.5)
        assert scheduler.asked >= 2 and not tasks[0].done()
        del scheduler.workers["h1"]
        with pytest.raises(HostGone, match="the worker of h1 is gone"):
            await asyncio.wait_for(tasks[0], 5)


async def test_lost_scheduler_is_reported_to_all_and_asked_again() -> None:
    scheduler = Scheduler({"h1": "tcp://w1"})
    cluster = cluster_of(scheduler)
    scheduler.gone = True
    found = await asyncio.gather(*(cluster.hosts() for _ in range(3)), return_exceptions=True)
    assert [type(each) for each in found] == [ClusterGone] * 3 and scheduler.asked == 1
    scheduler.gone = False
    assert await cluster.hosts(LOOK_S) == {"h1": "tcp://w1"}
