"""Figures: ticks, clusters, tails, colours, and what inlining does to a drawing."""

import math
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from report.report_synthetic import comparison_of, write_run
from report.report_values import ArmSpec
from tare.analysis.model import Comparison, SeriesSummary
from tare.report.figures.axes import linear_ticks, log_axis, tick_label, value_axis
from tare.report.figures.canvas import Canvas
from tare.report.figures.distribution import clusters, distribution_figure
from tare.report.figures.drawing import draw
from tare.report.figures.frame import Figure, Mark, Spec, ratio_ticks
from tare.report.figures.overhead import metrics_figure, overhead_figure
from tare.report.figures.palette import INKS, TIE, ArmStyle, looks
from tare.report.figures.plot import width_of
from tare.report.figures.series import exceedance, scatter_figure, tail_figure
from tare.report.figures.svg import TIP, inline_svg, legible
from tare.report.page.arrange import arrange

POSITIVE = st.floats(1e-6, 1e6)
MEASURED = st.one_of(st.just(0.0), st.floats(1e-12, 1e12), st.floats(-1e12, -1e-12))


@pytest.fixture(scope="module")
def comparison(tmp_path_factory: pytest.TempPathFactory) -> Comparison:
    folder = tmp_path_factory.mktemp("figures")
    write_run(folder, series=False)
    return arrange(comparison_of(folder))


def styles(comparison: Comparison) -> dict[str, ArmStyle]:
    return looks(comparison.arms, comparison.baseline)


def values(spec: Spec) -> list[Mark]:
    """All marks of a drawing, of whatever kind."""
    return [mark for marks in spec.marks.values() for mark in marks]


@given(POSITIVE, POSITIVE)
def test_ratio_ticks_are_few_inside_and_ascending(a: float, b: float) -> None:
    low, high = sorted((a, b))
    assume(high / low > 1.001)
    ticks = ratio_ticks(low, high)
    assert len(ticks) <= 7
    assert ticks == sorted(ticks)
    assert all(low * (1 - 1e-6) <= tick <= high * (1 + 1e-6) for tick in ticks) or ticks == [1.0]


@pytest.mark.parametrize("reach", [1.003, 1.02, 1.3, 2.0, 40.0, 4e5])
def test_one_is_always_a_tick_of_ratios(reach: float) -> None:
    assert 1 in ratio_ticks(1 / reach, reach)


@given(st.floats(-1e9, 1e9), st.floats(1e-9, 1e9))
def test_linear_ticks_are_few_and_inside(low: float, span: float) -> None:
    assume(low + span > low and span > abs(low) * 1e-6)
    ticks = linear_ticks(low, low + span)
    assert 1 <= len(ticks) <= 6
    slack = span * 1e-3
    assert all(low - slack <= tick <= low + span + slack for tick in ticks)


def test_tick_labels_are_quantities_as_people_write_them() -> None:
    assert tick_label(6.8e-05, "s") == "68 µs"
    assert tick_label(2.5e9, "B/s") == "2.5 GB/s"
    assert tick_label(0, "s") == "0"


def test_wide_values_get_a_logarithmic_axis_and_narrow_ones_a_linear() -> None:
    assert value_axis([1, 100], "s").logarithmic
    assert not value_axis([10, 11], "s").logarithmic
    assert not value_axis([0, 100], "s").logarithmic


@given(POSITIVE, st.one_of(st.just(1.0), st.floats(1.001, 1e6)))
def test_a_logarithmic_axis_always_has_a_tick(low: float, factor: float) -> None:
    axis = log_axis(low, low * factor, "s")
    assert axis.ticks and all(-1e-3 <= axis.share(tick) <= 1 + 1e-3 for tick in axis.ticks)


@given(st.lists(MEASURED, min_size=1, max_size=9), st.integers(2, 8))
def test_an_axis_has_room_for_all_its_values_and_ticks(found: list[float], most: int) -> None:
    axis = value_axis(found, "s", most=most)
    places = [axis.share(value) for value in (*found, *axis.ticks)]
    assert all(-1e-6 <= place <= 1 + 1e-6 for place in places)
    assert len(axis.ticks) == len(axis.labels)
    ascending = sorted(found)
    assert [axis.share(v) for v in ascending] == sorted(axis.share(v) for v in found)


def test_dead_heats_are_grey_and_emulated_marks_hollow(comparison: Comparison) -> None:
    figure = overhead_figure(comparison, styles(comparison))
    assert figure is not None
    points = [row for row in values(figure.spec) if "s" in row]
    grey = [p for p in points if p["c"] == TIE.light]
    ties = [e for e in comparison.headlines if e.verdict in {"equivalent", "inconclusive"}]
    assert ties and len(grey) == 2 * len(ties)
    hollow = [p for p in points if p["f"] != p["c"]]
    emulated = [e for e in comparison.headlines if e.emulated]
    assert emulated and len(hollow) == 2 * len(emulated)
    assert figure.emulated
    labels = [row["t"] for row in values(figure.spec) if "t" in row]
    assert labels.count("qemu-em (emulated)") == 5


def test_the_figures_numbers_are_the_comparisons(comparison: Comparison) -> None:
    figure = overhead_figure(comparison, styles(comparison))
    assert figure is not None
    labels = [row["t"] for row in values(figure.spec) if "t" in row]
    for effect in comparison.headlines:
        assert effect.overhead is not None
        shown = f"{1 + effect.overhead:.3g}"[:3]
        assert any(label.startswith(shown) for label in labels), (effect.arm, shown)
        assert effect.verdict in labels


def test_an_arm_keeps_its_colour_in_every_figure(comparison: Comparison) -> None:
    style = styles(comparison)
    part = [s for s in comparison.summaries if s.headline and s.key.workload == "numeric-sort"]
    dots = distribution_figure(part, style, name="n", part="p").spec.marks["point"]
    of_arm = {row["c"] for row in dots if row["d"].startswith(f"{TIP}oci,")}
    assert of_arm == {style["oci"].ink.light}
    assert len({look.ink.light for look in style.values()}) == len(style)


def test_many_effects_share_rows_and_get_a_legend(tmp_path: Path) -> None:
    arms = {"bare": ArmSpec()} | {f"a{i}": ArmSpec("qemu", cpu=1 + i / 5) for i in range(12)}
    write_run(tmp_path, arms=arms, aa=None, blocks=2, series=False)
    comparison = arrange(comparison_of(tmp_path))
    figure = overhead_figure(comparison, styles(comparison))
    assert figure is not None
    labels = [row["t"] for row in values(figure.spec) if "t" in row]
    assert labels.count("a3") == 1
    assert figure.spec.height < 900


@pytest.mark.parametrize("spread", [1.02, 3.0, 40.0, 3000.0])
@pytest.mark.parametrize("arms", [2, 12], ids=["with-numbers", "compact"])
def test_labels_of_ticks_never_touch(arms: int, spread: float, tmp_path: Path) -> None:
    costs = [spread ** (place / arms) for place in range(1, arms + 1)]
    slower = {f"a{place}": ArmSpec("qemu", cpu=cost) for place, cost in enumerate(costs)}
    write_run(tmp_path, arms={"bare": ArmSpec()} | slower, aa=None, blocks=2, series=False)
    comparison = arrange(comparison_of(tmp_path))
    style = styles(comparison)
    overview = overhead_figure(comparison, style)
    detail = metrics_figure(comparison, style, comparison.headlines, name="m", part="p")
    assert overview is not None and overview.narrow is not None and detail is not None
    for spec in (overview.spec, overview.narrow, detail.spec):
        ticks = [row for row in values(spec) if str(row.get("t", "")).endswith("×")]
        assert any(row["t"] == "1×" for row in ticks)
        for line in {row["y"] for row in ticks}:
            inked = sorted(
                (row["x"] - width_of(row["t"]) / 2, row["x"] + width_of(row["t"]) / 2)
                for row in ticks
                if row["y"] == line
            )
            assert all(left[1] <= right[0] + 1e-6 for left, right in pairwise(inked))


def test_a_workload_with_only_differences_has_no_figure_of_ratios(comparison: Comparison) -> None:
    assert metrics_figure(comparison, styles(comparison), [], name="x", part="y") is None


def test_arms_far_apart_get_their_own_axes(comparison: Comparison) -> None:
    part = [s for s in comparison.summaries if s.headline and s.key.workload == "numeric-sort"]
    groups = clusters(part)
    assert [[s.arm for s in group] for group in groups] == [
        ["bare", "bare-again", "oci"],
        ["qemu-pv", "qemu-em"],
    ]
    assert distribution_figure(part, styles(comparison), name="n", part="p").panels == 2


@given(st.lists(st.integers(0, 10**7), min_size=1, max_size=400).filter(any))
def test_exceedance_falls_from_all_and_ends_at_the_greatest(counts: list[int]) -> None:
    lows = [1000.0 + 10 * i for i in range(len(counts))]
    summary = histogram(lows, counts)
    points = exceedance(summary)
    xs, shares = [x for x, _ in points], [y for _, y in points]
    assert shares[0] == 1
    assert shares == sorted(shares, reverse=True)
    assert xs == sorted(xs)
    assert xs[-1] == pytest.approx(summary.greatest * 1e-9)
    assert 0 < shares[-1] <= 1
    assert len(points) <= 200


def histogram(lows: list[float], counts: list[int]) -> SeriesSummary:
    greatest = max(low for low, count in zip(lows, counts, strict=True) if count) + 9
    return SeriesSummary(
        entries=(),
        boots=1,
        boot_maxima_ns=(greatest,),
        envelope_block=1,
        count=sum(counts),
        least=lows[0],
        greatest=greatest,
        mean=lows[0],
        bin_low_ns=tuple(lows),
        bin_high_ns=tuple(low + 10 for low in lows),
        counts=tuple(counts),
        quantiles=(),
        envelope_time_s=tuple(i / 10 for i in range(50)),
        envelope_least_ns=(1000.0,) * 50,
        envelope_greatest_ns=tuple(2000.0 + i for i in range(50)),
    )


def test_series_figures_mark_emulated_arms_and_draw(tmp_path: Path) -> None:
    series = {"bare": histogram([1e3, 2e3], [9000, 7]), "tcg": histogram([3e3, 9e4], [900, 1])}
    style = looks(["bare", "tcg"], "bare")
    figures = [
        scatter_figure(series, style, frozenset({"tcg"}), name="s", part="tick"),
        tail_figure(series, style, frozenset({"tcg"}), name="t", part="tick"),
    ]
    drawn = draw(figures, tmp_path)
    for figure in figures:
        assert figure.emulated
        assert "tcg (emulated)" in (tmp_path / f"{figure.name}.svg").read_text()
        assert drawn[figure.name].wide.startswith("<svg")


def test_samples_that_are_counted_stand_by_their_number(tmp_path: Path) -> None:
    timed = histogram([1e3], [50])
    counted = replace(timed, envelope_first=tuple(range(0, 5000, 100)))
    style = looks(["bare", "oci"], "bare")

    def drawn(*summaries: SeriesSummary) -> str:
        series = dict(zip(("bare", "oci"), summaries, strict=False))
        figure = scatter_figure(series, style, frozenset(), name="n", part="switch")
        draw([figure], tmp_path)
        return figure.title + (tmp_path / "n.svg").read_text()

    assert "against sample number" in drawn(counted, counted)
    assert ">2,000<" in drawn(counted, counted)
    assert "against time" in drawn(counted, timed), "one axis for all"


def test_colours_are_unique_so_that_they_can_be_swapped() -> None:
    assert len({ink.light for ink in INKS}) == len(INKS)
    assert len({ink.role for ink in INKS}) == len(INKS)


def luminance(colour: str) -> float:
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [p / 12.92 if p <= 0.03928 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(a: str, b: str) -> float:
    bright, dim = sorted((luminance(a), luminance(b)), reverse=True)
    return (bright + 0.05) / (dim + 0.05)


def test_text_and_marks_stand_out_from_the_paper_in_both_dresses() -> None:
    inks = {ink.role: ink for ink in INKS}
    for dress in ("light", "dark"):
        paper = getattr(inks["paper"], dress)
        for role in ("text", "soft"):
            assert contrast(getattr(inks[role], dress), paper) >= 4.5
        for ink in INKS:
            if ink.role.startswith("arm") or ink.role in {"baseline", "tie"}:
                assert contrast(getattr(ink, dress), paper) >= 3, (ink.role, dress)


def test_looks_differ_for_as_many_arms_as_there_may_be() -> None:
    arms = [f"arm{i}" for i in range(30)]
    given = looks(arms, "arm0")
    assert len({(look.ink.role, look.shape) for look in given.values()}) == 30


def test_inlining_gives_ids_tooltips_and_title(tmp_path: Path) -> None:
    canvas = Canvas(100)
    canvas.point(10, 10, TIE, "circle", tip='a "quoted" <b>')
    canvas.text(50, 10, "<script>")
    figure = Figure("f", "T & t", "d", canvas.spec(20))
    svg = draw([figure], tmp_path)["f"].wide
    assert 'id="f"' in svg and '<title id="f-t">T &amp; t</title>' in svg
    assert "<title>a &quot;quoted&quot; &lt;b&gt;</title>" in svg
    assert "<script>" not in svg and TIP not in svg
    assert "var(--tie)" in svg and "#" not in svg


def test_text_that_is_not_svg_is_refused() -> None:
    with pytest.raises(ValueError, match="not a figure"):
        inline_svg("<html>", name="x", title="", description="")


@given(st.text())
def test_legible_text_is_what_xml_may_hold(text: str) -> None:
    kept = legible(text)
    assert len(kept) == len(text)
    assert all(c in "\t\n\r" or ord(c) >= 32 for c in kept)


def test_infinite_interval_ends_do_not_break_the_figure(
    comparison: Comparison, tmp_path: Path
) -> None:
    effects = []
    for effect in comparison.headlines:
        assert effect.interval is not None
        wide = replace(effect.interval, low=0.0, high=math.inf)
        effects.append(replace(effect, interval=wide))
    odd = replace(comparison, effects=tuple(effects))
    figure = overhead_figure(odd, styles(odd))
    assert figure is not None
    assert draw([figure], tmp_path)


def simple(number: int) -> Figure:
    canvas = Canvas(60)
    canvas.text(5, 10, f"figure {number}")
    return Figure(f"f{number}", "t", "d", canvas.spec(20))


def test_many_figures_come_back_in_order_with_all_their_files(tmp_path: Path) -> None:
    figures = [simple(number) for number in range(9)]
    drawn = draw(figures, tmp_path, ("png", "pdf"))
    assert list(drawn) == [figure.name for figure in figures]
    for number, figure in enumerate(drawn.values()):
        assert f"figure {number}<" in figure.wide
    assert len(list(tmp_path.iterdir())) == 27


def test_only_requested_formats_are_drawn_in_addition_to_svg(tmp_path: Path) -> None:
    drawn = draw([simple(1)], tmp_path, ("png",))
    (figure,) = drawn.values()
    assert {path.suffix for path in tmp_path.iterdir()} == {".svg", ".png"}
    assert [name.rpartition(".")[2] for name in figure.files] == ["svg", "png"]


def test_a_folder_that_is_gone_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="No such file"):
        draw([simple(number) for number in range(6)], tmp_path / "gone")
