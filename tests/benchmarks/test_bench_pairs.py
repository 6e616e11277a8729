from __future__ import annotations

import itertools
import json
import statistics
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks import __main__ as runner
from benchmarks._pairs import Pairs, Side, alternate, median_interval
from benchmarks._results import Fact, Goal, Result, finish, number

VALUES = st.lists(
    st.floats(min_value=0.001, max_value=1e6, allow_nan=False), min_size=1, max_size=40
)


def test_sides_take_turns_and_the_order_flips() -> None:
    order: list[str] = []

    def side(name: str, value: float) -> Side:
        def measure() -> float:
            order.append(name)
            return value

        return Side(name, measure)

    pairs = alternate(side("a", 3.0), side("b", 2.0), 4, warmups=1)
    assert len(order) == 10
    assert all({order[i], order[i + 1]} == {"a", "b"} for i in range(0, 10, 2))
    firsts = order[0::2]
    assert all(one != other for one, other in itertools.pairwise(firsts))
    assert pairs.a == (3.0,) * 4
    assert pairs.difference == 1.0
    assert pairs.ratio == 1.5


def test_the_warm_up_does_not_count() -> None:
    values = iter([100.0, 1.0, 1.0])
    pairs = alternate(Side("a", lambda: next(values)), Side("b", lambda: 1.0), 2)
    assert pairs.a == (1.0, 1.0)


def test_pairs_must_be_pairs() -> None:
    with pytest.raises(ValueError, match="as many"):
        Pairs("a", "b", (1.0,), (1.0, 2.0))
    with pytest.raises(ValueError, match="some"):
        Pairs("a", "b", (), ())


@given(VALUES)
def test_the_interval_holds_the_median_and_keeps_its_word(values: list[float]) -> None:
    found = median_interval(values)
    assert found.low <= statistics.median(values) <= found.high
    assert 0.0 <= found.coverage < 1.0
    if len(values) >= 6:
        assert found.coverage >= 0.95


def test_the_interval_of_six_values_is_their_range() -> None:
    # 1 - 2 / 2^6, from the binomial distribution.
    found = median_interval([5.0, 1.0, 4.0, 2.0, 6.0, 3.0])
    assert (found.low, found.high) == (1.0, 6.0)
    assert found.coverage == pytest.approx(1 - 2 / 64)


def test_an_interval_needs_values() -> None:
    with pytest.raises(ValueError, match="no values"):
        median_interval([])


@pytest.mark.parametrize(
    ("found", "sense", "met"),
    [
        (0.7, "at most", True),
        (0.71, "at most", False),
        (0.7, "at least", True),
        (None, "at most", False),
    ],
)
def test_a_goal_is_met_or_not(found: float | None, sense: str, met: bool) -> None:
    goal = Goal("g", "peer", 0.7, found, "s", "at least" if sense == "at least" else "at most")
    assert goal.met is met


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (0.0123, "0.0123"),
        (1.5, "1.50"),
        (1234.5, "1234"),
        (-2.5, "-2.50"),
        (12.34, "12.3"),
    ],
)
def test_figures_are_short(value: float, text: str) -> None:
    assert number(value) == text


def test_results_are_printed_and_kept(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    machine = {"cpu_model": "A CPU", "cpus": 2, "memory_bytes": 2**30, "os": "An OS"}
    met = Goal("boot", "plain QEMU", 0.7, 0.5, "s")
    missed = Goal("boot", "virtme-ng", 1.0, None, "", detail="it did not start")
    result = Result("boot_time", (met,), (Fact("stage", 0.1, "s"),), {"tare": (1.0, 2.0)})
    assert finish(result, machine, tmp_path) == 0
    assert finish(Result("tick_loop", (met, missed)), machine, tmp_path) == 1
    printed = capsys.readouterr().out
    assert "MISSED" in printed
    assert "it did not start" in printed
    kept = json.loads((tmp_path / "boot_time.json").read_text())
    assert kept["goals"][0]["met"] is True
    assert kept["samples"]["tare"] == [1.0, 2.0]
    assert len(kept["source"]) == 16


def test_every_benchmark_is_found_and_can_be_called() -> None:
    names = runner.names()
    assert {"boot_time", "harness_overhead"} <= set(names)
    assert not any(name.startswith("_") for name in names)


def test_an_unknown_benchmark_is_bad_input(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ending:
        runner.main(["no-such-benchmark"])
    assert ending.value.code == 2
    assert "boot_time" in capsys.readouterr().err


def test_one_that_breaks_misses(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    statuses = {"good": 0, "bad": 1}
    monkeypatch.setattr(runner, "names", lambda: list(statuses))
    monkeypatch.setattr(runner, "run", lambda name, options: statuses[name])
    assert runner.main(["good"]) == 0
    assert runner.main([]) == 1
    assert "MISSED bad" in capsys.readouterr().out
