"""The load of a machine and its host over time: one panel for each kind of counter."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tare.analysis.data.rundata import SUBJECT
from tare.analysis.topics.monitoring import ARMS_HOST, CounterTrack, Monitor, host_named, is_host
from tare.report.figures.axes import linear_ticks, tick_label
from tare.report.figures.canvas import Canvas
from tare.report.figures.frame import SMALL_LETTER, Figure, Spec, name_within
from tare.report.figures.palette import ARMS, MARGIN, RULE, SOFT, Ink
from tare.report.figures.plot import below_tick
from tare.report.page.links import Links, part_of
from tare.report.page.words import marked
from tare.units import format_number, format_quantity

WIDE, NARROW = 720.0, 360.0
LEFT, GAP, HEIGHT, SPACE = 62.0, 14.0, 64.0, 54.0
MOST_POINTS, MOST_COLUMNS = 160, 4
LEAST_PACKETS = 50.0
"""The packets per second from which a machine's network counts as used."""
ROLES = (SUBJECT, "slave-1")
WORDS = {SUBJECT: "the machine", "slave-1": "the first slave", ARMS_HOST: "its host"}


@dataclass(frozen=True)
class CounterPanel:
    """A kind of counter: its title, its unit, and the lines in it by quantity."""

    title: str
    unit: str
    lines: tuple[tuple[str, str, Ink], ...]
    whole: float | None = None
    """The end of the axis, if the quantity has one."""
    networked: bool = False
    """Whether it counts single packets, and is shown only if a machine's network is used."""


def _cpu(kind: str, title: str) -> CounterPanel:
    """Return the panel of some CPUs with four lines. I/O wait is not stacked: it is idle time."""
    states = ("user", "system", "iowait", "steal")
    lines = ((f"{kind}-{state}", state, ink) for state, ink in zip(states, ARMS, strict=False))
    return CounterPanel(title, "1", tuple(lines), whole=1.0)


PANELS = (
    _cpu("cpu", "CPU time"),
    _cpu("bound", "CPUs with machines on them"),
    _cpu("others", "CPUs without machines"),
    CounterPanel(
        "Disk throughput",
        "B/s",
        (("disk-read", "read", ARMS[0]), ("disk-written", "written", ARMS[1])),
    ),
    CounterPanel("Disk utilisation", "1", (("disk-busy", "busiest disk", ARMS[2]),), whole=1.0),
    CounterPanel("Merged requests", "1/s", (("disk-merged", "read and write", ARMS[3]),)),
    CounterPanel("Disk queue", "", (("disk-queue", "requests under way", ARMS[0]),)),
    CounterPanel(
        "Network",
        "B/s",
        (("net-received", "received", ARMS[0]), ("net-sent", "sent", ARMS[1])),
    ),
    CounterPanel(
        "Packets",
        "1/s",
        (("net-packets-received", "received", ARMS[0]), ("net-packets-sent", "sent", ARMS[1])),
        networked=True,
    ),
    CounterPanel(
        "Mean packet",
        "B",
        (("net-size-received", "received", ARMS[0]), ("net-size-sent", "sent", ARMS[1])),
        networked=True,
    ),
)


def monitoring_figure(monitor: Monitor, *, name: str, links: Links | None = None) -> Figure:
    """Return the counters of one cell. Panels that are 0 throughout are left out.

    Args:
        monitor: The cell.
        name: The figure's name.
        links: Finds the figure's link target: the cell's block.
    """
    panels = [panel for panel in PANELS if _moved(monitor, panel)]
    to = links.cell(part_of(monitor), monitor.arm, monitor.run, monitor.block) if links else ""
    whose = f"{monitor.workload} in {marked(monitor.arm, monitor.emulated)}"
    return Figure(
        name=name,
        title=f"{whose}, {monitor.scenario}, block {monitor.block}",
        description="; ".join(_describe_panel(monitor, panel) for panel in panels)
        or "nothing happened",
        spec=_drawn(monitor, panels, WIDE, to),
        narrow=_drawn(monitor, panels, NARROW, to),
        emulated=monitor.emulated,
        panels=len(panels),
    )


def _moved(monitor: Monitor, panel: CounterPanel) -> bool:
    if panel.networked and _packets(monitor) < LEAST_PACKETS:
        return False
    return any(
        any(track.values.get(quantity, ()))
        for track in monitor.tracks
        for quantity, *_ in panel.lines
    )


def _packets(monitor: Monitor) -> float:
    """Return the highest mean of received packets per second among the machines, not hosts."""
    received = (track.mean("net-packets-received") or 0.0 for track in monitor.machines)
    return max(received, default=0.0)


def _describe_panel(monitor: Monitor, panel: CounterPanel) -> str:
    parts = []
    for track in monitor.tracks:
        for quantity, word, _ in panel.lines:
            if (mean := track.mean(quantity)) is not None:
                parts.append(f"{track.role} {word} {format_quantity(mean, panel.unit)}")
    return f"{panel.title}: {', '.join(parts)}"


def _drawn(monitor: Monitor, panels: Sequence[CounterPanel], width: float, to: str) -> Spec:
    canvas = Canvas(width)
    side_by_side = width > NARROW and len(monitor.tracks) > 1
    columns = _columns(monitor)
    room = (
        (width - LEFT - GAP * (len(columns) - 1)) / len(columns) if side_by_side else width - LEFT
    )
    top = 20.0
    for panel in panels:
        _legend(canvas, monitor, panel, top)
        most = _axis_maximum(monitor, panel)
        for number, role in enumerate(columns):
            track = monitor.track(role)
            assert track is not None
            left = LEFT + number * (room + GAP) if side_by_side else LEFT
            base = top + 14 + HEIGHT
            canvas.text(
                left + room, top + 6, whose_counters(role), size=10, ink=SOFT, align="right"
            )
            _phases(canvas, monitor, left, room, base)
            _lines(canvas, track, panel, left, room, base, most, monitor.length_s)
            if number == 0 or not side_by_side:
                for tick in linear_ticks(0.0, most, 3):
                    y = base - tick / most * HEIGHT
                    canvas.text(left - 6, y, _tick(tick, panel), size=10, ink=SOFT, align="right")
            _time_axis(canvas, left, room, base, monitor.length_s, few=width <= NARROW)
            if not side_by_side:
                top += HEIGHT + SPACE
        if side_by_side:
            top += HEIGHT + SPACE
    canvas.area(0, 0, width, top, to)
    return canvas.spec(top)


def _columns(monitor: Monitor) -> list[str]:
    """Return the roles whose counters are drawn; for a cluster one slave, as its master waits."""
    there = [role for role in ROLES if monitor.track(role) is not None]
    machines = [role for role in there if role != SUBJECT or "slave-1" not in there]
    return [*machines, *(track.role for track in monitor.hosts)][:MOST_COLUMNS]


def whose_counters(role: str) -> str:
    """Return in words the owner of a track's counters."""
    return WORDS.get(role) or (f"the host {host_named(role)}" if is_host(role) else role)


def _legend(canvas: Canvas, monitor: Monitor, panel: CounterPanel, top: float) -> None:
    canvas.text(0, top - 8, panel.title, size=12, bold=True)
    x = 12 + 7.4 * len(panel.title)
    for quantity, word, ink in panel.lines:
        # A quantity without values, such as steal that no hypervisor reports, has no line.
        if not any(quantity in track.values for track in monitor.tracks):
            continue
        canvas.rule(x, top - 8, x + 14, top - 8, ink, size=2)
        canvas.text(x + 18, top - 8, word, size=11, ink=SOFT)
        x += 34 + 6.4 * len(word)


def _axis_maximum(monitor: Monitor, panel: CounterPanel) -> float:
    if panel.whole is not None:
        return panel.whole
    values = [
        value
        for track in monitor.tracks
        for quantity, *_ in panel.lines
        for value in track.values.get(quantity, ())
    ]
    return max(values, default=0.0) or 1.0


def _phases(canvas: Canvas, monitor: Monitor, left: float, room: float, base: float) -> None:
    taken = left
    for phase in monitor.phases:
        x = left + phase.begin_s / monitor.length_s * room
        x2 = left + min(phase.end_s / monitor.length_s, 1.0) * room
        canvas.rect(x, base - HEIGHT, x2, base, MARGIN)
        name = name_within(phase.name.removesuffix("-load"), x, x2, taken)
        if name:
            canvas.text((x + x2) / 2, base - HEIGHT + 7, name, size=9, ink=SOFT, align="center")
            taken = (x + x2 + len(name) * SMALL_LETTER) / 2


def _lines(
    canvas: Canvas,
    track: CounterTrack,
    panel: CounterPanel,
    left: float,
    room: float,
    base: float,
    most: float,
    length_s: float,
) -> None:
    canvas.rule(left, base, left + room, base, RULE)
    for quantity, _, ink in panel.lines:
        before: float | None = None
        for begin, end, value in thinned(track.time_s, track.values.get(quantity, ())):
            x, x2 = (left + time / length_s * room for time in (begin, end))
            y = base - min(value / most, 1.0) * HEIGHT
            if before is not None:
                canvas.rule(x, before, x, y, ink, size=1.5)
            canvas.rule(x, y, x2, y, ink, size=1.5)
            before = y


def thinned(
    times: Sequence[float], values: Sequence[float], most: int = MOST_POINTS
) -> list[tuple[float, float, float]]:
    """Return at most ``most`` steps: beginning, end, and the mean of the values in between.

    Args:
        times: The ends of the intervals, in seconds.
        values: One value for each interval.
        most: The most steps.
    """
    ends = list(times[: len(values)])
    begins = [0.0, *ends][: len(values)]
    width = max(1, -(-len(values) // most))
    return [
        (begins[start], ends[min(start + width, len(values)) - 1], sum(part) / len(part))
        for start in range(0, len(values), width)
        if (part := values[start : start + width])
    ]


def _time_axis(
    canvas: Canvas, left: float, room: float, base: float, length_s: float, *, few: bool
) -> None:
    for tick in linear_ticks(0.0, length_s, 3 if few else 6):
        x = left + tick / length_s * room
        canvas.rule(x, base, x, base + 4, RULE)
        below_tick(canvas, x, base + 12, tick_label(tick, "s"))


def _tick(value: float, panel: CounterPanel) -> str:
    if not panel.unit:
        return format_number(value, 6)
    return f"{value:.0%}" if panel.unit == "1" else tick_label(value, panel.unit)
