"""Arms that say which host they are on, and arms that always fail, in a cluster."""

from __future__ import annotations

import asyncio
import os
import re
import signal
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from fleet.fleet_cluster import BOUND, STUB, cluster, run, study_file
from tare.analysis import compare_runs, load_run
from tare.analysis.data.settings import Settings
from tare.cli.ending import decide_on
from tare.errors import InputError
from tare.events import ArmEnded, BlockStarted, HostLost, read_events, read_fold
from tare.fleet.command import ClusterChoice, resume_on_cluster

WHOLE = {"planned": 36, "ok": 36, "failed": 0, "withheld": 0, "skipped": 0, "left": 0}


async def test_each_arm_is_measured_on_its_host_and_compared_there(tmp_path: Path) -> None:
    path, out = study_file(tmp_path, 6, study=BOUND), tmp_path / "run"
    async with cluster("h1", "h2", "h3") as (address, _):
        finished = await run(path, address, out, Console())
    assert finished is not None and finished.status == "complete", finished
    # Three arms of two cells: Tare adds the baseline on the second host.
    assert finished.cells == WHOLE
    fold = read_fold(out / "events.jsonl")
    results = [done.result for done in fold.finished.values()]
    on = {(result.arm, dict(result.facts)["measured_on"]) for result in results}
    assert on == {("bare", "h1"), ("other", "h2"), ("bare@h2", "h2")}
    begun = [r.event for r in read_events(out / "events.jsonl") if r.event.type == "block_started"]
    assert [event.block for event in begun if isinstance(event, BlockStarted)] == [*range(1, 7)]
    assert fold.block.finished == [1, 2, 3, 4, 5, 6]
    assert fold.planned is not None and fold.planned.cells_per_block == 6
    # The second host is fifty times as fast, which no ratio shows.
    data = load_run(out)
    effects = {each.arm: each.estimate for each in compare_runs(data, Settings.of([data])).effects}
    assert effects["other"] == pytest.approx(0.9, rel=0.1)


async def test_interrupted_bound_run_resumes_where_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TARE_STUB_CELL_S", "0.2")
    path, out = study_file(tmp_path, 3, study=BOUND), tmp_path / "run"
    async with cluster("h1", "h2") as (address, _):
        running = asyncio.create_task(run(path, address, out, Console()))
        while not running.done() and not _cells(out):
            await asyncio.sleep(0.05)
        os.kill(os.getpid(), signal.SIGINT)
        assert await asyncio.wait_for(running, 60) is None
        cut = _cells(out)
        assert 0 < len(cut) < 18
        choice = ClusterChoice(address, program=STUB)
        finished = await asyncio.wait_for(resume_on_cluster(out, decide_on, Console(), choice), 60)
    assert finished is not None and finished.status == "complete", finished
    assert finished.cells["ok"] == 18 and cut <= _cells(out)


async def test_machines_on_other_hosts_and_spread_are_refused(tmp_path: Path) -> None:
    across = BOUND + "scenarios: {{a: {{machines: {{peer: {{on: h1}}}}}}}}\n"
    known = BOUND.replace("h1", "local").replace("h2", "lab").replace("hosts: ", "spread: split #")
    for study, message in (
        (known, "with `spread` each host runs"),
        (across, "scenario a has machines"),
    ):
        path = study_file(tmp_path, 2, study=study)
        with pytest.raises(InputError, match=message):
            await run(path, "local:1", tmp_path / "run", Console())


@pytest.mark.parametrize(
    ("arm", "strict", "status", "text"),
    [
        ("other", False, "complete", ""),
        ("other", True, "failed", "every cell of other failed for 2 blocks .* --strict"),
        ("bare", False, "failed", "it is the baseline"),
    ],
)
async def test_an_arm_that_always_fails_ends_as_on_one_host(
    arm: str,
    strict: bool,
    status: str,
    text: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TARE_STUB_FAILS", arm)
    out, shown = tmp_path / "run", StringIO()
    console = Console(file=shown, width=200)
    async with cluster("h1", "h2") as (address, _):
        finished = await run(study_file(tmp_path, 6), address, out, console, strict=strict)
    assert finished is not None and finished.status == status, finished
    fold = read_fold(out / "events.jsonl")
    assert [(each.arm, each.reason) for each in fold.arms_ended] == [(arm, "a stub's fault")]
    assert f"{arm} ends: " in shown.getvalue()
    if status == "complete":
        # Blocks that were under way when it ended may have tried it: one on each host.
        assert 4 <= finished.cells["failed"] <= 6
        assert finished.cells["failed"] + finished.cells["skipped"] == finished.cells["ok"] == 12
    else:
        assert re.search(text, finished.reason), finished.reason
        assert finished.cells["planned"] < 24


async def test_an_arm_that_fails_on_one_host_ends_there_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    specs = {name: {"kind": "ssh", "ssh": name} for name in ("h1", "h2")}
    path = study_file(tmp_path, 4, "spread: replicate")
    for arm in ("other", "bare"):
        monkeypatch.setenv("TARE_STUB_FAILS", f"{arm}@h2")
        out = tmp_path / arm
        async with cluster("h1", "h2", specs=specs) as (address, _):
            finished = await run(path, address, out, Console())
        assert finished is not None
        events = [record.event for record in read_events(out / "events.jsonl")]
        ended = [event for event in events if isinstance(event, ArmEnded)]
        assert [(each.arm, each.host) for each in ended] == [(arm, "h2")]
        lost = [(each.host, each.reason) for each in events if isinstance(each, HostLost)]
        if arm == "other":
            assert finished.status == "complete" and finished.cells["failed"] == 4, finished
            assert finished.cells["skipped"] == 4 and not lost
        else:
            # Without its baseline nothing on that host is compared.
            assert lost == [("h2", "every cell of its baseline bare failed")]
            assert finished.status == "failed" and finished.cells["ok"] == 16 + 4


def _cells(out: Path) -> set[str]:
    """Return the cells that ended so far."""
    events = out / "events.jsonl"
    return set(read_fold(events).finished) if events.exists() and events.stat().st_size else set()
