"""What the page's script chooses from: the analysis' own verdicts; nothing ends a script."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from report.report_synthetic import QUICK, hostile, json_hostile, write_run
from tare.analysis import compare_every_pair, load_run
from tare.analysis.model import Comparison, Key
from tare.analysis.topics.interference import NeighbourEffect
from tare.events.metric import Metric
from tare.report.figures.frame import SMALL_LETTER, name_within
from tare.report.page import explorer
from tare.report.page.data import ReportData
from tare.report.page.explorer import explorer_data
from tare.report.page.links import anchor_of
from tare.report.sections.interference import neighbours_answer


@pytest.fixture(scope="module")
def comparison(tmp_path_factory: pytest.TempPathFactory) -> Comparison:
    folder = write_run(tmp_path_factory.mktemp("explored"), series=False)
    return compare_every_pair(load_run(folder))


def data_of(comparison: Comparison, out: Path = Path("elsewhere")) -> dict[str, Any]:
    text = explorer_data(ReportData(comparison.runs, comparison, out))
    assert "<" not in text
    found: dict[str, Any] = json.loads(text)
    return found


def test_explorer_has_the_verdicts_of_the_analysis_against_every_arm(
    comparison: Comparison,
) -> None:
    rows = {row[0]: row for row in data_of(comparison)["rows"]}
    for effect in comparison.effects:
        row = rows[anchor_of(effect.key, effect.arm)]
        assert (row[2], row[3], row[6][4]) == (effect.arm, effect.baseline, effect.verdict)
    assert comparison.pairs is not None
    others = [e for e in comparison.pairs.effects if e.baseline != comparison.baseline]
    for effect in others:
        row = rows[anchor_of(effect.key, effect.arm, effect.baseline)]
        assert (row[2], row[3], row[6][4]) == (effect.arm, effect.baseline, effect.verdict)
    assert len(rows) == len(comparison.effects) + len(others)


def test_values_stand_by_block_and_gaps_stay_gaps(tmp_path: Path) -> None:
    write_run(tmp_path, series=False, blocks=3, statuses={2: {("oci", "switch"): "failed"}})
    comparison = compare_every_pair(load_run(tmp_path))
    data = data_of(comparison)
    assert data["blocks"] == [[0, 1], [0, 2], [0, 3]]
    key = next(s.key for s in comparison.summaries if s.key.workload == "switch")
    number = list(dict.fromkeys(e.key for e in comparison.effects)).index(key)
    values = data["values"][str(number)]["oci"][1].split(" ")
    summary = next(s for s in comparison.summaries if (s.key, s.arm) == (key, "oci"))
    assert values[1] == "-"
    assert [float(v) for v in values if v != "-"] == pytest.approx(
        [b.value for b in summary.blocks], rel=1e-5
    )
    lost = [arms["arms"]["oci"][1] for arms in data["cells"].values() if arms["arms"]["oci"][1]]
    assert lost[0] == {"0.2": "failed: the guest panicked"}


def test_values_of_headline_metrics_are_kept_when_there_are_too_many(
    comparison: Comparison, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = len(data_of(comparison)["values"])
    monkeypatch.setattr(explorer, "MOST_VALUES", 10)
    assert 0 < len(data_of(comparison)["values"]) < whole


def test_logs_are_linked_when_they_are_next_to_the_page(tmp_path: Path) -> None:
    write_run(tmp_path, series=False, blocks=2)
    run = load_run(tmp_path)
    place = tmp_path / "machines" / run.machines[0].machine
    place.mkdir(parents=True)
    (place / "console.log").write_text("", encoding="utf-8")
    (place / "secret").write_text("", encoding="utf-8")
    comparison = compare_every_pair(run)
    listed = [m for of in data_of(comparison, tmp_path)["machines"].values() for m in of.values()]
    assert [m[1:] for m in listed if len(m) > 1] == [["console.log"]]
    assert all(len(m) == 1 for of in data_of(comparison)["machines"].values() for m in of.values())


def test_hostile_names_end_no_script(tmp_path: Path) -> None:
    evil = "</script><!--" + hostile()
    write_run(
        tmp_path, arms={"bare": QUICK["bare"], evil: QUICK["oci"]}, aa=None, blocks=2, series=False,
        statuses={2: {(evil, "tick"): "failed"}}, reason=json_hostile(),
    )  # fmt: skip
    data = data_of(compare_every_pair(load_run(tmp_path)))
    assert evil in data["arms"]


TEXTS = st.text(max_size=12)
KEYS = st.builds(Key, TEXTS, TEXTS, TEXTS, TEXTS, TEXTS)


@given(KEYS, KEYS, TEXTS, TEXTS)
def test_different_effects_have_different_link_names(
    one: Key, two: Key, arm: str, base: str
) -> None:
    name = anchor_of(one, arm, base)
    assert name[0] == "e"
    assert name.isalnum()
    assert name.isascii()
    assert (name == anchor_of(two, arm, base)) == (one == two) or _joined(one) == _joined(two)


def _joined(key: Key) -> str:
    return "\0".join(key)


@given(
    st.text("abcdef", min_size=1, max_size=30),
    st.floats(0, 500),
    st.floats(0, 300),
    st.floats(0, 600),
)
def test_names_on_an_axis_stay_within_and_leave_room(
    name: str, left: float, wide: float, taken: float
) -> None:
    text = name_within(name, left, left + wide, taken)
    if text:
        assert len(text) * SMALL_LETTER <= wide
        assert (left + left + wide - len(text) * SMALL_LETTER) / 2 >= taken
        assert text == name or len(text) >= 4


def effect(arm: str, slowdown: float, decided: bool) -> NeighbourEffect:
    key = Key("contended", "tick", "{}", "subject", "slowdown")
    return NeighbourEffect(
        arm,
        False,
        key,
        "1 neighbour",
        "alone",
        Metric("slowdown", "1", "lower"),
        slowdown,
        None,
        8,
        0.01,
        decided,
    )


def test_the_neighbours_answer_names_the_worst_of_each_arm_and_who_is_spared() -> None:
    effects = [
        effect("a", 1.5, True),
        effect("a", 3.0, True),
        effect("b", 9.0, False),
        effect("c", 4.0, True),
    ]
    answer = neighbours_answer(effects)
    assert answer.startswith(
        "Neighbours: the largest slowdown measured is 4.00× in c (tick slowdown"
    )
    assert "3.00× in a (tick slowdown, contended)" in answer
    assert "up to" not in answer
    assert answer.endswith("none was detected in b.")
    assert neighbours_answer([effect("b", 9.0, False)]) == (
        "Neighbours: no slowdown was detected in b."
    )
