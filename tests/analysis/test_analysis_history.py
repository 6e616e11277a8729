"""Changes over many runs: found where they are, rarely where none is, and shown by the command."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from analysis.analysis_simulate import SimulatedMetric, SimulatedRun, events_of, write_run
from run.run_driving import tare
from tare.analysis.statistics import change_point, divisive
from tare.analysis.statistics.change_point import place_ends
from tare.analysis.statistics.divisive import LEAST_PART, changes_of


def by_hand(values: list[float], place: int) -> float:
    """The energy distance by its definition."""
    before, after = values[:place], values[place:]
    n, m = len(before), len(after)
    across = sum(abs(a - b) for a in before for b in after) / (n * m)
    within = [
        sum(abs(a - b) for a in side for b in side) / (len(side) * (len(side) - 1))
        for side in (before, after)
    ]
    return n * m / (n + m) * (2 * across - sum(within))


@given(st.lists(st.integers(-50, 50).map(float), min_size=8, max_size=14))
def test_energy_is_that_of_the_definition(values: list[float]) -> None:
    rows = np.array([values])
    found = divisive._energy(np.abs(rows[:, :, None] - rows[:, None, :]))[0]
    places = range(LEAST_PART, len(values) - LEAST_PART + 1)
    assert found == pytest.approx([by_hand(values, place) for place in places], abs=1e-9)


@settings(max_examples=30, deadline=None)
@given(
    st.integers(1, 3).flatmap(
        lambda rows: st.integers(1, 16).flatmap(
            lambda n: st.lists(
                st.lists(st.floats(-1e6, 1e6), min_size=n, max_size=n),
                min_size=rows,
                max_size=rows,
            )
        )
    )
)
def test_any_sequences_have_changes_within_them(rows: list[list[float]]) -> None:
    for change in changes_of(rows):
        assert LEAST_PART <= change.start <= len(rows[0]) - LEAST_PART
        assert 0 < change.p < 0.05


def test_changes_are_found_and_rarely_made_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Twenty runs known to 1 %, ten metrics: +5 % in one of them from the 12th."""
    monkeypatch.setattr(divisive, "DRAWS", 399)
    rng = np.random.default_rng(1)
    made_up = placed = others = 0
    for study in range(60):
        rows = 0.01 * rng.standard_t(4, size=(10, 20))
        made_up += bool(changes_of(rows, seed=study))
        rows[3, 12:] += 0.05
        found = changes_of(rows, seed=study)
        placed += any(change.sequence == 3 and abs(change.start - 12) <= 1 for change in found)
        others += any(change.sequence != 3 for change in found)
    assert made_up <= 8  # 5 %, and three standard errors
    assert others <= 8
    assert placed >= 54


@pytest.mark.parametrize("law", ["normal", "heavy", "exponential"])
def test_change_point_has_a_confidence_set_of_runs(law: str) -> None:
    """Twenty runs, a change by three deviations: the place is off at times, the set covers it."""
    rng = np.random.default_rng(4)
    draw: dict[str, Callable[[], NDArray[np.float64]]] = {
        "normal": lambda: rng.standard_normal(20),
        "heavy": lambda: rng.standard_t(2.2, 20) / 1.5,
        "exponential": lambda: rng.exponential(size=20) - 1,
    }
    covered, widths, exact, studies = 0, [], 0, 60
    for study in range(studies):
        row = draw[law]()
        row[12:] += 3
        rows = np.array([row])
        place = int(divisive._energy(np.abs(rows[:, :, None] - rows[:, None, :]))[0].argmax())
        first, last = place_ends(row, LEAST_PART + place, LEAST_PART, 0.95, study)
        covered += first <= 12 <= last
        exact += LEAST_PART + place == 12
        widths.append(last - first + 1)
    assert covered >= 0.95 * studies - 3 * math.sqrt(0.0475 * studies)
    assert exact < 0.95 * studies
    assert np.mean(widths) < 8
    sure = np.repeat([0.0, 1.0], 30) + 1e-3 * rng.standard_normal(60)
    assert place_ends(sure, 30, LEAST_PART, 0.95) == (30, 30)


def walked(row: NDArray[np.float64], place: int, least: int, step: int) -> int:
    """Go from a place outward until three in a row are refused, or no values are left."""
    near = row - row.mean()
    places = np.arange(least, row.size - least + 1)
    parts = (near[:place], near[place:])
    off = [(part - part.mean()) * math.sqrt(part.size / (part.size - 1)) for part in parts]
    shuffles = np.random.default_rng(0).random((change_point.DRAWS, row.size)).argsort(axis=1)
    noise, fits = np.concatenate(off)[shuffles], change_point._fits(near, places)
    farthest, refused, tried = place, 0, place + step
    while refused < 3 and least <= tried <= row.size - least:
        gain = float(fits.max() - fits[tried - least])
        if change_point._chance(near, tried, gain, noise, places) > 0.025:
            farthest, refused = tried, 0
        else:
            refused += 1
        tried += step
    return farthest


@pytest.mark.parametrize("change", [0.0, 1.0, 2.0, 4.0, 8.0])
@pytest.mark.parametrize("missed_by", [-1, 0, 1])
def test_ends_are_the_outermost_places_that_are_not_refused(change: float, missed_by: int) -> None:
    rng = np.random.default_rng(6)
    for least in (2, LEAST_PART):
        for place in (least, 6, 14 - least):
            row = rng.standard_normal(14)
            row[place - missed_by :] += change
            ends = (walked(row, place, least, -1), walked(row, place, least, 1))
            assert place_ends(row, place, least, 0.95) == ends


def test_change_point_does_not_depend_on_the_level() -> None:
    row = np.random.default_rng(7).standard_normal(20)
    row[12:] += 3
    assert place_ends(row + 1e9, 12, LEAST_PART, 0.95) == place_ends(row, 12, LEAST_PART, 0.95)


def test_a_change_is_placed_between_its_neighbours_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first of two is found among values beyond the second, which draw it there."""
    monkeypatch.setattr(divisive, "DRAWS", 99)
    rng = np.random.default_rng(5)
    for study in range(12):
        row = rng.standard_normal(40)
        row[13:] += 3
        row[27:] -= 3
        starts = [change.start for change in changes_of([row], seed=study)]
        for start, end, found in zip([0, *starts], [*starts[1:], 40], starts, strict=False):
            part = row[start:end]
            best = divisive._energy(np.abs(part[:, None] - part[None, :])[None])[0].argmax()
            if found == starts[-1] or len(starts) < 3:
                assert found == start + LEAST_PART + int(best)


def test_each_part_is_searched_again() -> None:
    rng = np.random.default_rng(2)
    row = 0.01 * rng.standard_normal(36)
    row[12:] += 0.1
    row[24:] -= 0.2
    assert [change.start for change in changes_of([row])] == [12, 24]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Ten runs; from the seventh on the guest costs a fifth more, and all hosts differ."""
    place, folders = tmp_path_factory.mktemp("runs"), []
    for number in range(10):
        host, cost = 1 + number % 3, 1.2 if number < 6 else 1.44
        truth = {"bare": host * 1e-6, "vm": cost * host * 1e-6}
        metrics = [
            SimulatedMetric("latency", truth, workload="switch", spreads=(0.01, 0.0)),
            SimulatedMetric(
                "rate", dict.fromkeys(truth, 5.0), workload="same", spreads=(0.01, 0.0)
            ),
        ]
        simulated = SimulatedRun(
            metrics, arms={"bare": "bare", "vm": "qemu"}, seed=number, run=f"r{number}"
        )
        folders.append(write_run(place / f"r{number}", events_of(simulated)))
    return folders


def test_command_shows_where_effects_changed(runs: list[Path], tmp_path: Path) -> None:
    text = tare("history", *runs)
    assert text.returncode == 0, text.stderr
    assert "10 runs, each effect against bare: 1 change\n" in text.stdout
    out = tmp_path / "history.json"
    done = tare("history", *reversed(runs), "--format", "json", "--out", out)
    assert done.returncode == 0, done.stderr
    result = json.loads(out.read_text())
    assert result["runs"] == [f"r{number}" for number in range(10)]
    (changed, same) = sorted(result["effects"], key=lambda each: each["metric"])
    assert same["changes"] == []
    (change,) = changed["changes"]
    assert (change["before"], change["after"]) == ("r5", "r6")
    assert (change["earliest"], change["latest"]) == ("r6", "r6")
    assert re.search(r" r6 \(\d{4}-\d\d-\d\d\) ", text.stdout), "no other run may be its place"
    assert change["low"] < 1.2 < change["high"]
    assert change["high"] / change["low"] < 1.1


def test_uncertain_change_point_and_missing_ratio_are_shown(tmp_path: Path) -> None:
    """Noise of a third of the change; and losses, which most runs have none of."""
    folders, rng = [], np.random.default_rng(3)
    for number in range(16):
        cost = (1.03 if number < 9 else 1.06) * math.exp(0.01 * rng.standard_normal())
        truth = {"bare": 1e-6, "vm": cost * 1e-6}
        metrics = [
            SimulatedMetric("latency", truth, workload="switch", spreads=(0.002, 0.0)),
            SimulatedMetric("lost", {"bare": 1.0, "vm": float(number % 4 == 0)}, workload="net"),
        ]
        simulated = SimulatedRun(
            metrics, arms={"bare": "bare", "vm": "qemu"}, seed=number, run=f"r{number:02d}"
        )
        folders.append(write_run(tmp_path / f"r{number:02d}", events_of(simulated)))
    out = tmp_path / "history.json"
    text = tare("history", *folders)
    done = tare("history", *folders, "--format", "json", "--out", out)
    assert done.returncode == text.returncode == 0, (done.stderr, text.stderr)
    result = json.loads(out.read_text())
    (latency,) = (each for each in result["effects"] if each["metric"] == "latency")
    (change,) = latency["changes"]
    assert change["earliest"] <= "r09" <= change["latest"]
    assert change["earliest"] < change["latest"] < "r13"
    assert f"; {change['earliest']} to {change['latest']})" in text.stdout
    assert result["without_ratio"] == [
        {"workload": "net", "metric": "lost", "arm": "vm", "scenario": "alone", "runs": 12}
    ]
    assert "net lost of vm in alone (12 of 16 runs)" in " ".join(text.stdout.split())


def test_a_history_is_drawn(runs: list[Path], tmp_path: Path) -> None:
    out = tmp_path / "history.svg"
    done = tare("history", *runs, "--format", "svg", "--out", out)
    assert done.returncode == 0, done.stderr
    drawn = ElementTree.fromstring(out.read_text())
    kinds = [element.tag.rpartition("}")[2] for element in drawn.iter()]
    words = " ".join(filter(None, (element.text for element in drawn.iter())))
    # A symbol for each run of both effects, and one upright line where one of them changed.
    dashed = [e for e in drawn.iter() if e.get("stroke-dasharray")]
    assert len(dashed) == 1, words
    assert kinds.count("path") == 20, kinds
    assert "10 runs, each effect against bare" in words
    assert "no change found" in words and "since 20" in words


def test_runs_without_a_history_are_refused(runs: list[Path]) -> None:
    for arguments in (
        runs[:5],
        [*runs, runs[0]],
        [*runs, "--baseline", "nobody"],
        [*runs, "--out", "x"],
    ):
        done = tare("history", *arguments)
        assert done.returncode == 2, (done.stdout, done.stderr)
