"""What a load balancer's section says: rates by size, losses, and where the time went."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from report.report_proxied import BLOCKS, LIMIT, write_proxied_run
from tare.analysis import load_run
from tare.analysis.compare import compare
from tare.analysis.load_balancer import Through, through
from tare.report import build_report
from tare.report.figures.over_size import NOTHING, Mark, _ticks, over_size_figure
from tare.report.load_balancer import findings, load_balancer_of
from tare.report.palette import looks

ARMS = ("bare", "kvm", "tcg")


def found(folder: Path, *limited: str) -> dict[tuple[str, int], Through]:
    run = load_run(write_proxied_run(folder, limited))
    told = through([run], ARMS, "bare", 0.95)
    return {(each.arm, each.size): each for each in told}


def test_losses_are_against_the_baseline_of_the_same_block(tmp_path: Path) -> None:
    told = found(tmp_path)
    assert [arm for arm, _ in told] == ["bare", "bare", "kvm", "kvm", "tcg", "tcg"]
    kvm = told["kvm", 0]
    assert kvm.loss == pytest.approx(0.5)
    assert kvm.interval is not None
    assert kvm.interval.low == pytest.approx(0.5)
    assert kvm.blocks == BLOCKS
    assert told["tcg", 8192].loss == pytest.approx(0.975)
    assert told["bare", 0].loss is None
    assert kvm.cpu_s is not None
    assert kvm.cpu_s > 0


@pytest.mark.parametrize("limited", ["bare", "kvm"])
def test_no_loss_is_computed_where_an_end_was_the_limit(tmp_path: Path, limited: str) -> None:
    told = found(tmp_path, limited)
    assert told["kvm", 0].loss is None
    assert told[limited, 0].limited
    assert told[limited, 0].limits == (LIMIT,)
    assert told[limited, 0].requests > 0
    words = " ".join(findings(tuple(told.values())))
    assert f"{limited}: at least " in words
    assert LIMIT in words


def test_a_backend_that_takes_most_of_the_time_is_found(tmp_path: Path) -> None:
    told = found(tmp_path)
    busiest = told["kvm", 0].busiest
    assert busiest is not None
    assert busiest.who == "netback"
    assert busiest.share == pytest.approx(0.5)
    (_, kvm, _) = findings(tuple(told.values()))
    assert "Most of the host’s CPU time went to netback" in kvm
    small = next(each for each in told["kvm", 0].spent if each.who.startswith("processes"))
    assert small.who == "processes below 1 %: sh, cat"
    shares = [each.share for each in told["kvm", 0].spent if each.where == "host"]
    assert sum(shares) == pytest.approx(1.0)


@pytest.mark.slow
def test_the_page_has_the_figures_the_findings_and_both_tables(tmp_path: Path) -> None:
    run = load_run(write_proxied_run(tmp_path / "run"))
    comparison = compare([run])
    page = build_report([run], comparison, tmp_path / "out").read_text()
    assert "What goes through the load balancer" in page
    assert "netback" in page
    for name in ("rate", "band", "loss", "time"):
        assert (tmp_path / "out" / "figures" / f"load-balancer-{name}.svg").is_file()
    rows = (tmp_path / "out" / "tables" / "load-balancer.csv").read_text().splitlines()
    assert len(rows) == 1 + 6
    assert "netback" in (tmp_path / "out" / "tables" / "where-the-time-goes.csv").read_text()


def test_figures_are_left_out_that_have_nothing_to_show(tmp_path: Path) -> None:
    run = load_run(write_proxied_run(tmp_path, ARMS))
    section = load_balancer_of([run], compare([run]), looks(list(ARMS), "bare"))
    assert section is not None
    names = [figure.name for figure, _ in section.figures]
    assert names == ["load-balancer-rate", "load-balancer-band", "load-balancer-time"]


@given(st.lists(st.floats(-10, 1e9), min_size=1, max_size=20))
def test_ticks_hold_all_values(values: list[float]) -> None:
    ticks = _ticks(values)
    assert ticks[0] <= min(0.0, *values) + NOTHING
    assert ticks[-1] >= max(0.0, *values) * (1 - 1e-12) - NOTHING
    assert len(ticks) >= 2
    assert len(ticks) <= 8


def test_a_figure_tells_those_who_hear_it_what_is_at_least_so_much() -> None:
    marks = [Mark("bare", False, 0, 100.0, True), Mark("bare", False, 1024, 50.0)]
    figure = over_size_figure("f", "t", marks, looks(["bare"], "bare"), "1/s")
    assert figure.description == "bare, 0 B: at least 100 /s; bare, 1 KiB: 50.0 /s"
