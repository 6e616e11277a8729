"""Tables of a load balancer: what went through, what that cost, and where the time went."""

from __future__ import annotations

from collections.abc import Sequence

from tare.analysis.load_balancer import Spent, Through
from tare.report.intervals import interval_columns
from tare.report.tables import Column, Table
from tare.report.words import NONE, marked, percent, ratio
from tare.units import format_number, format_quantity, format_size


def _of() -> tuple[Column[Through], ...]:
    """Return the columns that say what a row is of."""
    return (
        Column("scenario", lambda t: t.scenario, "Scenario"),
        Column("workload", lambda t: t.workload, "Workload"),
        Column("arm", lambda t: t.arm, "Arm", lambda t: marked(t.arm, t.emulated)),
        Column("emulated", lambda t: t.emulated),
        Column("size", lambda t: t.size, "Object", lambda t: format_size(t.size), numeric=True),
    )


def rates_table(found: Sequence[Through]) -> Table[Through]:
    """Return what each arm let through, one row an arm and size."""
    columns: tuple[Column[Through], ...] = (
        *_of(),
        Column("at_least", lambda t: t.limited),
        Column(
            "requests_per_s",
            lambda t: t.requests,
            "Requests/s",
            lambda t: f"{'at least ' * t.limited}{t.requests:.0f}",
            numeric=True,
        ),
        Column(
            "concurrency",
            lambda t: t.concurrency,
            "At once",
            lambda t: NONE if t.concurrency is None else f"{t.concurrency:.0f}",
            numeric=True,
        ),
        Column(
            "direct_per_s",
            lambda t: t.direct,
            "Without proxy",
            lambda t: f"{t.direct:.0f}",
            numeric=True,
        ),
        Column(
            "straight_per_s",
            lambda t: t.straight,
            "Straight",
            lambda t: NONE if t.straight is None else f"{t.straight:.0f}",
            numeric=True,
        ),
        Column(
            "bytes_per_s",
            lambda t: t.bandwidth,
            "Bandwidth",
            lambda t: format_quantity(t.bandwidth, "B/s"),
            numeric=True,
        ),
        Column(
            "cpu_per_request_s",
            lambda t: t.cpu_s,
            "CPU a request",
            lambda t: NONE if t.cpu_s is None else format_quantity(t.cpu_s, "s"),
            numeric=True,
        ),
        Column(
            "loss",
            lambda t: t.loss,
            "Loss",
            lambda t: NONE if t.loss is None else percent(t.loss),
            numeric=True,
        ),
        *interval_columns(lambda t: t.interval, lambda t: t.blocks),
        Column("link_full", lambda t: t.link_full if t.link is not None else None),
        Column("faults", lambda t: ", ".join(f"{n} {what}" for what, n in t.faults.items())),
        Column("limits", lambda t: "; ".join(t.limits)),
        Column("blocks", lambda t: t.blocks, "Blocks", numeric=True),
    )
    caption = "What went through the proxy, by the size of objects"
    return Table("load-balancer", caption, columns, tuple(found), tone=_tone)


def costs_table(found: Sequence[Through]) -> Table[Through]:
    """Return what each request cost and how long it took, one row an arm and size.

    Both can be compared where client or origin was the limit, too.
    """

    def seconds(value: float | None) -> str:
        return NONE if value is None else format_quantity(value, "s")

    def offered(row: Through) -> str:
        too_many = " (too many)" if row.overloaded else ""
        return NONE if row.offered is None else f"{format_number(row.offered, 6)}/s{too_many}"

    def factor(value: float | None) -> str:
        return NONE if value is None else ratio(value)

    columns: tuple[Column[Through], ...] = (
        *_of(),
        Column(
            "cpu_per_request_s",
            lambda t: t.cpu_s,
            "CPU a request",
            lambda t: seconds(t.cpu_s),
            numeric=True,
        ),
        Column(
            "cpu_ratio",
            lambda t: t.cpu.ratio,
            "CPU, of the baseline’s",
            lambda t: factor(t.cpu.ratio),
            numeric=True,
        ),
        *interval_columns(lambda t: t.cpu.interval, lambda t: t.blocks, "cpu_"),
        Column(
            "host_softirq_s",
            lambda t: t.softirq_s,
            "Host softirq",
            lambda t: seconds(t.softirq_s),
            numeric=True,
        ),
        Column(
            "host_hardirq_s",
            lambda t: t.hardirq_s,
            "Host hardirq",
            lambda t: seconds(t.hardirq_s),
            numeric=True,
        ),
        Column(
            "offered_per_s",
            lambda t: t.offered,
            "Offered",
            offered,
            numeric=True,
        ),
        Column(
            "latency_s",
            lambda t: t.latency_s,
            "Response then",
            lambda t: seconds(t.latency_s),
            numeric=True,
        ),
        Column(
            "latency_ratio",
            lambda t: t.latency.ratio,
            "Response, of the baseline’s",
            lambda t: factor(t.latency.ratio),
            numeric=True,
        ),
        *interval_columns(lambda t: t.latency.interval, lambda t: t.blocks, "latency_"),
        Column("overloaded", lambda t: t.overloaded),
        Column("haproxy_idle", lambda t: None if t.own is None else t.own.idle),
        Column("blocks", lambda t: t.blocks, "Blocks", numeric=True),
    )
    caption = "What a request cost, and how long it took at the rate that all arms are offered"
    return Table("load-balancer-cost", caption, columns, tuple(found), tone=_tone)


def spent_table(found: Sequence[Through]) -> Table[tuple[Through, Spent]]:
    """Return all CPU time by owner, one row an arm, size and owner."""
    rows = tuple((each, spent) for each in found for spent in each.spent)
    columns: tuple[Column[tuple[Through, Spent]], ...] = (
        Column("scenario", lambda r: r[0].scenario, "Scenario"),
        Column("workload", lambda r: r[0].workload, "Workload"),
        Column("arm", lambda r: r[0].arm, "Arm", lambda r: marked(r[0].arm, r[0].emulated)),
        Column("emulated", lambda r: r[0].emulated),
        Column(
            "size", lambda r: r[0].size, "Object", lambda r: format_size(r[0].size), numeric=True
        ),
        Column("where", lambda r: r[1].where, "Where"),
        Column("who", lambda r: r[1].who, "Who"),
        Column("share", lambda r: r[1].share, "Share", lambda r: percent(r[1].share), numeric=True),
        Column(
            "per_request_s",
            lambda r: r[1].per_request_s,
            "A request",
            lambda r: format_quantity(r[1].per_request_s, "s"),
            numeric=True,
        ),
        Column(
            "cycles",
            lambda r: r[1].cycles,
            "Cycles a request",
            lambda r: NONE if r[1].cycles is None else f"{r[1].cycles:,.0f}",
            numeric=True,
        ),
    )
    caption = "Where the time went while the proxy was full"
    return Table("where-the-time-goes", caption, columns, rows, tone=lambda r: _tone(r[0]))


def _tone(row: Through) -> str:
    return "emulated" if row.emulated else ""
