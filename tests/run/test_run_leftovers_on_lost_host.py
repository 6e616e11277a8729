"""A machine's leftovers on a host that was lost are removed before the next batch there."""

from __future__ import annotations

import asyncio
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tare.hosts import Ledger, LocalHost
from tare.platforms.contract import Context
from tare.run.cells.batch import BatchRunner
from tare.run.lifecycle.folder import RunFolder


class Unstoppable:
    """A machine whose host is lost while it is stopped."""

    name = "tare-test-1-peer"

    def __init__(self) -> None:
        self.died: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    async def host_cost(self) -> dict[str, float]:
        return {}

    async def stop(self) -> None:
        raise OSError("no way there")


def run_host() -> Any:
    return SimpleNamespace(lost=asyncio.get_running_loop().create_future(), platforms={})


@pytest.mark.parametrize("left_on", [["here"], ["there"], ["here", "there"]])
async def test_leftovers_are_removed_on_each_host(tmp_path: Path, left_on: list[str]) -> None:
    calls: list[Any] = []
    cells = SimpleNamespace(log=SimpleNamespace(append=calls.append), folder=RunFolder(tmp_path))
    shared: Any = SimpleNamespace(cells=cells)
    runner = BatchRunner(
        "test", shared.cells, {}, run_host(), shared, shared, count(1), before_cells=shared
    )
    contexts: dict[str, Context] = {}
    with Ledger(tmp_path / "l-here") as here, Ledger(tmp_path / "l-there") as there:
        for name, ledger in {"here": here, "there": there}.items():
            host = LocalHost()
            host.name = name
            contexts[name] = Context(host, ledger, tmp_path, Path("/agent"))
        for name in left_on:
            context, folder = contexts[name], tmp_path / f"tare-{name}"
            folder.mkdir()
            first = context.ledger.next_number
            context.ledger.record("directory", path=str(folder))
            site: Any = SimpleNamespace(run_host=run_host(), context=context)
            machine: Any = Unstoppable()
            await runner._stop_and_log(site, machine, folder, first)
            assert folder.exists() and not calls[-1].expected
        for name, context in contexts.items():
            await runner._clear(run_host(), context)
            assert not (tmp_path / f"tare-{name}").exists()
            assert context.ledger.open_entries() == ()


async def test_rebooted_host_has_nothing_left(tmp_path: Path) -> None:
    shared: Any = SimpleNamespace()
    runner = BatchRunner(
        "test", shared, {}, run_host(), shared, shared, count(1), before_cells=shared
    )
    with Ledger(tmp_path / "ledger") as ledger:
        before = Context(LocalHost(), ledger, tmp_path, Path("/agent"))
        after = Context(LocalHost(), ledger, tmp_path, Path("/agent"))
        folder = tmp_path / "tare-x"
        folder.mkdir()
        ledger.record("directory", path=str(folder))
        runner._left[before.host.name] = (before, 0)
        await runner._clear(run_host(), after)
        assert folder.exists()
