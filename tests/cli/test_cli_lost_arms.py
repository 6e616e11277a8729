"""An arm that disappears although the host lacks nothing is a failure, which scripts see."""

from __future__ import annotations

from pathlib import Path

import pytest
import typer

from analysis.analysis_simulate import SimulatedMetric, SimulatedRun, events_of, write_run
from tare.cli.ending import EXIT_FAULT, end
from tare.events import PlatformChecked, RunFinished, RunStarted, read_fold
from tare.hosts import Ledger, LocalHost
from tare.platforms.contract import Context
from tare.platforms.oci import platform as oci
from tare.platforms.oci.options import OciOptions
from tare.platforms.oci.runtime import Runtime, Trial


@pytest.mark.parametrize("lasting", [True, False])
def test_a_lost_arm_ends_with_1_and_a_lacking_host_with_0(
    lasting: bool,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    metric = SimulatedMetric("latency", {"bare": 1e-6, "box": 2e-6}, unit="s", workload="switch")
    events = events_of(SimulatedRun([metric], arms={"bare": "bare", "box": "oci"}))
    begun, *rest = [each for each in events if "box" not in (getattr(each, "arm", ""),)]
    assert isinstance(begun, RunStarted)
    study = {**begun.study, "arms": {**begun.study["arms"]}}
    begun = begun.model_copy(update={"study": study})
    lost = PlatformChecked(
        arm="box", platform="oci", options={}, usable=False, reason="runc hung", lasting=lasting
    )
    folder = write_run(tmp_path / "run", [begun, lost, *rest])
    finished = read_fold(folder / "events.jsonl").ended
    assert isinstance(finished, RunFinished) and not finished.cells.get("failed")
    if lasting:
        end(folder, finished)
        return
    with pytest.raises(typer.Exit) as ended:
        end(folder, finished)
    assert ended.value.exit_code == EXIT_FAULT
    assert "box is missing although the host can run it: runc hung" in (capsys.readouterr().out)


@pytest.mark.parametrize("sure", [True, False])
async def test_a_failed_container_trial_does_not_count_as_missing_on_the_host(
    sure: bool, monkeypatch: pytest.MonkeyPatch, context: Context
) -> None:
    async def tried(*_: object) -> tuple[Trial, ...]:
        return (Trial(Runtime("runc"), False, "it hung", "1.1", sure=sure),)

    monkeypatch.setattr(oci, "_tried", tried)
    verdict = await oci.Oci().check(context, OciOptions())
    assert not verdict.usable and verdict.lasting is sure


@pytest.fixture
def context(agent_program: Path, tmp_path: Path) -> Context:
    return Context(
        host=LocalHost(agent_program),
        ledger=Ledger(tmp_path / "ledger.jsonl"),
        cache=tmp_path / "cache",
        agent=agent_program,
    )
