"""No cell is lost from the account of a run, and arms that always fail end."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import typer
from hypothesis import given
from hypothesis import strategies as st

from analysis.analysis_written import RunContent, make_run
from run.run_driving import events, of_type, tare
from study.study_catalog import ABLE, CATALOG, GOOD, KINDS
from tare.analysis.statistics.shares import exact_share
from tare.cli.ending import end
from tare.errors import TareError
from tare.events import (
    ArmEnded,
    BlockFinished,
    BlockStarted,
    CellFinished,
    CellStarted,
    Event,
    Fold,
    Record,
    RunFinished,
    RunStarted,
)
from tare.run.lifecycle.cell_counts import (
    CellCounts,
    Status,
    account,
    failing_arms,
    require_worth,
    run_finished,
    summary_lines,
    tallied,
    unfinished,
)
from tare.study.planning.host_cpus import HostCpus
from tare.study.planning.plan import HostFacts, make_plan
from tare.study.reading.load import parse_study

_STUDY = parse_study(GOOD.encode(), "small.yaml", CATALOG)
PLAN = make_plan(
    _STUDY,
    1,
    dict.fromkeys(_STUDY.arms, ABLE),
    {"": HostFacts(HostCpus((0, 1, 2, 3)))},
    KINDS,
)
STATUSES = ("ok", "failed", "withheld")


class ScriptedRun:
    """A run whose events a test determines."""

    def __init__(self) -> None:
        self.fold = Fold()
        self._seq = 0
        self.happen(
            RunStarted(
                run="ab12",
                study={},
                study_path="s.yaml",
                study_sha256="0" * 64,
                seed=1,
                host={},
                versions={},
                changes=(),
            )
        )

    def happen(self, *events: Event) -> None:
        for event in events:
            self.fold.take(Record(seq=self._seq, time=float(self._seq), event=event))
            self._seq += 1

    def block(self, number: int, statuses: dict[str, str], *, reason: str = "it broke") -> None:
        """Measure a block in which each arm's cells end so; an arm that is not named has none."""
        self.happen(BlockStarted(block=number, order=()))
        for batch in PLAN.block(number):
            for cell in batch.cells:
                if cell.arm in statuses:
                    self.cell(cell.id, cell.arm, number, statuses[cell.arm], reason)
        self.happen(BlockFinished(block=number))

    def cell(
        self,
        cell: str,
        arm: str,
        block: int,
        status: str,
        reason: str = "",
        transient: bool = False,
    ) -> None:
        begun = CellStarted(
            cell=cell, block=block, arm=arm, scenario="alone", workload="tick", parameters={}
        )
        why = reason if status != "ok" else ""
        ended = CellFinished.model_validate(
            {"cell": cell, "status": status, "reason": why, "transient": transient}
        )
        self.happen(begun, ended)


def test_an_arm_ends_with_the_commonest_reason_of_its_cells() -> None:
    scripted, arm = ScriptedRun(), PLAN.arms[-1]
    scripted.block(1, {arm: "failed"}, reason="tare-ab12-1-subject: it broke")
    scripted.block(2, {arm: "failed"}, reason="tare-ab12-7-subject: it broke")
    rare = next(cell for batch in PLAN.block(2) for cell in batch.cells if cell.arm == arm)
    scripted.cell(f"{rare.id}#2", arm, 2, "failed", "a reason of its own")
    (ended,) = failing_arms(PLAN, scripted.fold, 2)
    assert (ended.arm, ended.block, ended.reason) == (arm, 2, "the subject: it broke")
    assert ended.tried == ended.failed


@given(st.lists(st.dictionaries(st.sampled_from(PLAN.arms), st.sampled_from(STATUSES)), max_size=4))
def test_planned_is_finished_failed_skipped_and_left(blocks: list[dict[str, str]]) -> None:
    scripted = ScriptedRun()
    compared = False
    for number, statuses in enumerate(blocks, start=1):
        over = {each.arm for each in scripted.fold.arms_ended}
        compared |= "bare" not in over and statuses.get("bare") == "ok"
        scripted.block(number, {arm: each for arm, each in statuses.items() if arm not in over})
        scripted.happen(*failing_arms(PLAN, scripted.fold, number))
    found = account(PLAN, scripted.fold)
    per_block = sum(len(batch.cells) for batch in PLAN.batches)
    assert found.planned == sum(found.counts.values()) == per_block * len(blocks)
    lost = found.counts["failed"] + found.counts["withheld"]
    assert sum(found.reasons.values()) == lost
    assert found.baseline_counts == compared
    ended = {each.arm: each.block for each in scripted.fold.arms_ended}
    after = [
        cell
        for block in range(1, len(blocks) + 1)
        for batch in PLAN.block(block)
        for cell in batch.cells
        if cell.arm in ended and block > ended[cell.arm]
    ]
    assert found.counts["skipped"] == len(after)


def test_where_only_their_number_was_planned_what_did_not_end_is_left() -> None:
    found = tallied([], 3, "bare")
    assert found.numbers == {
        "planned": 3, "ok": 0, "failed": 0, "withheld": 0, "skipped": 0, "left": 3
    }  # fmt: skip


@pytest.mark.parametrize("status", ["complete", "stopped", "failed"])
@pytest.mark.parametrize("left", [0, 2])
@pytest.mark.parametrize("compared", [True, False])
def test_only_a_run_that_has_its_cells_and_its_baseline_is_complete(
    status: Status, left: int, compared: bool
) -> None:
    counts = {"ok": 3, "failed": 0, "withheld": 0, "skipped": 0, "left": left}
    cells = CellCounts(3 + left, counts, {}, compared)
    finished = run_finished(cells, Fold(), "metal", status, "it was asked to", 1.5)
    assert finished.wall_s == 1.5 and finished.cells == cells.numbers
    if status != "complete" or (not left and compared):
        assert (finished.status, finished.reason) == (status, "it was asked to")
    elif left:
        assert (finished.status, finished.reason) == (
            "failed",
            "2 planned cells were never measured",
        )
    else:
        assert (
            finished.status == "failed"
            and "no cell of the baseline metal counts" in finished.reason
        )


def test_an_arm_that_fails_everywhere_for_two_blocks_ends_and_its_cells_are_skipped() -> None:
    scripted = ScriptedRun()
    arms = dict.fromkeys(PLAN.arms, "ok")
    scripted.block(1, {**arms, "qemu-pv": "failed", "qemu-em": "failed"})
    assert failing_arms(PLAN, scripted.fold, 1) == []
    scripted.block(2, {**arms, "qemu-pv": "failed"})
    (ended,) = failing_arms(PLAN, scripted.fold, 2)
    own = sum(len(batch.cells) for batch in PLAN.batches if batch.arm == "qemu-pv")
    assert (ended.arm, ended.block, ended.tried, ended.failed) == ("qemu-pv", 2, 2 * own, 2 * own)
    assert ended.reason == "it broke"
    scripted.happen(ended)
    scripted.block(3, {arm: "ok" for arm in arms if arm != "qemu-pv"})
    assert failing_arms(PLAN, scripted.fold, 3) == []
    found = account(PLAN, scripted.fold)
    assert found.counts["skipped"] == own
    assert found.counts["left"] == 0


def test_reasons_are_counted_whichever_machine_they_name() -> None:
    scripted = ScriptedRun()
    scripted.block(1, {"bare": "failed"}, reason="tare-1122-ab12ef-3-subject died")
    scripted.block(2, {"bare": "failed"}, reason="tare-1122-ab12ef-77-subject died")
    assert list(account(PLAN, scripted.fold).reasons) == ["the subject died"]


def test_reasons_that_differ_by_a_processs_number_alone_are_one() -> None:
    scripted = ScriptedRun()
    reasons = ["[ALERT] (1924) : limit is 2000", "[ALERT] (77) : limit is 2000", "limit is 2001"]
    for block, reason in enumerate(reasons, 1):
        scripted.block(block, {"bare": "failed"}, reason=reason)
    assert list(account(PLAN, scripted.fold).reasons) == [reasons[0], reasons[2]]


def test_reasons_that_differ_by_the_moment_in_a_kernels_words_alone_are_one() -> None:
    scripted = ScriptedRun()
    reasons = [
        f"it restarted itself; last console line: [{at}] sysrq" for at in ("   9.5", "16.123")
    ]
    for block, reason in enumerate(reasons, 1):
        scripted.block(block, {"bare": "failed"}, reason=reason)
    assert list(account(PLAN, scripted.fold).reasons) == [reasons[0]]


def test_the_baselines_end_ends_the_run_and_with_strict_any_arms() -> None:
    ended = ArmEnded(arm="oci", block=2, tried=4, failed=4, reason="no runtime")
    require_worth([ended], "bare", strict=False)
    with pytest.raises(TareError, match=r"no runtime.*--strict"):
        require_worth([ended], "bare", strict=True)
    with pytest.raises(TareError, match=r"every cell of oci failed .* nothing to compare with"):
        require_worth([ended], "oci", strict=False)
    there = ended.model_copy(update={"host": "h2"})
    with pytest.raises(TareError, match="every cell of oci on h2 failed"):
        require_worth([there], "oci", strict=False)


def test_a_passing_fault_before_a_kill_is_tried_again() -> None:
    scripted = ScriptedRun()
    scripted.happen(BlockStarted(block=1, order=()))
    first, second = (cell for cell in PLAN.block(1)[0].cells[:2])
    scripted.cell(first.id, first.arm, 1, "failed", "the guest hung", transient=True)
    scripted.cell(second.id, second.arm, 1, "failed", "it cannot be")
    pending = {cell.id for _, cells in unfinished(PLAN, 1, scripted.fold.settled) for cell in cells}
    assert first.id in pending
    assert second.id not in pending
    scripted.happen(BlockFinished(block=1))
    assert first.id in scripted.fold.settled


def test_the_closing_line_counts_everything() -> None:
    cells = {"planned": 6, "ok": 0, "failed": 6, "withheld": 0, "skipped": 0, "left": 0}
    finished = RunFinished(
        status="failed", reason="no cell of the baseline", cells=cells, reasons={"it broke": 6}
    )
    assert [line for line, _ in summary_lines(finished)] == [
        "  6 × it broke",
        "failed: 6 cells planned, 6 failed (no cell of the baseline)",
    ]


@given(st.integers(0, 60), st.integers(1, 60), st.floats(0.5, 0.99))
def test_an_exact_interval_holds_the_share_and_tightens_with_tries(
    hits: int, tries: int, confidence: float
) -> None:
    hits = min(hits, tries)
    share = exact_share(hits, tries, confidence)
    low, high = share.low, share.high
    assert 0 <= low <= hits / tries <= high <= 1
    # Clopper and Pearson's definition: each tail holds no more than its part.
    outside = (1 - confidence) / 2
    above = sum(
        math.comb(tries, k) * low**k * (1 - low) ** (tries - k) for k in range(hits, tries + 1)
    )
    assert above == pytest.approx(outside if hits else 1.0, abs=1e-6)


STUDY = """
study: failing
baseline: bare
blocks: {least: 3, most: 3}
arms:
  bare: {platform: bare, shape: {memory: 1GiB}}
  small: {platform: bare, shape: {memory: 32MiB}}
workloads:
  memory-latency: {sizes: [64MiB], duration: 1ms}
"""


@pytest.mark.parametrize("strict", [False, True])
def test_failed_cells_are_in_the_status_the_last_line_and_the_lead(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, strict: bool
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    (tmp_path / "study.yaml").write_text(STUDY)
    folder = tmp_path / "run"
    done = tare("run", tmp_path / "study.yaml", "--out", folder, *(["--strict"] if strict else []))
    output = " ".join(done.stdout.split())
    assert done.returncode == 1, output
    (ended,) = of_type(folder, "arm_ended")
    assert (ended["arm"], ended["block"], ended["failed"]) == ("small", 2, 2)
    finished = events(folder)[-1]
    assert finished["type"] == "run_finished"
    assert finished["cells"]["failed"] == 2
    if not strict:
        assert finished["cells"] == {
            "planned": 6, "ok": 3, "failed": 2, "withheld": 0, "skipped": 1, "left": 0
        }  # fmt: skip
        assert "complete: 6 cells planned, 3 ok, 2 failed, 1 skipped with their arm" in output
        assert "2 × " in output
        page = (folder / "report.html").read_text()
        assert "small ended after block 2, as 2 of its 2 cells had failed" in page
        assert "16% to 100%" in page
    else:
        assert finished["status"] == "failed"
        assert "--strict" in output


@pytest.mark.parametrize(("blocks", "status"), [((1, 2, 3), 1), ((1, 2), None), ((), None)])
def test_arm_without_a_valid_cell_is_reported_by_line_and_status(
    blocks: tuple[int, ...],
    status: int | None,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    withheld = frozenset((block, "oci") for block in blocks)
    content = RunContent(study={"study": "small"}, withheld=withheld)
    run = make_run(tmp_path / "run", content=content)
    finished = RunFinished(status="complete", cells={"planned": 6, "ok": 6 - len(blocks)})
    if status is None:
        end(run, finished)
    else:
        with pytest.raises(typer.Exit) as ended:
            end(run, finished)
        assert ended.value.exit_code == status
    text = capsys.readouterr().out
    assert ("oci has no valid cell: the clock was wrong" in text) == (status is not None)
