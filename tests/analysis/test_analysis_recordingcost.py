"""The cost of recording: an arm that was recorded against the same one that was not."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from tare.analysis.data.rundata import RunData
from tare.analysis.effects.comparison import Comparison
from tare.analysis.effects.results import ArmSummary, BlockValue, Key
from tare.analysis.topics.recording_cost import recording_costs
from tare.events.metric import Metric
from tare.report.sections.spikes import recording_cost_table

KEY = Key("contention", "tick", "{}", "subject", "slowdown")
BARE: dict[str, Any] = {"platform": "bare", "twin_of": None, "host_trace": None, "options": {}}
ARMS: dict[str, Any] = {
    "bare": BARE,
    "bare-again": {**BARE, "twin_of": "bare"},
    "bare-unrecorded": {**BARE, "host_trace": False},
    "oci": {**BARE, "platform": "oci"},
}


def summary(arm: str, *values: float) -> ArmSummary:
    blocks = tuple(BlockValue("r", number, value, 1) for number, value in enumerate(values, 1))
    fields: dict[str, Any] = dict.fromkeys(
        ("mean", "median", "least", "greatest", "deviation", "error", "interval", "centre")
    )
    return ArmSummary(
        key=KEY, arm=arm, metric=Metric("m", "1", "lower", headline=True), emulated=False,
        blocks=blocks, **fields,
    )  # fmt: skip


def run_of(arms: dict[str, Any], recorded: dict[str, bool]) -> RunData:
    cells = [
        SimpleNamespace(
            arm=arm,
            scenario=KEY.scenario,
            workload=KEY.workload,
            parameters=KEY.parameters,
            status="ok",
            facts={"host_trace": {"recorded": was}},
        )
        for arm, was in recorded.items()
    ]
    return cast("RunData", SimpleNamespace(study={"arms": arms}, cells=cells))


def comparison_of(*summaries: ArmSummary) -> Comparison:
    floor = SimpleNamespace(key=KEY, noise_floor=0.02)
    return cast(
        "Comparison",
        SimpleNamespace(summaries=summaries, effects=(floor,), aa=(), confidence=0.95),
    )


RECORDED = {"bare": True, "bare-again": True, "bare-unrecorded": False, "oci": True}
SUMMARIES = (
    summary("bare", 1.01, 1.03, 1.02),
    summary("bare-again", 1.02, 1.02, 1.02),
    summary("bare-unrecorded", 1.0, 1.02, 1.01),
    summary("oci", 1.5, 1.5, 1.5),
)


def test_the_same_arm_with_and_without_is_compared_within_blocks() -> None:
    (cost,) = recording_costs([run_of(ARMS, RECORDED)], comparison_of(*SUMMARIES))
    assert (cost.recorded, cost.without, cost.blocks) == ("bare", "bare-unrecorded", 3)
    assert cost.ratio == pytest.approx(1.0099, abs=1e-4)
    assert cost.interval is not None
    assert cost.interval.low < cost.ratio < cost.interval.high < 1.011
    assert cost.noise_floor == 0.02
    (row,) = recording_cost_table([cost]).shown().rows
    texts = [cell.text for cell in row]
    assert "1.010×" in texts
    assert "2 %" in texts


def test_only_blocks_that_both_have_count() -> None:
    short = (summary("bare", 1.01, 1.03), summary("bare-unrecorded", 1.0))
    (cost,) = recording_costs([run_of(ARMS, RECORDED)], comparison_of(*short))
    assert (cost.blocks, cost.interval) == (1, None)


@pytest.mark.parametrize(
    ("arms", "recorded"),
    [
        ({"bare": BARE, "oci": ARMS["oci"]}, {"bare": True, "oci": True}),
        (ARMS, dict.fromkeys(ARMS, False)),
        ({**ARMS, "bare": {**BARE, "options": {"other": 1}}}, RECORDED),
    ],
)
def test_without_such_a_pair_nothing_is_claimed(
    arms: dict[str, Any], recorded: dict[str, bool]
) -> None:
    assert recording_costs([run_of(arms, recorded)], comparison_of(*SUMMARIES)) == ()
