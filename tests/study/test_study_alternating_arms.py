"""Two arms by turns: requirements on the study, plans and refusals."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from study.study_catalog import ABLE, KINDS
from study.study_pairs import plan_of, study_of, two_arms
from tare.errors import InputError
from tare.study.planning.cells import cell_label

TURNS = two_arms("turns")


@given(st.integers(0, 2**63 - 1), st.integers(1, 20))
def test_arms_measure_alike_on_the_same_cpus(seed: int, number: int) -> None:
    first, second = plan_of(study_of(TURNS), seed=seed).block(number)
    assert {first.arm, second.arm} == {"bare", "kvm"}
    assert first.placement.subject == second.placement.subject != ()
    labels = [[cell_label(cell.id) for cell in batch.cells] for batch in (first, second)]
    assert labels[0] == labels[1]
    assert len(labels[0]) == 6
    assert any("in turns" in note for note in first.placement.notes)


def test_which_arm_is_first_changes_from_block_to_block() -> None:
    plan = plan_of(study_of(TURNS))
    first = [plan.block(number)[0].arm for number in range(1, 9)]
    assert first.count("bare") == first.count("kvm") == 4


def test_turns_without_a_twin_warn_to_measure_it_separately() -> None:
    (warning,) = [words for words in study_of(TURNS).warnings if "no A/A pair" in words]
    assert "run it once with `bare-again: {twin-of: bare}` as the other arm" in warning


def test_the_position_in_the_block_is_not_a_covariate() -> None:
    assert not study_of(TURNS.replace("least: 8, most: 8", "least: 12, most: 12")).blocks.position
    # Without turns, places are taken into account by default, also with few blocks.
    assert study_of(TURNS.replace(", turns: true", "")).blocks.position
    for method, adjusted in (("stein", False), ("sequential", True)):
        other = TURNS.replace(", turns: true", f", method: {method}")
        assert study_of(other).blocks.position == adjusted


def test_servers_of_arms_on_one_network_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(KINDS["tick"], "needs", frozenset({"network"}))
    hosts = replace(ABLE, host_addresses=True)
    assert plan_of(study_of(TURNS), bare=hosts).skipped == ()
    with pytest.raises(InputError, match="two servers cannot share one port"):
        plan_of(study_of(TURNS), bare=hosts, kvm=hosts)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("  kvm:", "  bare-again: {twin-of: bare}\n  kvm:"), r"s\.yaml:3:.*study has 3: remove"),
        (("turns: true", "turns: true, duet: true"), "either `duet` or `turns`"),
        (("turns: true", "turns: true, position: true"), "remove `position`"),
        (
            (
                "{subject: {cpus: pinned}}",
                "{subject: {cpus: pinned}, neighbours: [{load: cpu-load}]}",
            ),
            r"s\.yaml:8:.*remove them, or `turns`",
        ),
        (
            ("accelerator: kvm}", "accelerator: kvm, host-trace: true}"),
            "remove `host-trace` or `turns`",
        ),
    ],
)
def test_studies_that_cannot_be_by_turns_are_refused(change: tuple[str, str], message: str) -> None:
    with pytest.raises(InputError, match=message):
        study_of(TURNS.replace(*change))
