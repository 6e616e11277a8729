"""A host that fails is tried again after a pause, and finally given up."""

from __future__ import annotations

import asyncio
import sys
from contextlib import ExitStack
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from benchmarks import _stub_site
from fleet.fleet_cluster import cluster, run, study_file
from tare.events import HostLost, read_events
from tare.fleet import command
from tare.fleet.faults import HostTaken, PartFailed, fault_of
from tare.fleet.retrying import Pauses, Retries
from tare.fleet.wire import Ended
from tare.fleet.worker_task import FAREWELL_S
from tare.hosts.lock import host_lock

FAILS_ON_H1 = f"""
import sys
from pathlib import Path
sys.path.insert(0, {str(Path(_stub_site.__file__).parent)!r})
import _stub_site
opening = _stub_site.opening
def refuse(assignment):
    if assignment.host["ssh"] == "h1":
        sys.exit("no disk here")
    return opening(assignment)
_stub_site.opening = refuse
_stub_site.main(Path(sys.argv[1]))
"""


def test_pauses_grow_until_what_a_killed_worker_left_is_cleared_up() -> None:
    taken = fault_of(Ended(reason="the run r is under way on this host", taken=True))
    assert isinstance(taken, HostTaken)
    retries = Retries(Pauses())
    pauses = []
    while (pause_s := retries.pause_after(taken)) is not None:
        pauses.append(pause_s)
    assert pauses == sorted(pauses) and sum(pauses) == FAREWELL_S
    retries.measured()
    assert retries.pause_after(taken) == pauses[0]


def test_any_other_fault_is_tried_three_times() -> None:
    failed = fault_of(Ended(reason="no disk here"))
    assert isinstance(failed, PartFailed) and not isinstance(failed, HostTaken)
    retries = Retries(Pauses())
    assert [retries.pause_after(failed) for _ in range(3)] == [1.0, 5.0, None]


@pytest.mark.slow
@pytest.mark.boots
async def test_a_host_that_another_run_still_holds_takes_part_once_it_lets_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("TARE_LOCKS", str(tmp_path / "locks"))
    monkeypatch.setattr(command, "PAUSES", Pauses(taken_s=(0.2,) * 100))
    shown = StringIO()
    console = Console(file=shown, width=200)
    async with cluster("h1") as (address, _):
        with ExitStack() as before:
            before.enter_context(host_lock("before"))
            begun = run(study_file(tmp_path, 2), address, tmp_path / "run", console, ())
            running = asyncio.create_task(begun)
            async with asyncio.timeout(120):
                # More often than a host may fail otherwise.
                while shown.getvalue().count("next try in") < 4:
                    await asyncio.sleep(0.1)
        finished = await asyncio.wait_for(running, 120)
    assert finished is not None and finished.status == "complete", shown.getvalue()
    assert "h1: another run (process" in shown.getvalue()
    assert "left out" not in shown.getvalue()


async def test_progress_of_other_hosts_does_not_renew_the_tries_of_a_failing_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TARE_STUB_CELL_S", "0.2")
    monkeypatch.setattr(command, "PAUSES", Pauses(failed_s=(0.1, 0.3)))
    out, shown = tmp_path / "run", StringIO()
    program = (sys.executable, "-c", FAILS_ON_H1)
    specs = {name: {"kind": "ssh", "ssh": name} for name in ("h1", "h2")}
    async with cluster("h1", "h2", specs=specs) as (address, _):
        console = Console(file=shown, width=200)
        running = run(study_file(tmp_path, 6), address, out, console, program)
        finished = await asyncio.wait_for(running, 120)
    assert finished is not None and finished.status == "complete", shown.getvalue()
    events = [record.event for record in read_events(out / "events.jsonl")]
    assert [event.host for event in events if isinstance(event, HostLost)] == ["h1"]
    assert shown.getvalue().count("next try in") == 2
