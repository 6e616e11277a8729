"""The tables of a run in sessions: the sessions as measured, and how much they differ."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from tare.analysis.effects.results import as_cost
from tare.analysis.model import SessionResult
from tare.analysis.runs.sessions import measured_in_turn
from tare.analysis.runs.variance_components import OverSessions, effects_over_sessions
from tare.report.page.data import ReportData
from tare.report.page.tables import Column, Table, interval_columns
from tare.report.page.words import Names, Part, marked, metric_name, percent, ratio
from tare.report.sections.contract import Section, SectionData
from tare.units import format_duration

MEASURED = "The sessions in the order of measurement; those of one round have the same blocks"
BETWEEN = (
    "Arms of different boots, round by round: their cost factor where either came first, over all "
    "rounds with its interval, and the share of a block’s variance that is between rounds"
)


class BySession(Section):
    """A run in sessions: the sessions as measured, and the differences between them."""

    name, title = "sessions", "Session by session"

    def data(self, report: ReportData) -> SectionData | None:
        """Return the sessions, and effects between boots; None for a run without sessions."""
        sessions = report.runs[0].sessions if len(report.runs) == 1 else ()
        if not sessions:
            return None
        found = effects_over_sessions(report.comparison)
        between = (over_sessions_table(found),) if found else ()
        return SectionData(tables=(*between, sessions_table(sessions)))


def sessions_table(sessions: Sequence[SessionResult]) -> Table[SessionResult]:
    """Return one row for each session, in the order of measurement."""
    columns: tuple[Column[SessionResult], ...] = (
        Column("session", lambda s: s.number, "Session", numeric=True),
        Column("round", lambda s: s.round, "Round", numeric=True),
        Column("boot", lambda s: s.boot, "Boot"),
        Column("blocks", _blocks, "Blocks"),
        Column("planned", lambda s: s.goes[0].planned, "Next in the plan", numeric=True),
        Column("began", lambda s: s.goes[0].began, "Began (UTC)", _began),
        Column("took", _took_s, "Took", lambda s: format_duration(_took_s(s)), numeric=True),
        Column("goes", lambda s: len(s.goes), "Goes", numeric=True),
        Column("done", lambda s: s.done, "Whole", lambda s: "yes" if s.done else "no"),
    )
    return Table("sessions", MEASURED, columns, measured_in_turn(sessions))


def _blocks(session: SessionResult) -> str:
    first, last = session.first, session.last
    return f"{first}" if first == last else f"{first} to {last}"


def _began(session: SessionResult) -> str:
    return datetime.fromtimestamp(session.goes[0].began, UTC).strftime("%Y-%m-%d %H:%M:%S")


def _took_s(session: SessionResult) -> float:
    return sum(max(go.ended - go.began, 0.0) for go in session.goes)


def over_sessions_table(found: Sequence[OverSessions]) -> Table[OverSessions]:
    """Return one row for each arm and headline metric."""
    names = Names(Part.of(each.effect.key) for each in found)
    columns: tuple[Column[OverSessions], ...] = (
        Column("what", lambda f: names.name(Part.of(f.effect.key)), "What"),
        Column("metric", lambda f: f.effect.key.metric, "Metric", _metric),
        Column("arm", lambda f: f.effect.arm, "Arm", _arm),
        Column("arm-first", lambda f: f.arm_first, "Arm first", _arm_first, numeric=True),
        Column("baseline-first", lambda f: f.baseline_first, "Baseline first", _base, numeric=True),
        Column("mean", lambda f: f.effect.estimate, "Over rounds", _mean, numeric=True),
        *interval_columns(
            lambda f: f.effect.student_t,
            lambda f: f.effect.blocks,
            better=lambda f: f.effect.better,
        ),
        Column("rounds", lambda f: f.effect.blocks, "Rounds", numeric=True),
        Column("share", lambda f: f.share, "Between rounds", _share, numeric=True),
    )
    return Table("over-sessions", BETWEEN, columns, tuple(found))


def _metric(found: OverSessions) -> str:
    return metric_name(found.effect.key.metric)


def _arm(found: OverSessions) -> str:
    return marked(found.effect.arm, found.effect.emulated)


def _arm_first(found: OverSessions) -> str:
    return "–" if found.arm_first is None else _cost(found, found.arm_first)


def _base(found: OverSessions) -> str:
    return "–" if found.baseline_first is None else _cost(found, found.baseline_first)


def _mean(found: OverSessions) -> str:
    return _cost(found, found.effect.estimate)


def _cost(found: OverSessions, value: float) -> str:
    return ratio(as_cost(value, found.effect.better))


def _share(found: OverSessions) -> str:
    return "–" if found.share is None else percent(found.share)
