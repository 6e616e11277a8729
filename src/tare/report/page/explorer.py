"""The data for the page's script: effects against any baseline, their blocks and origins.

Every verdict here is from the analysis, and every text is the same as in the tables: the script
only chooses, sorts and shows. Without the script, the page shows the same in tables.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tare.analysis.data.rundata import SUBJECT
from tare.analysis.model import Comparison, Effect, Key, RunData
from tare.report.figures.svg import legible
from tare.report.page.data import ReportData
from tare.report.page.links import anchor_of
from tare.report.page.tables import Table
from tare.report.page.verdicts import capital, label_of
from tare.report.page.words import Part, cost, cost_interval, short
from tare.report.sections.contract import Section, SectionData
from tare.report.sections.results import PAIRED, effects_table

if TYPE_CHECKING:
    from tare.analysis.topics.monitoring import Monitor

MOST_VALUES = 20_000
"""With more values than this, only those of headline metrics are listed block by block."""

MOST_DIFFERENCES = 12
"""The most differences of an arm's environment listed with an effect; the page lists all."""

MOST_COUNTED = 3_000
"""With more cells with counters than this, the page has only the table of means."""

MOST_ENDS, LAST = 40, 12
"""The most machines whose consoles are in the page, and the number of last lines of each."""

SHOWN = ("what", "metric", "estimate", "low", "verdict", "not_excluded", "adjusted_p")
"""The columns of the tables that are shown of each effect."""


@dataclass(frozen=True)
class ExplorerData(SectionData):
    """The data for the script, as JSON."""

    json: str


class Explorer(Section):
    """Choose arms, scenarios and workloads, and look at the blocks and cells of one effect.

    The page puts the JSON after all sections, so that they are shown before it is read.
    """

    name, title, template, open = "explore", "Look closer", "explorer.html.j2", True

    def data(self, report: ReportData) -> ExplorerData | None:
        """Return all effects as JSON; None without any."""
        return ExplorerData(explorer_data(report)) if report.effects.rows else None


def explorer_data(report: ReportData) -> str:
    """Return the data for the script, as JSON that may be inside a page.

    Files of a run are linked if they are next to the page.
    """
    comparison, effects = report.comparison, report.effects
    pairs = pair_effects(comparison)
    keys = list(dict.fromkeys(effect.key for effect in effects.rows))
    place = {key: number for number, key in enumerate(keys)}
    blocks = _blocks(comparison)
    resources = {
        effect.key: cost.resource for cost in comparison.resources for effect in cost.effects
    }
    emulated = sorted({s.arm for s in comparison.summaries if s.emulated})
    rows = [_row(effect, effects, place, "") for effect in effects.rows]
    for effect in pairs.rows if pairs else ():
        if effect.baseline != comparison.baseline and effect.key in place:
            assert pairs is not None
            rows.append(_row(effect, pairs, place, effect.baseline))
    data = {
        "baseline": comparison.baseline,
        "twins": dict(comparison.pooled),
        "own": sorted(set(comparison.own_baselines.values())),
        "arms": list(comparison.pairs.arms if comparison.pairs else comparison.arms),
        "emulated": emulated,
        "keys": [_key(key, report.stems, resources.get(key, "")) for key in keys],
        "resources": {c.resource: capital(label_of(c)) for c in comparison.resources},
        "rows": rows,
        "flags": _flags(effects.rows),
        "blocks": blocks,
        "values": _values(comparison, place, blocks),
        "cells": cells_of_runs(comparison.runs, place),
        "machines": machines_of_runs(comparison.runs, report.out),
        "ends": ends_of_runs(comparison.runs),
        "counters": counters_of(report.monitors, comparison.runs),
        "differences": _differences(comparison),
        "runs": [run.run for run in comparison.runs],
    }
    # Inside a script element only "<" could end the element or begin a comment.
    return json.dumps(data, ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c")


def pair_effects(comparison: Comparison) -> Table[Effect] | None:
    """Return the effects of all pairs, in both directions, as a table; None without any."""
    pairs = comparison.pairs
    if pairs is None or not pairs.effects:
        return None
    return effects_table(comparison, "pairs", pairs.effects)


def _key(key: Key, stems: Mapping[Part, str], resource: str) -> list[Any]:
    return [legible(key.scenario), legible(key.workload), stems.get(Part.of(key), ""), resource]


def _row(
    effect: Effect, table: Table[Effect], place: Mapping[Key, int], baseline: str
) -> list[Any]:
    texts = table.texts_of(effect)
    ends = cost_interval(effect) or (None, None)
    return [
        anchor_of(effect.key, effect.arm, baseline),
        place[effect.key],
        effect.arm,
        effect.baseline,
        int(effect.headline),
        effect.blocks,
        # The mark refers to values that are not in this table.
        [texts[name].removesuffix(PAIRED) for name in SHOWN],
        [finite(cost(effect)), *map(finite, ends)],
    ]


def finite(value: float | None) -> float | None:
    """Return a cost with as many digits as a drawing needs; None if it is infinite, for JSON."""
    if value is None or not 0 < value < 1e300:
        return None
    return float(f"{value:.4g}")


def _flags(effects: Iterable[Effect]) -> dict[str, list[str]]:
    return {
        anchor_of(effect.key, effect.arm): [legible(flag.text) for flag in effect.flags]
        for effect in effects
        if effect.flags
    }


def _blocks(comparison: Comparison) -> list[tuple[int, int]]:
    """Return the index of the run and the number of each block that has any value."""
    runs = {run.run: number for number, run in enumerate(comparison.runs)}
    known = {(b.run, b.block) for summary in comparison.summaries for b in summary.blocks}
    return sorted((runs[run], block) for run, block in known)


def _values(
    comparison: Comparison, place: Mapping[Key, int], blocks: Sequence[tuple[int, int]]
) -> dict[str, dict[str, tuple[str, str]]]:
    """Return by key and arm the unit and the value of each of ``blocks``; ``-``: no value."""
    whole = sum(len(summary.blocks) for summary in comparison.summaries)
    names = [(comparison.runs[run].run, block) for run, block in blocks]
    found: dict[str, dict[str, tuple[str, str]]] = {}
    for summary in comparison.summaries:
        if summary.key in place and (summary.headline or whole <= MOST_VALUES):
            values = {(b.run, b.block): "%.6g" % b.value for b in summary.blocks}  # noqa: UP031
            text = " ".join([values.get(name, "-") for name in names])
            found.setdefault(str(place[summary.key]), {})[summary.arm] = (summary.unit, text)
    return found


def cells_of_runs(runs: Sequence[RunData], place: Mapping[Key, int]) -> dict[str, dict[str, Any]]:
    """Return, by part and arm, the names of its cells and the outcomes of lost cells."""
    parts: dict[tuple[str, str, str], list[int]] = {}
    for key, number in place.items():
        parts.setdefault((key.scenario, key.workload, key.parameters), []).append(number)
    found: dict[str, dict[str, Any]] = {}
    for at, run in enumerate(runs):
        for cell in run.cells:
            part = (cell.scenario, cell.workload, cell.parameters)
            if part not in parts:
                continue
            name = str(parts[part][0])
            of_part = found.setdefault(name, {"keys": parts[part], "arms": {}})
            entry = of_part["arms"].setdefault(cell.arm, ["", {}])
            _, _, rest = cell.cell.partition("/")
            entry[0] = entry[0] or legible(rest)
            if cell.status != "ok":
                entry[1][f"{at}.{cell.block}"] = (
                    f"{cell.status}: {short(legible(cell.reason), 200)}"
                )
    return found


def counters_of(watched: Sequence[Monitor], runs: Sequence[RunData]) -> dict[str, Any]:
    """Return the means of counters by cell and run, one line for each computer.

    With more cells than `MOST_COUNTED`, return none; the table of means lists them.
    """
    if not watched or len(watched) > MOST_COUNTED:
        return {}
    from tare.report.sections.monitoring import means_in_words

    places = {run.run: number for number, run in enumerate(runs)}
    found: dict[str, Any] = {}
    for monitor in watched:
        name = f"{places.get(monitor.run, 0)}.{legible(monitor.cell)}"
        found[name] = [legible(line) for track in monitor.tracks if (line := means_in_words(track))]
    return found


def ends_of_runs(runs: Sequence[RunData]) -> dict[str, list[str]]:
    """Return, for machines that stopped by themselves, the reason and their last console lines."""
    ended = [machine for run in runs for machine in run.machines if machine.expected is False]
    return {
        legible(machine.machine): [
            short(legible(line), 200) for line in (machine.reason, *machine.console_tail[-LAST:])
        ]
        for machine in ended[:MOST_ENDS]
    }


def machines_of_runs(runs: Sequence[RunData], out: Path) -> dict[str, dict[str, Any]]:
    """Return by arm and scenario, then by run and block, the machine and its available logs."""
    found: dict[str, dict[str, Any]] = {}
    for at, run in enumerate(runs):
        logs = _logs(run.folder, out)
        for machine in run.machines:
            if machine.role == SUBJECT:
                of_arm = found.setdefault(f"{machine.arm}|{machine.scenario}", {})
                name = machine.machine
                of_arm[f"{at}.{machine.block}"] = [legible(name), *logs.get(name, ())]
    return found


def _logs(folder: Path, out: Path) -> dict[str, list[str]]:
    """Return the names of each machine's logs if they are next to the page."""
    place = folder / "machines"
    if folder.resolve() != out.resolve() or not place.is_dir():
        return {}
    return {
        machine.name: sorted(file.name for file in machine.iterdir() if file.suffix == ".log")
        for machine in place.iterdir()
        if machine.is_dir() and not machine.is_symlink()
    }


def _differences(comparison: Comparison) -> dict[str, Any]:
    """Return by arm how its environment differs, with possible explanations of a result first."""
    found: dict[str, Any] = {}
    for difference in comparison.proof_differences:
        of_arm = found.setdefault(difference.arm, [0, []])
        of_arm[0] += 1
        if len(of_arm[1]) < MOST_DIFFERENCES:
            of_arm[1].append(
                [
                    legible(
                        f"{difference.path} ({difference.when})"
                        if difference.when
                        else difference.path
                    ),
                    short(legible(difference.baseline_value), 100),
                    short(legible(difference.arm_value), 100),
                    legible(difference.why),
                ]
            )
    return found
