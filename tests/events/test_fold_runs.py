"""The fold of a run's events: the run's blocks, times and arms."""

from __future__ import annotations

from pathlib import Path

import pytest

from tare.events import (
    BlockFinished,
    BlockStarted,
    CellFinished,
    CellStarted,
    Decided,
    Event,
    Fold,
    Record,
    RunResumed,
    RunStarted,
)
from tare.events.fold import fold_records
from tare.events.model import (
    ImageReady,
    MachineReady,
    MachineStarting,
    MachineStopped,
    PlatformChecked,
    SeriesSaved,
    Skipped,
)

BEGUN = RunStarted(
    run="r1", study={"arms": {"bare": {"platform": "bare"}, "vm": {"platform": "qemu"}}},
    study_path="", study_sha256="", seed=1, host={}, versions={},
)  # fmt: skip
RESUMED = RunResumed(run="r1", versions={})


def folded(*events: Event, times: tuple[float, ...] = ()) -> Fold:
    """Fold a run that begins at 0 s; the other events come a second apart if no times are given."""
    return fold_records(
        Record(
            seq=number, time=times[number - 1] if times and number else float(number), event=event
        )
        for number, event in enumerate([BEGUN, *events])
    )


def block(number: int) -> BlockStarted:
    return BlockStarted(block=number, order=())


def cell(number: int, arm: str, status: str = "ok") -> list[Event]:
    name = f"b{number:03}/{arm}/alone/tick"
    begun = CellStarted(
        cell=name, block=number, arm=arm, scenario="alone", workload="tick", parameters={}
    )
    return [begun, CellFinished.model_validate({"cell": name, "status": status})]


def test_cells_that_failed_or_are_withheld_are_lost_and_do_not_count() -> None:
    fold = folded(*cell(1, "bare"), *cell(1, "vm", "failed"), *cell(1, "oci", "withheld"))
    assert fold.lost_cells == 2
    assert [done.result.arm for done in fold.counted_cells()] == ["bare"]
    assert [result.arm for result in fold.cell_results()] == ["bare", "vm", "oci"]


def test_a_break_leaves_what_ended_blocks_hold() -> None:
    ended = [BlockFinished(block=1), BlockFinished(block=2)]
    happened = [*cell(1, "bare"), *cell(2, "bare"), *ended, *cell(3, "bare")]
    changed = RunResumed(run="r1", versions={}, changed=("the kernel",))
    fold = folded(*happened, changed)
    assert [done.result.block for done in fold.counted_cells()] == [1, 2]
    assert [(each.block, each.changed) for each in fold.breaks] == [(2, ("the kernel",))]
    # Where nothing has changed, a block may be of two processes.
    assert [done.result.block for done in folded(*happened, RESUMED).counted_cells()] == [1, 2, 3]
    (before_any,) = folded(changed).breaks
    assert before_any.block == 0


def test_the_newest_decision_is_the_one_that_counts() -> None:
    first = Decided(block=1, go_on=True, reason="wide")
    second = Decided(block=2, go_on=False, reason="narrow")
    assert folded().decided is None
    assert folded(first).decided == first
    assert folded(first, second).decided == second


@pytest.mark.parametrize(
    ("skipped", "reason"),
    [
        ([], "it was not checked before the run ended"),
        ([Skipped(arm="vm", reason="no /dev/kvm")], "no /dev/kvm"),
        ([Skipped(arm="bare", reason="no /dev/kvm")], "it was not checked before the run ended"),
        (
            [
                Skipped(arm="vm", workload="tick", reason="no clock"),
                Skipped(arm="vm", reason="off"),
            ],
            "off",
        ),
    ],
)
def test_an_arm_that_was_never_checked_has_the_reason_why(
    skipped: list[Event], reason: str
) -> None:
    bare = PlatformChecked(
        arm="bare", platform="bare", options={}, usable=True, emulated=False, capabilities={}
    )
    first, second = folded(bare, *skipped).platform_results()
    assert (first.arm, first.usable) == ("bare", True)
    assert (second.arm, second.platform, second.usable) == ("vm", "qemu", False)
    assert second.reason == reason


def test_an_arm_that_is_skipped_twice_is_listed_once() -> None:
    events = [Skipped(arm="vm", reason="off"), Skipped(arm="vm", reason="off")]
    assert len(folded(*events, RESUMED, events[0]).skipped) == 1


def test_only_time_in_which_a_process_was_there_is_the_runs() -> None:
    fold = folded(block(1), RESUMED, block(2), times=(10.0, 100.0, 105.0))
    assert fold.wall_s == 15.0


def test_a_block_has_a_time_where_one_process_began_and_ended_it() -> None:
    whole = folded(block(1), BlockFinished(block=1), times=(10.0, 14.0))
    assert (whole.block.took_s, whole.block.last_took_s) == ([4.0], 4.0)
    assert (whole.block.under_way, whole.block.shared) == (False, False)
    broken = folded(block(1), RESUMED, block(1), BlockFinished(block=1), times=(1.0, 2.0, 3.0, 4.0))
    assert (broken.block.took_s, broken.block.last_took_s) == ([], None)
    assert (broken.block.shared, broken.block.finished) == (True, [1])


def test_blocks_of_several_hosts_overlap() -> None:
    fold = folded(
        BlockStarted(block=1, order=(), host="a"),
        BlockStarted(block=2, order=(), host="b"),
        BlockFinished(block=1),
        times=(1.0, 2.0, 5.0),
    )
    assert (fold.block.number, fold.block.under_way, fold.block.began) == (2, True, 2.0)
    assert (fold.block.took_s, fold.block.hosts) == ([4.0], {1: "a", 2: "b"})
    assert not folded(block(1), RESUMED).block.under_way
    assert (folded().block.number, folded().block.began) == (0, 0.0)


def test_the_first_image_of_an_arm_is_the_one_that_the_run_began_with() -> None:
    def image(arm: str, digest: str) -> ImageReady:
        return ImageReady(arm=arm, kernel="6.1", digest=digest, cached=False, took_s=1.0)

    fold = folded(image("vm", "old"), image("other", "x"), image("vm", "new"))
    assert fold.first_digest("vm") == "old"
    assert fold.first_digest("none") is None


def test_series_belong_to_cells_that_are_under_way(tmp_path: Path) -> None:
    (begun, good), (other, failed) = cell(1, "bare"), cell(1, "vm", "failed")

    def saved(of: Event, path: str) -> SeriesSaved:
        assert isinstance(of, CellStarted)
        return SeriesSaved(
            cell=of.cell, name="ticks", path=path, columns={"at": "f8"}, rows=1, sha256="0"
        )

    fold = folded(
        begun, saved(begun, "1"), saved(other, "early"), good, saved(begun, "late"),
        other, saved(other, "2"), failed,
    )  # fmt: skip
    assert [each.path.name for each in fold.series(tmp_path)] == ["1"]
    assert [each.path.name for each in fold.all_series(tmp_path)] == ["1", "2"]


def test_machines_are_listed_in_the_order_of_their_start() -> None:
    def starting(name: str) -> MachineStarting:
        return MachineStarting(machine=name, block=1, arm="vm", scenario="alone", role="subject")

    fold = folded(
        starting("a"),
        starting("b"),
        MachineReady(machine="b", boot_s=2.0, proof={}),
        MachineReady(machine="a", boot_s=1.5, proof={}),
        MachineStopped(machine="a", expected=True),
        MachineStopped(machine="unknown", expected=True),
        MachineReady(machine="unknown", boot_s=0.5, proof={}),
    )
    assert [each.machine for each in fold.machine_results()] == ["a", "b"]
    assert fold.booting_s == 4.0
