"""The section on tuning: settings to change, settings to keep, and settings without a verdict."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tare.analysis.topics.tuning import SettingEffects, Tuning, TuningEffect, tuning
from tare.report.page.data import ReportData
from tare.report.page.tables import Column, ShownTable, Table
from tare.report.page.words import (
    Names,
    Part,
    counted,
    joined,
    marked,
    metric_name,
    percent,
    probability,
)
from tare.report.sections.contract import Answer, Section, SectionData
from tare.report.sections.tuning_commands import Commands, commands_for

_SHOWN_CHANGES = 3
"""The most changes named in one sentence."""


@dataclass(frozen=True)
class TuningData(SectionData):
    """The content of the section on tuning."""

    lead: str
    method: str
    plans: tuple[str, ...]
    change: ShownTable | None
    avoid: ShownTable | None
    undecided: ShownTable | None
    interactions: ShownTable | None
    effects: ShownTable
    unseparated: tuple[str, ...]


class TuningSection(Section):
    """Advice on settings from a study's matrices."""

    name, title, template = "tuning", "Tuning", "tuning.html.j2"

    def data(self, report: ReportData) -> TuningData | None:
        """Return the advice of all matrices; None if the study has none."""
        found = tuning(report.runs, report.comparison.confidence, report.comparison.margin)
        if found is None:
            return None
        words = _Words(found)
        lists = {advice: [s for s in found.switches if s.advice == advice] for advice in _ADVICE}
        change = words.changes([*lists["change"], *lists["trade-off"]])
        avoid = words.avoided([*lists["keep"], *lists["same"]], report.comparison.margin)
        open_ = [*lists["undecided"], *lists["preliminary"], *lists["not measured"]]
        undecided = words.undecided(open_)
        interacting = words.interactions(
            [e for e in found.effects if len(e.changes) == 2 and e.outcome in ("better", "worse")]
        )
        effects = words.effects(found.effects)
        tables: list[Table[Any]] = [change, avoid, undecided, interacting, effects]
        lead = _lead(found, words)
        return TuningData(
            lead=lead,
            method=_method(found),
            plans=tuple(
                line for name, design in found.designs.items() for line in design.lines(name)
            ),
            change=_unless_empty(change),
            avoid=_unless_empty(avoid),
            undecided=_unless_empty(undecided),
            interactions=_unless_empty(interacting),
            effects=effects.shown(),
            unseparated=tuple(
                f"{name}: {joined(effects_)}" for name, effects_ in found.unseparated.items()
            ),
            tables=tuple(table for table in tables if table.rows),
            answer=Answer(lead, "All settings"),
        )


_ADVICE = ("change", "trade-off", "keep", "same", "undecided", "preliminary", "not measured")


def _unless_empty(table: Table[Any]) -> ShownTable | None:
    return table.shown() if table.rows else None


def _lead(found: Tuning, words: _Words) -> str:
    """Return the result in one or two sentences."""
    good = [s for s in found.switches if s.advice in ("change", "trade-off")]
    total = counted(len(found.switches), "change")
    if not any(switch.effects for switch in found.switches):
        return f"Tuning: none of {total} of settings was measured."
    if all(s.advice in ("preliminary", "not measured") for s in found.switches):
        blocks = max(effect.blocks for effect in found.effects)
        return (
            f"Tuning is preliminary: {counted(blocks, 'block')} of {total}; a verdict needs "
            f"{found.least}."
        )
    if not good:
        return f"Tuning: none of {total} of settings was shown to be better than the default."
    good.sort(key=lambda switch: min(effect.cost for effect in switch.effects))
    named = [
        f"{switch.change.words} ({words.size(_best(switch))}{words.condition(switch)})"
        for switch in good[:_SHOWN_CHANGES]
    ]
    more = len(good) - len(named)
    rest = f", and {counted(more, 'other')}" if more > 0 else ""
    return f"Settings worth changing: {joined(named)}{rest}."


def _method(found: Tuning) -> str:
    left = (
        f" Not analysed here: {joined(found.left_out)} (tails, maxima, or values of 0)."
        if found.left_out
        else ""
    )
    return (
        "A change of a metric is the ratio of its values after and before the change, as a "
        "percentage. All intervals of this section cover together with "
        f"{percent(found.confidence)} confidence, so each has {percent(found.single)}. A verdict "
        "also needs a p-value below 0.05, corrected over all effects. Averages are over the "
        "other settings of the matrix; "
        f"single changes are against the default.{left}"
    )


def _best(switch: SettingEffects) -> TuningEffect:
    return min(
        (effect for effect in switch.effects if effect.outcome == "better"),
        key=lambda effect: effect.cost,
    )


class _Words:
    """Names of metrics, sizes of effects, and the tables made from them."""

    def __init__(self, found: Tuning) -> None:
        self._found = found
        self._names = Names(Part.of(effect.key) for effect in found.effects)

    def metric(self, effect: TuningEffect) -> str:
        """Return a metric with its workload, such as ``switch latency``."""
        return f"{self._names.name(Part.of(effect.key))} {metric_name(effect.key.metric)}"

    def size(self, effect: TuningEffect) -> str:
        """Return a metric's change, such as ``switch latency −12 % (−14 % to −10 %)``.

        An average over the matrix's other settings is marked as one.
        """
        interval = ""
        if effect.interval is not None and effect.outcome != "preliminary":
            low, high = _percent(effect.interval.low), _percent(effect.interval.high)
            interval = f" ({low} to {high})"
        mean = "" if effect.alone or len(effect.changes) > 1 else " on average"
        return f"{self.metric(effect)} {_percent(effect.ratio)}{mean}{interval}"

    def of(self, switch: SettingEffects, outcome: str) -> str:
        """Return all metrics with an outcome, the largest effect first."""
        effects = [effect for effect in switch.effects if effect.outcome == outcome]
        effects.sort(key=lambda effect: -abs(effect.cost - 1))
        return "; ".join(dict.fromkeys(map(self.size, effects))) or "–"

    def changes(self, rows: Sequence[SettingEffects]) -> Table[SettingEffects]:
        """Return the settings to change, with the commands."""

        def part(of: Callable[[Commands], str]) -> Callable[[SettingEffects], str]:
            return lambda switch: of(commands_for(switch.change.keys))

        columns: tuple[Column[SettingEffects], ...] = (
            *_change_columns(),
            Column("gain", lambda s: self.of(s, "better"), "Gain"),
            Column("loss", lambda s: self.of(s, "worse"), "Loss"),
            Column("risk", part(lambda c: c.risk), "Cost or risk"),
            Column("depends", lambda s: joined(_interacting_settings(s)) or "–", "Depends on"),
            Column("qemu", part(lambda c: c.qemu), "QEMU"),
            Column("libvirt", part(lambda c: c.libvirt), "libvirt"),
            Column("proxmox", part(lambda c: c.proxmox), "Proxmox VE"),
        )
        return Table("tuning-change", "What to change", columns, tuple(rows), tone=_tone)

    def condition(self, switch: SettingEffects) -> str:
        """Return a clause on the other settings that the gain depends on; empty without any."""
        others = joined(_interacting_settings(switch))
        return f", averaged over {others}, which it depends on" if others else ""

    def avoided(self, rows: Sequence[SettingEffects], margin: float) -> Table[SettingEffects]:
        """Return the changes that the study does not recommend, with the reason."""

        def why(switch: SettingEffects) -> str:
            if switch.advice == "keep":
                return f"worse: {self.of(switch, 'worse')}"
            return f"no metric changes by more than {percent(margin)}"

        columns: tuple[Column[SettingEffects], ...] = (
            *_change_columns(),
            Column("why", why, "Why"),
        )
        return Table("tuning-avoid", "What not to change", columns, tuple(rows), tone=_tone)

    def undecided(self, rows: Sequence[SettingEffects]) -> Table[SettingEffects]:
        """Return the changes that the study could not decide, with the reason."""
        columns: tuple[Column[SettingEffects], ...] = (
            *_change_columns(),
            Column("why", self._open, "Why it is not decided"),
        )
        caption = "What this study could not decide"
        return Table("tuning-undecided", caption, columns, tuple(rows), tone=_tone)

    def _open(self, switch: SettingEffects) -> str:
        if switch.advice == "not measured":
            return f"not measured: {switch.reason}"
        if switch.advice == "preliminary":
            blocks = max(effect.blocks for effect in switch.effects)
            sizes = "; ".join(dict.fromkeys(map(self.size, switch.effects)))
            return f"{counted(blocks, 'block')}, {self._found.least} are needed; so far {sizes}"
        widest = max(
            (effect for effect in switch.effects if effect.outcome == "undecided"),
            key=lambda e: (e.cost_ends[1] / e.cost_ends[0]) if e.cost_ends else 0.0,
        )
        return f"the interval is too wide; least certain: {self.size(widest)}"

    def interactions(self, rows: Sequence[TuningEffect]) -> Table[TuningEffect]:
        """Return the pairs of changes whose effects depend on each other."""
        columns: tuple[Column[TuningEffect], ...] = (
            Column("arm", lambda e: e.arm, "Arm", lambda e: marked(e.arm, e.emulated)),
            Column("changes", lambda e: " and ".join(c.words for c in e.changes), "Changes"),
            Column(
                "together",
                self.size,
                "Effect of one with the other, relative to without",
            ),
            Column(
                "aliased",
                lambda e: "; ".join(e.aliased),
                "Not separated from",
                lambda e: "; ".join(e.aliased) or "–",
            ),
        )
        caption = "Changes that depend on each other"
        return Table("tuning-interactions", caption, columns, tuple(rows), tone=_effect_tone)

    def effects(self, rows: Sequence[TuningEffect]) -> Table[TuningEffect]:
        """Return the table of all effects."""
        columns: tuple[Column[TuningEffect], ...] = (
            Column("matrix", lambda e: e.matrix, "Matrix"),
            Column("arm", lambda e: e.arm, "Arm", lambda e: marked(e.arm, e.emulated)),
            Column("emulated", lambda e: e.emulated),
            Column("change", lambda e: " and ".join(c.words for c in e.changes), "Change"),
            Column("kind", _kind, "Effect"),
            Column("metric", self.metric, "Metric"),
            Column("parameters", lambda e: e.key.parameters),
            Column("ratio", lambda e: e.ratio, "Change of it", lambda e: _percent(e.ratio), True),
            Column("low", lambda e: e.interval.low if e.interval else None),
            Column(
                "high", lambda e: e.interval.high if e.interval else None, "Interval", _interval
            ),
            Column("p", lambda e: e.p, "p", lambda e: probability(e.p), numeric=True),
            Column("blocks", lambda e: e.blocks, "Blocks", numeric=True),
            Column("outcome", lambda e: e.outcome, "Result"),
            Column("aliased", lambda e: "; ".join(e.aliased)),
            Column("assumes", lambda e: e.assumes),
        )
        return Table("tuning-effects", "All effects", columns, tuple(rows), tone=_effect_tone)


def _interacting_settings(switch: SettingEffects) -> tuple[str, ...]:
    """Return the settings that a change interacts with."""
    found = (
        change.setting
        for effect in switch.interactions
        for change in effect.changes
        if change.setting != switch.change.setting
    )
    return tuple(dict.fromkeys(found))


def _change_columns() -> tuple[Column[SettingEffects], ...]:
    return (
        Column("arm", lambda s: s.arm, "Arm", lambda s: marked(s.arm, s.emulated)),
        Column("emulated", lambda s: s.emulated),
        Column("change", lambda s: s.change.words, "Change"),
    )


def _tone(switch: SettingEffects) -> str:
    return "emulated" if switch.emulated else ""


def _effect_tone(effect: TuningEffect) -> str:
    return "emulated" if effect.emulated else ""


def _kind(effect: TuningEffect) -> str:
    if len(effect.changes) == 2:
        others = "; ".join(effect.aliased)
        return f"interaction, not separated from {others}" if others else "interaction"
    if effect.alone:
        return "single change"
    return "average, if no settings interact" if effect.assumes else "average"


def _interval(effect: TuningEffect) -> str:
    if effect.interval is None or effect.outcome == "preliminary":
        return "–"
    return f"{_percent(effect.interval.low)} to {_percent(effect.interval.high)}"


def _percent(ratio: float) -> str:
    """Return a ratio as a signed change: 0.88 is ``−12 %``."""
    change = ratio - 1
    sign = "+" if change > 0 else "−" if change < 0 else ""
    return f"{sign}{percent(abs(change))}"
