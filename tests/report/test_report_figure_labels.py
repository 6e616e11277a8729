"""Labels of figures: none is cut or missing, and no outlier hides what a figure compares."""

from __future__ import annotations

from itertools import pairwise

import pytest

from tare.analysis.model import SeriesSummary
from tare.analysis.topics.monitoring import CounterTrack, Monitor, Phase
from tare.analysis.topics.response_times import Timeline, TimeStep
from tare.report.figures.bars import NARROW, VALUES, WIDE, Bar, bars_figure
from tare.report.figures.frame import Figure, Spec
from tare.report.figures.monitoring import monitoring_figure
from tare.report.figures.over_size import Mark, over_size_figure
from tare.report.figures.palette import ARMS as ARMS_INKS
from tare.report.figures.palette import looks
from tare.report.figures.plot import width_of
from tare.report.figures.response_times import timeline_figure
from tare.report.figures.series import WIDTH, scatter_figure
from tare.report.figures.time_spent import BAR, BarPart, TimeBar, time_figures
from tare.report.figures.vector import PADDING

ARMS = ("bare", "qemu-pv", "xen-pv-openvswitch-conntrack")
TIMES = (10.0, 40.0, 160.0, 170.0, 1000.0)


def drawings(figure: Figure) -> list[Spec]:
    return [figure.spec, *([figure.narrow] if figure.narrow else [])]


def cut(figure: Figure) -> list[str]:
    """Return the texts of a figure that reach beyond either side of its picture."""
    found = []
    for spec in drawings(figure):
        for text in spec.marks["text"]:
            width = 0.0 if text["u"] else width_of(text["t"], text["z"])
            left = text["x"] - width * {"left": 0, "center": 0.5, "right": 1}[text["a"]]
            if left < -PADDING or left + width > spec.width + PADDING:
                found.append(text["t"])
    return found


def upright(figure: Figure) -> set[str]:
    return {text["t"] for spec in drawings(figure) for text in spec.marks["text"] if text["u"]}


def timeline(length_s: float, arm: str = "bare") -> Timeline:
    steps = tuple(
        TimeStep(second * length_s / 10, 50, 0, 5e-3, 4e-3, 9e-3, 12e-3) for second in range(10)
    )
    where = ("run", "cell", 1, arm, "phases", "web-drawn", "{}", False)
    return Timeline(*where, length_s / 10, steps, (Phase("cpu-load", 1.0, length_s / 2),))


@pytest.mark.parametrize("length_s", TIMES)
def test_the_last_tick_of_a_time_axis_is_whole(length_s: float) -> None:
    drawn = timeline_figure([timeline(length_s)], name="timeline", title="A timeline")
    times = tuple(length_s * (n + 1) / 20 for n in range(20))
    values = {"cpu-user": (0.5,) * 20, "disk-read": (1e6,) * 20}
    tracks = tuple(CounterTrack(role, times, values) for role in ("subject", "host"))
    monitor = Monitor("cell", 1, "bare", "alone", "terasort", "{}", False, tracks)
    for figure in (drawn, monitoring_figure(monitor, name="monitor")):
        ends = [text["t"] for text in figure.spec.marks["text"]]
        assert cut(figure) == [] and any(label.endswith("s") for label in ends)


def test_response_times_name_what_their_vertical_axis_is_of() -> None:
    figure = timeline_figure([timeline(160.0)], name="timeline", title="A timeline")
    assert "response time" in upright(figure)


def test_sizes_below_their_axis_do_not_touch() -> None:
    marks = [Mark("bare", False, size << 10, 1000.0 - size) for size in (0, 1, 2, 4, 8, 16, 32, 48)]
    figure = over_size_figure("sizes", "Sizes", marks, looks(ARMS, "bare"), "1/s")
    for spec in drawings(figure):
        row = [text for text in spec.marks["text"] if text["t"].endswith("B")]
        ends = [(t["x"], width_of(t["t"], t["z"]) / 2) for t in row]
        assert len(row) > 3 and row[0]["t"] == "0 B"
        assert all(x + half < y - other for (x, half), (y, other) in pairwise(ends))


def test_a_long_heading_of_bars_ends_in_dots_within_the_picture() -> None:
    group = "terasort size=5000000000, CPUs without machines, idle, waiting for I/O, " * 3
    figure = bars_figure(
        [Bar(group, "bare", False, 1.0, None)], looks(ARMS, "bare"), "s", name="bars", title="Bars"
    )
    for spec in drawings(figure):
        heading = next(text for text in spec.marks["text"] if text["b"])
        assert heading["t"].endswith("…")
        # Bold letters are wider by a tenth at least.
        assert 1.1 * width_of(heading["t"], heading["z"]) < spec.width


def test_no_two_owners_of_a_bar_have_one_colour() -> None:
    """More owners than there are colours: the smallest are one part."""
    owners = [BarPart(f"thread {n}", 0.02 + n / 1000, 1e-6, 100.0) for n in range(15)]
    whole = (*owners, BarPart("idle", 1 - sum(part.share for part in owners)))
    (figure,) = time_figures("time", [(TimeBar("kvm", False, whole),)])
    for spec in drawings(figure):
        bars = [rect for rect in spec.marks["rect"] if rect["y2"] - rect["y"] == BAR]
        assert len({rect["c"] for rect in bars}) == len(bars) == len(ARMS_INKS) + 1
        assert bars[-1]["x2"] == pytest.approx(spec.width)
    assert "5 smaller owners 11 %" in figure.description
    assert "500 cycles" in " ".join(text["t"] for text in figure.spec.marks["text"])


def test_a_close_up_shows_its_own_time_in_units_that_fit() -> None:
    durations_ns = (68e3, 68e3, 76e3, 68e3)
    summary = SeriesSummary(
        entries=(),
        boots=1,
        count=4,
        least=68e3,
        greatest=76e3,
        mean=70e3,
        bin_low_ns=(68e3,),
        bin_high_ns=(77e3,),
        counts=(4,),
        quantiles=(),
        boot_maxima_ns=(76e3,),
        envelope_block=1,
        envelope_time_s=(0.0010, 0.0015, 0.0020, 0.0030),
        envelope_least_ns=durations_ns,
        envelope_greatest_ns=durations_ns,
    )
    drawn = [
        scatter_figure(
            {"bare": summary}, looks(ARMS, "bare"), frozenset(), name="n", part="p", linear=close
        )
        for close in (True, False)
    ]
    near, far = (
        {text["t"] for text in figure.spec.marks["text"] if text["t"].endswith("s")}
        for figure in drawn
    )
    assert {"1 ms", "2 ms", "3 ms"} <= near and "0 s" not in near
    assert "0 s" in far
    # The first sample is at the left edge, and not behind an empty stretch of time.
    first, *_, last = (point["x"] for point in drawn[0].spec.marks["point"])
    assert last - first == pytest.approx(WIDTH)


def bars_of(emulated: float, other: float) -> Figure:
    bars = [
        Bar("quiet", arm, arm == "qemu-pv", value, (value * 0.9, value * 1.1))
        for arm, value in zip(ARMS, (other, emulated, other * 1.2), strict=True)
    ]
    return bars_figure(bars, looks(ARMS, "bare"), "s", name="bars", title="Bars", what="time")


def test_names_of_arms_are_whole_or_end_in_dots_within_the_picture() -> None:
    figure = bars_of(1.0, 1.0)
    assert cut(figure) == []
    for spec in drawings(figure):
        texts = [text["t"] for text in spec.marks["text"]]
        # That an arm is emulated is never cut off.
        assert "qemu-pv (emulated)" in texts
        assert any(text.startswith("xen-pv-op") and text.endswith("…") for text in texts)


@pytest.mark.parametrize(("emulated", "broken"), [(2.0, False), (100.0, True)])
def test_an_emulated_outlier_does_not_hide_the_others(emulated: float, broken: bool) -> None:
    figure = bars_of(emulated, 1.0)
    assert (figure.emulated_as == "marked, and broken") == broken
    for spec, width in zip(drawings(figure), (WIDE, NARROW), strict=True):
        rects = spec.marks["rect"]
        lengths = [rect["x2"] - rect["x"] for rect in rects]
        first = next(length for rect, length in zip(rects, lengths, strict=True))
        # The bare machine's bar has a length that can be compared with the others'.
        assert first > 0.2 * (width - VALUES - 150)
        assert len(rects) == len(ARMS) + broken
        assert max(rect["x2"] for rect in rects) <= width - VALUES + 1
        # The value is next to the broken bar.
        assert f"{emulated:.3g}" in " ".join(t["t"] for t in spec.marks["text"])
