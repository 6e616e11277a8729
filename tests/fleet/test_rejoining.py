"""A host that comes back to a shared run as another one than it was."""

from __future__ import annotations

import asyncio
import sys
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from fleet import site_of_another_kernel
from fleet.fleet_cluster import begun, cluster, study_file, worker_process
from tare.events import HostLost, read_events, read_fold


@pytest.mark.slow
@pytest.mark.boots
async def test_a_host_that_comes_back_with_another_kernel_is_refused_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel = tmp_path / "kernel"
    kernel.write_text("6.1.0-18")
    monkeypatch.setenv("TARE_TEST_KERNEL", str(kernel))
    monkeypatch.setattr("tare.fleet.cluster.LOOK_S", 0.2)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("TARE_LOCKS", str(tmp_path / "locks"))
    out, shown = tmp_path / "run", StringIO()
    console = Console(file=shown, width=200)
    program = (sys.executable, site_of_another_kernel.__file__)
    async with cluster() as (address, _):
        async with worker_process(address, "h1") as worker:
            running = await begun(study_file(tmp_path, 40), address, out, "h1", console, program)
            kernel.write_text("6.1.0-19")
            worker.kill()
        async with worker_process(address, "h1"):
            finished = await asyncio.wait_for(running, 240)
    events = [record.event for record in read_events(out / "events.jsonl")]
    (lost,) = [event for event in events if isinstance(event, HostLost)]
    assert "the kernel is 6.1.0-19, and was 6.1.0-18" in lost.reason, shown.getvalue()
    assert finished is not None and finished.status == "failed"
    assert "h1 is left out from here on" in shown.getvalue()
    fold = read_fold(out / "events.jsonl")
    assert 0 < len(fold.finished) < 80
    assert fold.joined["h1"].facts["kernel"] == "6.1.0-18"
