"""A pilot in sessions advises on rounds of them: how far sessions differ is what costs most."""

from __future__ import annotations

import io
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from analysis.analysis_simulate import some
from analysis.analysis_swapped import swapped
from study.study_catalog import CATALOG
from tare.analysis.data.rundata import RunData
from tare.analysis.effects.detectable import basis_of
from tare.analysis.effects.pilot import Advice, PilotTarget, advise, choose_blocks, choose_rounds
from tare.cli import detectable
from tare.report.terminal.advice import render_advice
from tare.study.reading.hosts_file import KnownHosts
from tare.study.reading.load import parse_study

STUDY = """\
study: s
baseline: bare
blocks: {least: 12, most: 24, precision: 0.02}
arms: {bare: {platform: bare}, again: {twin-of: bare}, vm: {platform: qemu}}
sessions: {boots: {a: {arms: [bare]}, b: {arms: [vm]}}}
workloads: {tick: {}}
"""
PLAIN = STUDY.replace("sessions:", "# sessions:")


def pilot(between: float, within: float, rounds: int = 30, blocks: int = 4) -> RunData:
    """Return a run whose sessions differ by ``between``, and the boots in each by ``within``."""
    rng = np.random.default_rng(7)
    of_session = between * rng.standard_normal(2 * rounds + 1)

    def log(arm: str, session: int, when: float) -> float:
        return float(of_session[session]) + within * float(rng.standard_normal())

    return swapped(rounds, blocks, log)


def advice(run: RunData, precision: float = 0.02) -> Advice:
    (only,) = advise(run, precision, 0.95)
    return only


def parsed(text: str) -> object:
    return parse_study(text.encode(), "s.yaml", CATALOG, hosts=KnownHosts(Path("hosts.yaml")))


def test_variance_between_sessions_asks_for_more_rounds() -> None:
    found = advice(pilot(between=0.05, within=0.001))
    # The half-width of a mean of n log-ratios with standard deviation 0.05·√2 is t·s/√n.
    wanted = (1.96 * 0.05 * math.sqrt(2) / math.log1p(0.02)) ** 2
    assert found.rounds == pytest.approx(wanted, rel=0.35)
    assert found.rounds % 2 == 0
    # More blocks of one session would make nothing narrower.
    assert found.blocks == found.rounds
    assert found.cost_s >= found.rounds * 1200


def test_variance_within_sessions_asks_for_more_blocks() -> None:
    found = advice(pilot(between=0.001, within=0.05))
    assert found.rounds < 12 and found.blocks > 5 * found.rounds


def test_advice_counts_rounds_and_not_blocks() -> None:
    run = pilot(between=0.05, within=0.001, rounds=6, blocks=20)
    assert advice(run).rounds > 20
    flat = replace(run, sessions=())
    assert advice(flat).rounds == 0


def test_fewer_than_two_rounds_advise_nothing() -> None:
    assert advise(pilot(0.05, 0.01, rounds=1, blocks=6), 0.05, 0.95) == ()


def test_spread_of_rounds_is_separated_from_that_of_blocks() -> None:
    run = pilot(between=0.05, within=0.001, rounds=40)
    # The twin's boots are of the baseline's session: they do not make it any better known.
    over = some(basis_of(run, "the pilot", "round"))
    assert over.spread == pytest.approx(0.05 * math.sqrt(2), rel=0.3)
    assert basis_of(run, "the pilot") is None
    assert basis_of(pilot(0.05, 0.001, rounds=2), "the pilot", "round") is None


@given(
    st.dictionaries(
        st.tuples(st.integers(1, 12), st.integers(1, 3)), st.floats(-1, 1), max_size=36
    ),
    st.lists(st.integers(1, 4), min_size=12, max_size=12),
)
def test_lost_parts_of_a_pilot_are_left_out(
    values: dict[tuple[int, int], float], rounds: list[int]
) -> None:
    asked = PilotTarget(0.5, 0.95)
    of = dict(enumerate(rounds, start=1))
    found = choose_rounds(values, of, (1.0, 1.0, 100.0), asked)
    repeats = {repeat for _, repeat in values}
    whole = {block for block, _ in values if all((block, each) in values for each in repeats)}
    assert (found is None) == (len({of[block] for block in whole}) < 2)
    if found is not None:
        assert found.rounds >= 6 and found.rounds % 2 == 0
        assert found.blocks % found.rounds == 0
    assert (choose_blocks(values, (1.0, 1.0), asked) is None) == (len(whole) < 2)


def test_the_table_has_rounds_where_there_are_any() -> None:
    def shown(*advices: Advice) -> str:
        table = io.StringIO()
        render_advice(advices, 0.05, Console(file=table, width=120))
        return table.getvalue()

    one = Advice("vm", "alone", "tick", "{}", "duration", 1, 36, 0.04, 7200.0)
    assert "rounds" not in shown(one)
    both = shown(one, Advice("far", "alone", "tick", "{}", "duration", 1, 36, 0.04, 7200.0, 12))
    assert "rounds" in both and "12 of 3" in both and "–" in both


def test_plan_counts_rounds(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    runs = {
        "sessions": pilot(0.05, 0.001),
        "plain": replace(pilot(0.05, 0.001), sessions=()),
    }
    monkeypatch.setattr("tare.analysis.load_run", lambda path: runs[path.name])
    study = parsed(STUDY)

    def sentences_of(name: str) -> list[str]:
        return detectable.resolvable_differences(study, {"typical": 1}, Path(name))  # type: ignore[arg-type]

    known = sentences_of("sessions")
    assert "over 6 to 12 rounds of sessions" in known[0]
    assert "the rounds of sessions of the pilot sessions" in known[1]
    assert known[2].startswith("6 rounds: ") and known[3].startswith("12 rounds: ")
    assert not any("blocks" in line for line in known)
    (unknown,) = sentences_of("plain")
    assert "is unknown: the pilot plain has fewer than 3 rounds" in unknown
    # Nor does a pilot that swapped nothing advise on arms that need it.
    assert detectable.advice_for(study, runs["plain"]) == ()  # type: ignore[arg-type]
    assert detectable.advice_for(parsed(PLAIN), runs["plain"])  # type: ignore[arg-type]
    assert detectable.advice_for(study, runs["sessions"])[0].rounds  # type: ignore[arg-type]
