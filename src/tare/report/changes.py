"""The page of two runs, one offline file: how effects of the second differ from the first's."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tare.analysis.changed import Changed, changed
from tare.analysis.model import Comparison, RunData, VerdictWord
from tare.analysis.run_differences import settings_sha256
from tare.analysis.statistics.maxt import least_blocks
from tare.analysis.verdict import LEVEL
from tare.outputs import put_for_user
from tare.report.anchors import anchor_of
from tare.report.arrange import arranged
from tare.report.changes_explorer import changes_data
from tare.report.changes_table import (
    ANY,
    RunPair,
    changes_table,
    environment_table,
    open_cost,
    what_of,
)
from tare.report.figures.changes import ChangeMark, changes_figure
from tare.report.figures.vector import svg_of
from tare.report.nothing_common import why_nothing
from tare.report.palette import looks
from tare.report.rendering import SCRIPTS, filled
from tare.report.run_doubts import doubts_of
from tare.report.svg import inline_svg, legible
from tare.report.tables import Shown
from tare.report.verdicts import ArmLine
from tare.report.words import Names, Part, counted, joined, marked, percent, ratio

WIDE, NARROW, MOST_MARKS = 900.0, 360.0, 40
HEADED = {"worse": "worse", "better": "better", "differs": "different"}
ORDER: tuple[VerdictWord, ...] = (
    "worse", "better", "differs", "equivalent", "preliminary", "inconclusive"
)  # fmt: skip


@dataclass(frozen=True)
class ChangesPage:
    """Everything the template needs."""

    title: str
    subtitle: str
    alerts: tuple[str, ...]
    lead: str
    arms: tuple[ArmLine, ...]
    wide: str
    narrow: str
    note: str
    explorer: str
    headline: Shown | None
    detail: Shown | None
    environment: Shown | None
    method: tuple[str, ...]
    facts: tuple[tuple[str, str], ...]
    footer: str


def write_changes(
    before: Mapping[str, Comparison], after: Mapping[str, Comparison], chosen: str, out: Path
) -> None:
    """Write the page of two runs.

    Args:
        before: The first run's comparisons, by baseline.
        after: The second's, by the same.
        chosen: The baseline that was chosen beforehand.
        out: The file.

    Raises:
        InputError: It cannot be written, or the runs have no effect in common.
    """
    first = {name: arranged(comparison) for name, comparison in before.items()}
    pair = RunPair(first, after, chosen)
    page = changes_page(pair, changed(first, after, chosen), out.parent)
    html = filled("changes.html.j2", page, SCRIPTS if page.explorer else SCRIPTS[:1])
    put_for_user(out, html.encode(), "or choose another file with --html")


def changes_page(pair: RunPair, found: Sequence[Changed], folder: Path) -> ChangesPage:
    """Return what the page says.

    Args:
        pair: The runs.
        found: All changes, judged.
        folder: Where the page will be.
    """
    own = [one for one in found if one.baseline == pair.chosen]
    table = changes_table(own, pair)
    headlines = [one for one in own if one.change.before.headline]
    rest = [one for one in own if not one.change.before.headline]
    before, after = pair.runs
    comparison = pair.before[pair.chosen]
    wide, narrow = _figures(headlines, comparison)
    environment = environment_table(pair)
    return ChangesPage(
        title=f"{legible(comparison.title)}: two runs",
        subtitle=f"{_named(after)} against {_named(before)}; each effect against "
        f"{legible(pair.chosen)}",
        alerts=doubts_of(comparison, pair.after[pair.chosen]),
        lead=_lead(headlines) if headlines else _nothing(pair),
        arms=_arms(headlines, comparison),
        wide=wide,
        narrow=narrow,
        note="Each mark is the change of an arm’s cost against the baseline, from the first run to "
        "the second, with its interval by itself; the band is the practical margin. Coloured is "
        "only what is declared.",
        explorer=changes_data(found, pair, folder) if found else "",
        headline=table.shown(rows=headlines, named=True) if headlines else None,
        detail=table.shown(rows=rest, named=True) if rest else None,
        environment=environment.shown() if environment.rows else None,
        method=_method(comparison),
        facts=tuple(
            (legible(f"{when}: {key}"), legible(str(value)))
            for when, run in (("Before", before), ("After", after))
            for key, value in (
                ("run", run.run), ("folder", run.folder), ("blocks", len(run.blocks_finished)),
                ("seed", run.seed), ("SHA-256 of its settings", settings_sha256(run)),
            )
        ),
        footer=f"Made by Tare {legible(str(after.versions.get('tare', '')))} from both runs’ "
        "events alone.",
    )  # fmt: skip


def _named(run: RunData) -> str:
    day = time.strftime("%Y-%m-%d %H:%M", time.gmtime(run.started_at))
    return f"{legible(run.run)} ({day} UTC)"


def _nothing(pair: RunPair) -> str:
    why, _ = why_nothing(pair.before[pair.chosen], pair.after[pair.chosen])
    return f"Nothing can be compared: {why}."


def _lead(headlines: Sequence[Changed]) -> str:
    counts = Counter[str](one.verdict for one in headlines)
    told = [f"{counts[word]} {said}" for word, said in HEADED.items() if counts[word]]
    if counts["preliminary"] == len(headlines):
        return (
            f"Too few blocks to tell whether any of {counted(len(headlines), 'effect')} changed: "
            f"each run needs {least_blocks(LEVEL)}."
        )
    text = f"Of {counted(len(headlines), 'effect')} " + (
        f"{joined(told)} in the second run" if told else "none is shown to have changed"
    )
    text += f"; {counts['equivalent']} equivalent within the margin" if counts["equivalent"] else ""
    open_ = [f"{counts[w]} {w}" for w in ("inconclusive", "preliminary") if counts[w]]
    return f"{'; '.join((text, *open_))}."


def _arms(headlines: Sequence[Changed], comparison: Comparison) -> tuple[ArmLine, ...]:
    style = looks(comparison.arms, comparison.baseline)
    lines = []
    for arm in dict.fromkeys(one.change.arm for one in headlines):
        own = [one for one in headlines if one.change.arm == arm]
        emulated = any(one.change.before.emulated or one.change.after.emulated for one in own)
        counts = Counter(one.verdict for one in own)
        # What is open comes last, for it has its greatest cost beside it.
        said = ", ".join(f"{counts[word]} {word}" for word in ORDER if counts[word])
        widest = max(
            (one.not_excluded or 0.0 for one in own if one.verdict == "inconclusive"), default=0.0
        )
        more = f": a cost up to {percent(widest)} more is not excluded" if widest else ""
        left = [o for o in own if o.verdict == "inconclusive" and o.difference_not_excluded]
        if left and not widest:
            # Differences of several metrics have no order: the first stands for them.
            size = open_cost(left[0])
            more = (
                ": no cost is excluded"
                if size == ANY
                else f": a cost up to {size} more is not excluded"
            )
        lines.append(
            ArmLine(marked(arm, emulated), f"{said}{more}.", emulated, style[arm].ink.role)
        )
    return tuple(lines)


def _figures(headlines: Sequence[Changed], comparison: Comparison) -> tuple[str, str]:
    parts = (Part.of(one.change.key) for one in headlines)
    names = Names(parts, comparison.shown_as, short=True)
    marks = [
        ChangeMark(
            what_of(one, names), one.change.arm, one.change.before.emulated, one.verdict, one.cost,
            anchor_of(one.change.key, one.change.arm),
        )
        for one in headlines
        if one.cost is not None
    ][:MOST_MARKS]  # fmt: skip
    if not marks:
        return "", ""
    style = looks(comparison.arms, comparison.baseline)
    words = "; ".join(f"{m.what}, {m.arm}: {ratio(m.cost[0])}, {m.verdict}" for m in marks)
    drawn = [
        inline_svg(
            svg_of(changes_figure(marks, style, comparison.margin, width)),
            name=f"changes-{name}", title="How costs changed", description=words,
        )
        for name, width in (("wide", WIDE), ("narrow", NARROW))
    ]  # fmt: skip
    return drawn[0], drawn[1]


def _method(comparison: Comparison) -> tuple[str, ...]:
    return (
        "Only effects are compared, each arm against the baseline in the same run and block; "
        "values of different runs never are. What a host or a day does to all arms alike cancels.",
        f"The interval of a change is Welch’s, {100 * comparison.confidence:.4g} %, each by "
        "itself; of tails and maxima that of the rank-sum test.",
        "Worse or better: the interval that holds for all of the arm’s headline effects together "
        f"(Bonferroni, {100 * comparison.level:g} %) leaves 1 out, and the change is beyond the "
        f"margin of ±{100 * comparison.margin:g} %. Equivalent: the interval by itself lies within "
        "the margin, and neither run has a finding that speaks against it. Everything else is "
        "inconclusive; with fewer than 6 blocks preliminary, without an interval.",
        "Against another baseline than the study’s all changes against all other baselines are one "
        "family: who looks around looks at all of them.",
        "Two runs tell what differs between these two; how far runs differ that are alike in all, "
        "only more runs tell: tare history, or tare compare of three or more.",
    )
