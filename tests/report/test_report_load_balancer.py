"""What a load balancer's section says: rates by size, losses, and where the time went."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks._proxy_simulations import shown
from report.report_proxied import LIMIT, write_proxied_run
from report.report_run_begin import BLOCKS
from tare.analysis import load_run
from tare.analysis.effects.compare import compare
from tare.analysis.topics.load_balancer import Throughput, throughputs
from tare.analysis.topics.proxied_losses import Loss
from tare.analysis.topics.response_times import Timeline, TimeStep
from tare.events.results import CellResult, SeriesEntry
from tare.report import build_report
from tare.report.figures.over_size import NOTHING, Mark, _ticks, over_size_figure
from tare.report.figures.palette import looks
from tare.report.figures.time_spent import BarPart as TimePart
from tare.report.figures.time_spent import TimeBar, _inks, time_figures
from tare.report.page.data import ReportData
from tare.report.sections.load_balancer import LoadBalancer, _bars, families
from tare.report.sections.load_balancer_findings import findings
from tare.report.sections.load_balancer_over_time import (
    ArmCurve,
    _rates,
    _stretches,
    over_time_figure,
    over_time_figures,
)
from tare.units import format_quantity

ARMS = ("bare", "kvm", "tcg")


def found(folder: Path, *limited: str) -> dict[tuple[str, int], Throughput]:
    run = load_run(write_proxied_run(folder, limited))
    findings_of_run = throughputs([run], ARMS, "bare", 0.95)
    return {(each.arm, each.size): each for each in findings_of_run}


def test_losses_are_against_the_baseline_of_the_same_block(tmp_path: Path) -> None:
    by_arm = found(tmp_path)
    assert [arm for arm, _ in by_arm] == ["bare", "bare", "kvm", "kvm", "tcg", "tcg"]
    kvm = by_arm["kvm", 0]
    assert kvm.loss == pytest.approx(0.5)
    assert kvm.interval is not None
    assert kvm.interval.low == pytest.approx(0.5)
    assert kvm.blocks == BLOCKS
    assert by_arm["tcg", 8192].loss == pytest.approx(0.975)
    assert by_arm["bare", 0].loss is None
    # 16, 8 and 16 in three blocks.
    assert kvm.concurrency == 16
    assert kvm.cpu_s is not None
    assert kvm.cpu_s > 0


@pytest.mark.parametrize("limited", ["bare", "kvm"])
def test_no_loss_is_computed_where_an_end_was_the_limit(tmp_path: Path, limited: str) -> None:
    by_arm = found(tmp_path, limited)
    assert by_arm["kvm", 0].loss is None
    assert by_arm[limited, 0].limited
    assert by_arm[limited, 0].limits == (LIMIT,)
    assert by_arm[limited, 0].requests > 0
    words = " ".join(findings(tuple(by_arm.values())))
    assert f"{limited}: at least " in words
    assert LIMIT in words


def words_of_losses(*losses: Loss) -> str:
    """Return the sentences on losses alone, one loss a size."""
    own = [shown(1024 * n, loss) for n, loss in enumerate(losses)]
    return findings(own)[0].partition("requests/s of 0 B. ")[2]


def test_a_loss_is_claimed_only_with_a_verdict(tmp_path: Path) -> None:
    by_arm = found(tmp_path)
    words = findings([by_arm["kvm", 0]])[0]
    assert (
        "3 blocks are too few for a verdict on its loss. So far the largest is 50 %, at 0 B."
        in (words)
    )
    declared = Loss("worse", 0.2, None, 0.12, 0.27, 8, 2, 0.02)
    none = Loss("inconclusive", 0.01, None, -0.01, 0.03, 8, 2, 0.02)
    assert words_of_losses(none, declared) == (
        "At 1 KiB it lost 20 % (12 to 27 %) against the baseline. It lost at 1 of 2 sizes."
    ).replace("12 to", "12 % to")
    assert words_of_losses(none) == (
        "No loss against the baseline was detected in 8 blocks; one of up to 3 % at 0 B is not "
        "excluded."
    )
    bounded = replace(declared, estimate=None, most=None)
    assert words_of_losses(bounded) == "At 0 B it lost at least 12 % against the baseline."
    assert words_of_losses(replace(none, most=None)).endswith(
        "and limited cells leave open how large one may be."
    )
    even = replace(none, verdict="equivalent")
    assert words_of_losses(even, even) == "It equals the baseline within ± 2 % at every size."


def test_a_backend_that_takes_most_of_the_time_is_found(tmp_path: Path) -> None:
    by_arm = found(tmp_path)
    busiest = by_arm["kvm", 0].busiest
    assert busiest is not None
    assert busiest.who == "netback"
    assert busiest.share == pytest.approx(0.5)
    (_, kvm, _) = findings(tuple(by_arm.values()))
    assert "Most of the host’s CPU time went to netback" in kvm
    small = next(each for each in by_arm["kvm", 0].spent if each.who.startswith("processes"))
    assert small.who == "processes below 1 %: sh, cat"
    shares = [each.share for each in by_arm["kvm", 0].spent if each.where == "host"]
    assert sum(shares) == pytest.approx(1.0)


def words_of(folder: Path, **about: Any) -> dict[str, str]:
    """Return each arm's finding."""
    balancers = throughputs([load_run(write_proxied_run(folder, **about))], ARMS, "bare", 0.95)
    return dict(zip(ARMS, findings(balancers), strict=True))


def test_each_arms_finding_names_the_part_that_was_the_limit(tmp_path: Path) -> None:
    words = words_of(tmp_path)
    # Half of two CPUs, which one thread has.
    assert "The limit was netback, which used 1.00 of a CPU." in words["kvm"]
    assert "The machine’s own CPUs were the limit: 100 % user." in words["tcg"]
    assert "HAProxy itself used 0.80 CPUs: 15 % user, 85 % kernel." in words["bare"]
    assert "HAProxy itself" not in words["tcg"]
    assert "link" not in words["kvm"]


def test_unknown_capacity_reports_the_loss_in_cpu_time_and_latency(
    tmp_path: Path,
) -> None:
    by_arm = found(tmp_path, "kvm")
    kvm = by_arm["kvm", 0]
    # Half the requests for the same CPUs, and twice as long for each, in every block.
    assert kvm.cpu.ratio == pytest.approx(2.0)
    assert kvm.latency.ratio == pytest.approx(2.0)
    assert kvm.latency.interval is not None
    assert kvm.latency.interval.high == pytest.approx(2.0)
    assert by_arm["bare", 0].cpu.ratio is None
    bare, limited, tcg = findings(tuple(by_arm.values()))
    assert "A request takes 2.00× the baseline’s CPU time." in limited
    assert kvm.latency_s is not None
    took = format_quantity(kvm.latency_s, "s")
    assert f"At 50 requests/s, which every arm is offered, an answer takes {took}, " in limited
    assert limited.count("2.00× the baseline’s") == 2
    # Their capacity says it.
    assert "A request takes" not in bare + tcg


def test_latency_at_a_load_above_capacity_is_overload_and_not_a_loss(tmp_path: Path) -> None:
    offered = {"per_s": 500.0, "overloaded": True}
    run = load_run(write_proxied_run(tmp_path, ("kvm",), offered=offered))
    by_arm = {each.arm: each for each in throughputs([run], ARMS, "bare", 0.95) if each.size == 0}
    assert by_arm["kvm"].latency.ratio is None
    assert by_arm["kvm"].latency_s is not None
    assert by_arm["kvm"].cpu.ratio == pytest.approx(2.0)
    words = findings(tuple(by_arm.values()))[1]
    assert "At 500 requests/s, which every arm is offered, it was overloaded" in words
    assert "an answer takes" not in words


def test_host_interrupts_and_haproxys_own_figures_are_reported_next_to_its_time(
    tmp_path: Path,
) -> None:
    run = load_run(write_proxied_run(tmp_path))
    section = LoadBalancer().data(ReportData([run], compare([run])))
    assert section is not None
    by_arm = {each.arm: each for each in throughputs([run], ARMS, "bare", 0.95) if each.size == 0}
    soft, hard = by_arm["kvm"].softirq_s, by_arm["kvm"].hardirq_s
    assert soft is not None and hard is not None
    assert soft == pytest.approx(10 * hard)
    words = section.findings[1]
    assert f"software interrupts took {format_quantity(soft, 's')} a request" in words
    assert f"hardware interrupts {format_quantity(hard, 's')}." in words
    assert "HAProxy says of itself that it waited for 3 % of the time (2 threads)." in words
    (figure,) = (f for f, _ in section.figures if f.name == "load-balancer-time")
    assert f"of it 10 %, {format_quantity(soft, 's')} a request: software interrupts" in (
        figure.description
    )
    assert "HAProxy of itself: the one of its 2 threads asked waited for 3 % of" in (
        figure.description
    )
    names, *rows = (row.split(",") for row in section.tables[1].csv().splitlines())
    (row,) = (r for r in rows if r[names.index("arm")] == "kvm" and r[names.index("size")] == "0")
    assert float(row[names.index("host_hardirq_s")]) == pytest.approx(hard)
    assert float(row[names.index("haproxy_idle")]) == pytest.approx(0.03)


def test_no_arm_is_left_out_of_where_the_time_goes(tmp_path: Path) -> None:
    run = load_run(write_proxied_run(tmp_path))
    kvm = next(t for t in throughputs([run], ARMS, "bare", 0.95) if (t.arm, t.size) == ("kvm", 0))
    arms = [f"arm-{number}" for number in range(20)]
    bars = _bars([replace(kvm, arm=arm) for arm in arms], None)
    figures = time_figures("load-balancer-time", bars)
    assert [figure.name for figure in figures] == [
        "load-balancer-time",
        "load-balancer-time-2",
        "load-balancer-time-3",
    ]
    assert [figure.title.rpartition(" (")[2] for figure in figures] == [
        "1 of 3)",
        "2 of 3)",
        "3 of 3)",
    ]
    for arm in arms:
        (own,) = (f for f in figures if f"{arm}, 0 B, on the host: netback 50 %" in f.description)
        assert f"{arm}, 0 B, inside the machine: " in own.description
    (whole,) = time_figures("load-balancer-time", bars[:8])
    assert "of 1" not in whole.title


def test_several_workloads_have_findings_of_their_own(tmp_path: Path) -> None:
    balancers = throughputs([load_run(write_proxied_run(tmp_path))], ARMS, "bare", 0.95)
    both = [*balancers, *(replace(each, workload="secured", requests=7.0) for each in balancers)]
    sentences = findings(both)
    assert len(sentences) == 2 * len(ARMS)
    assert sentences[len(ARMS)].startswith("bare, secured in proxied: 7 requests/s")


def test_cells_that_differ_by_more_than_the_size_are_never_averaged(tmp_path: Path) -> None:
    run = load_run(write_proxied_run(tmp_path))
    kinds = ("connection", "keep-alive")

    def asked(cell: CellResult) -> str:
        size = cell.facts["proxy"]["size"]
        return json.dumps({"requests": kinds[cell.block % 2], "size": size, "tls_cipher": "x"})

    both = replace(run, cells=tuple(replace(each, parameters=asked(each)) for each in run.cells))
    balancers = throughputs([both], ARMS, "bare", 0.95)
    names = [f"proxy requests={kind}" for kind in kinds]
    assert list(dict.fromkeys(each.workload for each in balancers)) == names
    assert len(balancers) == 2 * len(throughputs([run], ARMS, "bare", 0.95))
    assert sum(each.blocks for each in balancers if (each.arm, each.size) == ("kvm", 0)) == BLOCKS
    assert all(each.loss == pytest.approx(0.5) for each in balancers if each.arm == "kvm")
    assert all(f"{names[n]} in proxied: " in findings(balancers)[3 * n] for n in (0, 1))
    section = LoadBalancer().data(ReportData([both], compare([both])))
    assert section is not None
    titles = [figure.title for figure, _ in section.figures]
    assert sum("keep-alive" in title for title in titles) == len(titles) / 2
    # A parameter that all share does not appear in the name.
    assert not any("cipher" in title for title in titles)


def test_a_full_link_is_reported_only_when_there_is_one(tmp_path: Path) -> None:
    # Three blocks that differ by a tenth each do not show it.
    assert (
        "More blocks are needed to show whether the link of 1.00 Gbit/s was full: 1"
        in (words_of(tmp_path / "open", network={"link": {"bits_per_s": 1e9}})["bare"])
    )
    link = {"link": {"bits_per_s": 4e8}}
    words = words_of(tmp_path, network=link)
    # 24,000 requests/s of 8 KiB, and what a cable has around them.
    assert "The link of 400 Mbit/s is full from 8 KiB on." in words["bare"]
    assert "was never full: " in words["tcg"]
    assert "The limit was the link." not in words["bare"], "of the smallest objects it is not full"
    slow = words_of(tmp_path / "slow", network={"link": {"bits_per_s": 1e5}})
    assert all("The limit was the link." in each for each in slow.values())
    assert "No part was full" not in slow["bare"]
    assert "link" not in words_of(tmp_path / "none", network={"way": "tap"})["bare"]


def test_faults_are_named_with_their_counts(tmp_path: Path) -> None:
    faults = [
        {"where": "client", "stage": "full", "what": "wrong_length", "count": 2},
        {"where": "haproxy", "stage": "", "what": "econ", "count": 1},
    ]
    words = words_of(tmp_path, faults=faults)
    cells = BLOCKS * 2
    counts = f"2 kinds of fault: {2 * cells} wrong length, {cells} haproxy econ."
    assert words["kvm"].endswith(counts)


def test_arms_that_differ_by_their_devices_have_a_figure_of_their_own(tmp_path: Path) -> None:
    run = load_run(write_proxied_run(tmp_path))
    balancers = throughputs([run], ARMS, "bare", 0.95)
    assert families(balancers, "bare") == {}
    names = {"kvm": "qemu kvm", "tcg": "qemu kvm", "bare": "bare"}
    several = [replace(each, family=names[each.arm]) for each in balancers]
    # All there is: the figure of all arms says it.
    assert families(several, "bare") == {}
    more = [*several, replace(several[0], arm="pv", family="xen pv")]
    (family,) = families(more, "bare")
    assert family == "qemu kvm"
    assert {each.arm for each in families(more, "bare")[family]} == set(ARMS)


def test_rate_times_and_probe_are_drawn_over_the_seconds_of_the_load(tmp_path: Path) -> None:
    run = load_run(write_proxied_run(tmp_path))
    cell = next(c for c in run.cells if c.arm == "kvm" and c.facts["proxy"]["size"] == 0)
    seconds = 1_000_000_000
    table: dict[str, list[float]] = {
        "time_ns": [seconds * n for n in range(3)],
        "completed": [10, 20, 30],
    }
    table |= {"failed": [0, 0, 1]}
    table |= {f"{name}_ns": [1000.0, 2000.0, 3000.0] for name in ("mean", "median", "p99", "max")}
    entries = []
    for name in ("responses", "probe-responses"):
        path = tmp_path / f"{name}.parquet"
        pl.DataFrame(table).write_parquet(path)
        of = (cell.run, cell.cell, cell.block, cell.arm, cell.scenario, cell.workload)
        entry = SeriesEntry(*of, cell.parameters, 1, "subject", name, path, {}, 0)
        entries.append(entry)
    run_with_series = replace(run, series=tuple(entries))
    figures = over_time_figures([run_with_series], ARMS, looks(list(ARMS), "bare"))
    names = [figure.name.removeprefix("load-balancer-") for figure, _ in figures]
    assert names == ["rate-time", "response-time", "p99-time", "probe-time"]
    assert figures[0][0].description == "kvm: 10.0/s to 30.0/s"
    assert figures[3][0].description == "kvm: 1.00 µs to 3.00 µs"
    assert over_time_figures([run], ARMS, looks(list(ARMS), "bare")) == ()


def test_a_stopped_proxy_leaves_a_gap_in_the_line_of_its_rate() -> None:
    # 20 requests in each tenth of a second, except in three of them.
    steps = tuple(TimeStep(0.1 * n, 20, 0, *4 * (0.01,)) for n in range(10) if n not in (4, 5, 6))
    timeline = Timeline("r", "c", 1, "bare", "s", "w", "{}", False, 0.1, steps)
    points = _rates(timeline)
    assert [rate for _, rate in points] == pytest.approx([200.0] * 4 + [0.0] * 3 + [200.0] * 3)
    assert [time for time, _ in points] == pytest.approx([0.1 * n for n in range(10)])
    figure = over_time_figure(
        "f", "t", [ArmCurve("bare", False, points)], looks(["bare"], "bare"), ""
    )
    assert figure.description == "bare: 0.00 to 200"
    assert len(list(_stretches(points))) == 2
    # So few that single ones would be noise: some steps are one point.
    few = replace(timeline, steps=tuple(replace(step, completed=2) for step in steps))
    assert [rate for _, rate in _rates(few)] == pytest.approx([10 / 0.8, 4 / 0.2])
    assert _rates(replace(timeline, steps=tuple(replace(s, completed=0) for s in steps))) == ()


@pytest.mark.slow
@pytest.mark.boots
def test_the_page_has_the_figures_the_findings_and_both_tables(tmp_path: Path) -> None:
    run = load_run(write_proxied_run(tmp_path / "run"))
    comparison = compare([run])
    page = build_report([run], comparison, tmp_path / "out").read_text()
    assert "What goes through the load balancer" in page
    assert "netback" in page
    for name in ("rate", "band", "loss", "time"):
        assert (tmp_path / "out" / "figures" / f"load-balancer-{name}.svg").is_file()
    marks = page.partition('id="load-balancer-rate"')[2].partition("</svg>")[0]
    leads = set(re.findall(r'<a href="#(e[0-9a-f]{12})"', marks))
    assert len(leads) > 1 and all(f'id="{name}"' in page for name in leads), "to effects by size"
    rows = (tmp_path / "out" / "tables" / "load-balancer.csv").read_text().splitlines()
    assert len(rows) == 1 + 6
    costs = (tmp_path / "out" / "tables" / "load-balancer-cost.csv").read_text().splitlines()
    assert len(costs) == 1 + 6
    assert "What a request cost, and how long it took" in page
    assert "netback" in (tmp_path / "out" / "tables" / "where-the-time-goes.csv").read_text()


def test_figures_are_left_out_that_have_nothing_to_show(tmp_path: Path) -> None:
    run = load_run(write_proxied_run(tmp_path, ARMS))
    section = LoadBalancer().data(ReportData([run], compare([run])))
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


def test_a_figures_text_alternative_marks_lower_bounds() -> None:
    marks = [Mark("bare", False, 0, 100.0, True), Mark("bare", False, 1024, 50.0)]
    figure = over_size_figure("f", "t", marks, looks(["bare"], "bare"), "1/s")
    assert figure.description == "bare, 0 B: at least 100/s; bare, 1 KiB: 50.0/s"


def test_owners_in_one_bar_have_colours_of_their_own() -> None:
    """There are more owners than colours, and each bar shows five owners."""
    names = [f"thread {number}" for number in range(14)]

    def bar(first: int) -> TimeBar:
        shown = [names[(first + number) % 14] for number in range(5)]
        return TimeBar(f"arm {first}", False, tuple(TimePart(who, 0.2, 1e-6) for who in shown))

    bars = [bar(first) for first in range(14)]
    inks = _inks(bars)
    for each in bars:
        assert len({inks[part.who] for part in each.parts}) == len(each.parts)


def test_a_lower_bound_of_zero_makes_no_statement() -> None:
    marks = [Mark("bare", False, 0, 0.0, least=True), Mark("bare", False, 1024, 5e6, least=True)]
    figure = over_size_figure("f", "t", marks, looks(["bare"], "bare"), "B/s")
    assert "at least 0" not in figure.description and "1 KiB: at least 5.00 MB/s" in (
        figure.description
    )
