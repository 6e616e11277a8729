"""Every arm against every other: the table of all pairs, and the possible ranks."""

from __future__ import annotations

from dataclasses import dataclass

from tare.analysis.model import AllPairs, Comparison, Effect, Key, Rank
from tare.report.figures.svg import legible
from tare.report.page.data import ReportData
from tare.report.page.tables import Column, ShownTable, Table
from tare.report.page.words import NONE, Names, Part, marked, metric_name
from tare.report.sections.contract import Section, SectionData
from tare.report.sections.results import effects_table

PAIR_COLUMNS = ("what", "metric", "arm", "baseline", "estimate", "low", "adjusted_p", "verdict")


@dataclass(frozen=True)
class PairsData(SectionData):
    """The content of the section on all pairs."""

    about: str
    ranking: ShownTable | None
    pairs: ShownTable | None


class Pairs(Section):
    """Every arm against every other, and their ranks."""

    name, title, template = "pairs", "Ranking: which one should I take?", "pairs.html.j2"

    def data(self, report: ReportData) -> PairsData | None:
        """Return the effects of all pairs of arms; None for fewer than two arms."""
        pairs = report.comparison.pairs
        if pairs is None or len(pairs.arms) < 2:
            return None
        table = pairs_table(report.comparison, pairs)
        ranks = ranking_table(report.comparison, pairs)
        hidden = [column.key for column in table.columns if column.key not in PAIR_COLUMNS]
        return PairsData(
            about=describe_pairs(pairs),
            ranking=ranks.shown() if ranks.rows else None,
            pairs=table.shown(hide=hidden) if table.rows else None,
            tables=(table, ranks) if table.rows else (),
        )


def describe_pairs(pairs: AllPairs) -> str:
    """Return a note on the family of all pairs and the error rate of its verdicts."""
    if pairs.left_out:
        return f"{pairs.left_out}."
    return (
        f"All pairs of arms and headline metrics ({pairs.tests}) are one family of tests of their "
        f"own: at most {100 * pairs.level:g} % of studies find any difference where there is "
        "none, whichever pair you look at. That is stricter than the verdicts above, which compare "
        "with a baseline that was chosen beforehand."
    )


def pairs_table(comparison: Comparison, pairs: AllPairs) -> Table[Effect]:
    """Return each pair of arms once, the later arm of the study against the earlier."""
    level = f"{100 * comparison.confidence:.4g} %"
    caption = f"Every pair of arms, with {level} intervals, each by itself"
    whole = effects_table(comparison, "pairs", pairs.each_once, caption)
    columns = tuple(
        Column("baseline", column.raw, "Against") if column.key == "baseline" else column
        for column in whole.columns
    )
    return Table(whole.name, caption, columns, whole.rows, tone=whole.tone)


@dataclass(frozen=True)
class MetricRanks:
    """The ranks of all arms in one metric."""

    key: Key
    of_arm: dict[str, Rank]


def ranking_table(comparison: Comparison, pairs: AllPairs) -> Table[MetricRanks]:
    """Return the possible ranks of each arm, one row for each metric."""
    of_key: dict[Key, dict[str, Rank]] = {}
    for rank in pairs.ranks:
        of_key.setdefault(rank.key, {})[rank.arm] = rank
    names = Names((Part.of(s.key) for s in comparison.summaries), comparison.shown_as, short=True)
    emulated = {summary.arm for summary in comparison.summaries if summary.emulated}

    def of_arm(arm: str) -> Column[MetricRanks]:
        def text(row: MetricRanks) -> str:
            return rank_range(row.of_arm.get(arm))

        return Column(f"rank_{arm}", text, marked(arm, arm in emulated), text, numeric=True)

    columns: tuple[Column[MetricRanks], ...] = (
        Column("what", lambda row: names.name(Part.of(row.key)), "What"),
        Column("scenario", lambda row: row.key.scenario),
        Column("metric", lambda row: row.key.metric, "Metric", lambda r: metric_name(r.key.metric)),
        *(of_arm(arm) for arm in pairs.arms),
        Column("ties", describe_ties, "Ties"),
    )
    rows = tuple(MetricRanks(key, ranks) for key, ranks in of_key.items())
    caption = (
        "Ranks by headline metric, 1 is best: 1–2 means that either place is possible, as no "
        "difference between these arms is shown"
    )
    return Table("ranking", caption, columns, rows)


def rank_range(rank: Rank | None) -> str:
    """Return the possible ranks of an arm: ``1``, or ``2–3``."""
    if rank is None:
        return NONE
    return str(rank.best) if rank.best == rank.worst else f"{rank.best}–{rank.worst}"


def describe_ties(row: MetricRanks) -> str:
    """Return the pairs of arms that share ranks, by verdict: equivalent, or too little evidence."""
    of_verdict: dict[str, list[str]] = {"equivalent": [], "inconclusive": [], "preliminary": []}
    seen: set[frozenset[str]] = set()
    for rank in row.of_arm.values():
        for tie in rank.ties:
            pair = frozenset((rank.arm, tie.arm))
            if pair not in seen:
                seen.add(pair)
                sign = "=" if tie.verdict == "equivalent" else "?"
                of_verdict[tie.verdict].append(f"{rank.arm} {sign} {tie.arm}")
    parts = [f"{word}: {', '.join(pairs)}" for word, pairs in of_verdict.items() if pairs]
    return legible("; ".join(parts)) or NONE
