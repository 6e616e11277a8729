"""The workloads' sections: which figures and tables each gets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from tare.analysis.model import ArmSummary, Comparison, Effect, Flag, Key, SeriesSummary
from tare.analysis.rundata import SUBJECT
from tare.analysis.unit_cost import UnitCost
from tare.report.drawing import Drawn, Noted
from tare.report.far_tails import far_tables
from tare.report.figures.distribution import distribution_figure
from tare.report.figures.frame import Figure
from tare.report.figures.overhead import metrics_figure
from tare.report.leads import leads_of
from tare.report.long_series import (
    emulated_arms,
    series_flags,
    tails_table,
)
from tare.report.page import Section
from tare.report.palette import Look
from tare.report.svg import legible
from tare.report.tables import Table
from tare.report.unit_cost import unit_cost_table
from tare.report.words import Names, Part, joined, marked, parameters_of, slug, told

FEW = 14
"""Up to so many effects are all shown at once; more are folded behind the headline ones."""

DISTRIBUTIONS = 2
"""Metrics of one workload whose values per block are drawn."""


HIDDEN = ("what", "noise_floor")
"""Of effects what a section says elsewhere: its name in the heading, the A/A pair in the figure."""

Captioned = tuple[Figure, str]
"""A figure with what is said below it."""


@dataclass(frozen=True)
class Draft:
    """A section before its figures are drawn and its series are read.

    Args:
        part: What it is about.
        name: Its heading.
        stem: Its id, and the beginning of its figures' names.
        summaries: Its values.
        effects: Its effects.
        first: Figures of values over blocks, shown first.
        last: Figures of all metrics, shown after those of the series.
    """

    part: Part
    name: str
    stem: str
    summaries: tuple[ArmSummary, ...]
    effects: tuple[Effect, ...]
    first: tuple[Captioned, ...]
    last: tuple[Captioned, ...]

    @property
    def figures(self) -> list[Figure]:
        """The figures that do not wait for series."""
        return [figure for figure, _ in (*self.first, *self.last)]


@dataclass(frozen=True)
class WholeTables:
    """The tables of all effects and all values."""

    effects: Table[Effect]
    values: Table[ArmSummary]


def drafts(comparison: Comparison, looks: Mapping[str, Look]) -> list[Draft]:
    """Return one draft per workload, parameters and scenario that has any value."""
    by_part: dict[Part, list[ArmSummary]] = {}
    for summary in comparison.summaries:
        by_part.setdefault(Part.of(summary.key), []).append(summary)
    of_part: dict[Part, list[Effect]] = {}
    for effect in comparison.effects:
        of_part.setdefault(Part.of(effect.key), []).append(effect)
    names, plain = Names(by_part, comparison.shown_as), Names(by_part)
    taken: set[str] = set()
    found = []
    for part, summaries in by_part.items():
        name = names.name(part)
        stem = _unique(slug(plain.name(part)), taken)
        effects = of_part.get(part, [])
        first, last = [], []
        # What neighbours did is shown in tables: it proves the load and is no result.
        own = part.role == SUBJECT
        for number, key in enumerate(_drawn_keys(summaries) if own else ()):
            rows = [summary for summary in summaries if summary.key == key]
            figure = distribution_figure(
                rows, looks, name=f"{stem}-blocks-{number + 1}", part=name,
                leads=leads_of([effect for effect in effects if effect.key == key], rows),
                runs=[run.run for run in comparison.runs],
            )  # fmt: skip
            first.append((figure, _distribution_note(comparison, rows, figure.panels)))
        if own and len({effect.key for effect in effects}) > 1:
            metrics = metrics_figure(comparison, looks, effects, name=f"{stem}-metrics", part=name)
            last += [(metrics, "")] if metrics else []
        found.append(
            Draft(part, name, stem, tuple(summaries), tuple(effects), tuple(first), tuple(last))
        )
    return found


def finish(
    comparison: Comparison,
    draft: Draft,
    series: Mapping[str, SeriesSummary],
    costs: Sequence[UnitCost],
    whole: WholeTables,
) -> Section:
    """Return the section of ``draft``, but for its figures.

    Args:
        comparison: The whole comparison.
        draft: The section's draft.
        series: Its series by arm.
        costs: What its work cost the host, one an arm.
        whole: The tables of the whole comparison, of which it shows its rows.
    """
    effects, emulated = draft.effects, emulated_arms(comparison)
    headlines = [effect for effect in effects if effect.headline]
    shown = effects if len(effects) <= FEW or not headlines else headlines
    rest = [e for e in effects if not e.headline] if len(shown) < len(effects) else []
    tails = tails_table(comparison, {draft.part: series}) if series else None
    return Section(
        id=draft.stem,
        name=draft.name,
        subject=draft.part.role == SUBJECT,
        scenario=legible(draft.part.scenario),
        workload=legible(draft.part.workload),
        about=_about(draft.part),
        flags=_flags(effects, series_flags(series, emulated)),
        figures=(),
        effects=whole.effects.shown(hide=HIDDEN, rows=shown, named=True) if shown else None,
        costs=unit_cost_table(comparison, costs).shown(hide=["what", "blocks"]) if costs else None,
        more=whole.effects.shown(hide=HIDDEN, rows=rest, named=True) if rest else None,
        values=whole.values.shown(hide=["what"], rows=draft.summaries),
        tails=tails.shown(hide=["what"]) if tails and tails.rows else None,
        far=tuple(t.shown(hide=["what"]) for t in far_tables(comparison, {draft.part: series})),
    )


def illustrated(
    section: Section, draft: Draft, between: Sequence[Captioned], drawn: Mapping[str, Drawn]
) -> Section:
    """Return ``section`` with its figures.

    Args:
        section: The section of ``draft``.
        draft: What knows its own figures.
        between: The figures of its series.
        drawn: All drawn figures by name.
    """
    captioned = (*draft.first, *between, *draft.last)
    return replace(
        section, figures=tuple(Noted(drawn[figure.name], note) for figure, note in captioned)
    )


def _drawn_keys(summaries: Sequence[ArmSummary]) -> list[Key]:
    keys = dict.fromkeys(summary.key for summary in summaries if summary.headline)
    return list(keys or dict.fromkeys(summary.key for summary in summaries))[:DISTRIBUTIONS]


def _distribution_note(comparison: Comparison, rows: Sequence[ArmSummary], panels: int) -> str:
    about = "median" if rows[0].kind != "typical" else "mean"
    direction = {"lower": "lower is better", "higher": "higher is better"}.get(rows[0].better, "")
    level = f"{100 * comparison.confidence:.4g} %"
    text = f"One dot a block; bar: {about} with its {level} interval"
    if direction:
        text += f"; {direction}"
    return f"{text}; arms far apart have axes of their own." if panels > 1 else f"{text}."


def _about(part: Part) -> str:
    words = [f"Scenario {part.scenario}"]
    given = parameters_of(part.parameters)
    if given:
        words.append(f"parameters {told(given)}")
    return legible("; ".join(words) + ".")


def _flags(effects: Sequence[Effect], others: Sequence[tuple[str, Flag]]) -> tuple[str, ...]:
    named = [(marked(e.arm, e.emulated), flag) for e in effects for flag in e.flags]
    arms: dict[str, list[str]] = {}
    for name, flag in [*named, *others]:
        who = arms.setdefault(flag.text, [])
        if name not in who:
            who.append(name)
    return tuple(legible(f"{joined(who)}: {text}") for text, who in arms.items())


def _unique(stem: str, taken: set[str]) -> str:
    name, number = stem, 2
    while name in taken:
        name, number = f"{stem}-{number}", number + 1
    taken.add(name)
    return name
