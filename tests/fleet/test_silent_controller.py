"""A controller that is gone without a word: its hosts stop, and remove what they made."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any, cast

import pytest
from rich.console import Console

from fleet.fleet_cluster import STUB, cluster, study_file
from fleet.test_fleet import started_cells
from processes import of_state
from tare.cli.ending import decide_on
from tare.events import read_fold
from tare.fleet.command import ClusterChoice, resume_on_cluster
from tare.fleet.wire import Assignment, Block
from tare.fleet.worker_task import _Attempt
from tare.run.catalog import build_catalog
from tare.study.reading.load import load_study


@pytest.mark.slow
@pytest.mark.boots
async def test_killed_controller_leaves_nothing_and_its_run_resumes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("TARE_LOCKS", str(tmp_path / "locks"))
    # Longer than the controller is silent while it is there.
    monkeypatch.setattr("tare.fleet.worker_task.SILENCE_S", 8.0)
    out, path = tmp_path / "run", study_file(tmp_path, 2)
    path.write_text(path.read_text().replace("duration: 0.1", "duration: 2"))
    async with cluster("h1") as (address, _):
        tare = Path(sys.executable).with_name("tare")
        words = ("run", path, "--cluster", address, "--out", out)
        controller = await asyncio.create_subprocess_exec(tare, *words)
        async with asyncio.timeout(90):
            while not started_cells(out):
                assert controller.returncode is None
                await asyncio.sleep(0.1)
        controller.kill()
        await controller.wait()
        assert of_state(tmp_path)
        async with asyncio.timeout(60):
            while of_state(tmp_path):
                await asyncio.sleep(0.2)
        assert not list((tmp_path / "state").rglob("ledgers/*.jsonl"))
        # Its host is free again: the run resumes at the beginning of the lost cell.
        choice = ClusterChoice(address)
        finished = await asyncio.wait_for(resume_on_cluster(out, decide_on, Console(), choice), 300)
    assert finished is not None and finished.status == "complete", finished
    # Two arms of one cell each, in two blocks.
    assert len(read_fold(out / "events.jsonl").finished) == finished.cells["ok"] == 4


class Up:
    """A queue that takes the first words, and no more."""

    def __init__(self) -> None:
        self.taken = 0

    async def put(self, messages: object) -> None:
        self.taken += 1
        if self.taken > 1:
            raise OSError("the connection is closed")


class Down:
    """A queue that has one block, and then nothing."""

    def __init__(self) -> None:
        self._said: list[Any] = [Block(number=1).model_dump(mode="json")]

    async def get(self, *, batch: bool = False) -> Any:
        if batch:
            return []
        return self._said.pop() if self._said else await asyncio.Event().wait()


async def test_a_host_that_cannot_say_what_it_measures_stops(tmp_path: Path) -> None:
    study = load_study(study_file(tmp_path, 2), build_catalog()).model_dump(mode="json")
    given = Assignment(run="r", study=study, source_path="", source_sha256="", seed=1)
    up = Up()
    part = _Attempt("tcp://w1", cast("Any", up), cast("Any", Down()), ())
    async with asyncio.timeout(60):
        with pytest.raises(OSError, match="the connection is closed"):
            await part.run(given.model_dump_json(), list(STUB))
    # What comes after a gap is not sent.
    assert up.taken == 2
