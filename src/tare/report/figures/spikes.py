"""Guest and host around the worst gaps: the gap in the machine, and the host's activity then."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tare.analysis.topics.host_track import CauseKind, Episode
from tare.analysis.topics.spike_cells import SpikeCell
from tare.analysis.topics.spikes import Spike
from tare.report.figures.axes import linear_ticks, tick_label
from tare.report.figures.canvas import Canvas
from tare.report.figures.frame import Figure, Spec
from tare.report.figures.palette import ARMS, BASELINE, MARGIN, NOISE, RULE, SOFT, Ink
from tare.report.figures.plot import below_tick
from tare.report.page.links import Links, part_of
from tare.report.page.words import marked
from tare.units import format_duration

WIDE, NARROW = 720.0, 360.0
ROW, LANE, TOP = 92.0, 16.0, 34.0
AROUND = 0.25
"""The time shown before and after a gap, as a share of the gap's length."""

INKS: dict[CauseKind, Ink] = {
    "preempted": ARMS[1],
    "timer interrupt": ARMS[0],
    "other interrupt": ARMS[2],
    "host throttling": ARMS[3],
    "platform": ARMS[4],
    "stopped": ARMS[9],
    "guest's own tick": ARMS[5],
    "wake-up": ARMS[6],
    "idle though ready": ARMS[7],
    "host's own steal": ARMS[8],
    "unexplained": NOISE,
}


@dataclass(frozen=True)
class Worst:
    """One of the worst gaps, and its cell."""

    cell: SpikeCell
    spike: Spike

    @property
    def shown(self) -> tuple[float, float]:
        """The start and end of the drawn time, by the host's clock, in ns."""
        margin = AROUND * (self.spike.end_ns - self.spike.begin_ns)
        return self.spike.begin_ns - margin, self.spike.end_ns + margin

    @property
    def title(self) -> str:
        """The arm, scenario and block of the gap, its length and its cause."""
        whose = f"{marked(self.cell.arm, self.cell.emulated)}, {self.cell.scenario}"
        lost = format_duration(self.spike.excess_ns / 1e9)
        return f"{whose}, block {self.cell.block}: {lost} lost, {self.spike.cause}"


def worst_spikes(cells: Sequence[SpikeCell], most: int = 6) -> tuple[Worst, ...]:
    """Return the longest gap of each arm and scenario, the longest first, at most ``most``."""
    found: dict[tuple[str, str], Worst] = {}
    for cell in cells:
        for spike in cell.spikes:
            known = found.get((cell.arm, cell.scenario))
            if known is None or spike.excess_ns > known.spike.excess_ns:
                found[cell.arm, cell.scenario] = Worst(cell, spike)
    ordered = sorted(found.values(), key=lambda worst: -worst.spike.excess_ns)
    return tuple(ordered[:most])


def timeline_figure(worst: Sequence[Worst], *, name: str, links: Links | None = None) -> Figure:
    """Return the timelines of these gaps, one below the other.

    Args:
        worst: The gaps; at least one.
        name: The figure's name.
        links: Finds the link target of each gap: the block of its cell.
    """
    return Figure(
        name=name,
        title="Guest against host around the worst gaps",
        description="; ".join(each.title for each in worst),
        spec=_drawn(worst, WIDE, links),
        narrow=_drawn(worst, NARROW, links),
        emulated=any(each.cell.emulated for each in worst),
        panels=len(worst),
    )


def _drawn(worst: Sequence[Worst], width: float, links: Links | None) -> Spec:
    canvas = Canvas(width)
    legend_rows = _legend(canvas, worst, width)
    top = legend_rows * 18.0 + 6.0
    for number, each in enumerate(worst):
        _row(canvas, each, top + number * ROW, width)
        if links is not None:
            to = links.cell(part_of(each.cell), each.cell.arm, each.cell.run, each.cell.block)
            canvas.area(0, top + number * ROW, width, top + (number + 1) * ROW, to)
    return canvas.spec(top + len(worst) * ROW)


def _legend(canvas: Canvas, worst: Sequence[Worst], width: float) -> int:
    kinds: dict[str, Ink] = {"running": MARGIN, "gap in the guest": BASELINE}
    for each in worst:
        # Only drawn causes: the title also names causes, such as steal, whose times are unknown.
        for episode in _shown_episodes(each):
            kinds[episode.cause.kind] = INKS[episode.cause.kind]
    x, y = 0.0, 8.0
    for kind, ink in kinds.items():
        room = 22.0 + 6.8 * len(kind)
        if x + room > width and x > 0:
            x, y = 0.0, y + 18.0
        canvas.rect(x, y - 5, x + 12, y + 5, ink)
        canvas.text(x + 16, y, kind, size=11, ink=SOFT)
        x += room
    return int(y // 18.0) + 1


def _row(canvas: Canvas, each: Worst, top: float, width: float) -> None:
    spike = each.spike
    begin, end = each.shown
    left = 44.0
    # On a phone the whole label would not fit.
    title = each.title if len(each.title) * 6.2 < width else each.title[: int(width / 6.4)] + "…"
    canvas.text(0, top + 10, title, size=12, bold=width > NARROW)

    def at(time_ns: float) -> float:
        share = (min(max(time_ns, begin), end) - begin) / (end - begin)
        return left + share * (width - left)

    guest, host = top + TOP, top + TOP + LANE + 5
    for y, lane in ((guest, "guest"), (host, "host")):
        canvas.text(0, y, lane, ink=SOFT, size=11)
        canvas.rect(left, y - LANE / 2, width, y + LANE / 2, MARGIN)
    canvas.rect(at(spike.begin_ns), guest - LANE / 2, at(spike.end_ns), guest + LANE / 2, BASELINE)
    for episode in _shown_episodes(each):
        x, x2 = at(episode.begin_ns), at(episode.end_ns)
        canvas.rect(x, host - LANE / 2, max(x2, x + 1), host + LANE / 2, INKS[episode.cause.kind])
    base = host + LANE / 2 + 4
    canvas.rule(left, base, width, base, RULE)
    seconds = (end - begin) / 1e9
    for tick in linear_ticks(0.0, seconds * 0.97, 6 if width > NARROW else 3):
        x = at(begin + tick * 1e9)
        canvas.rule(x, base, x, base + 4, RULE)
        below_tick(canvas, x, base + 12, tick_label(tick, "s"))


def _shown_episodes(worst: Worst) -> list[Episode]:
    begin, end = worst.shown
    episodes = worst.cell.track.episodes if worst.cell.track else ()
    return [each for each in episodes if each.end_ns > begin and each.begin_ns < end]
