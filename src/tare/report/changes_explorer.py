"""What the script of the two runs' page chooses from: all changes, against any baseline."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from tare.analysis.changed import Changed
from tare.analysis.model import Key, RunData
from tare.analysis.monitoring import monitors
from tare.analysis.run_differences import machine_differences
from tare.report.anchors import anchor_of
from tare.report.changes_table import RunPair, changes_table
from tare.report.explorer import (
    MOST_DIFFERENCES,
    cells_of_runs,
    counters_of,
    ends_of_runs,
    finite,
    machines_of_runs,
)
from tare.report.svg import legible
from tare.report.tables import Table
from tare.report.words import short

REPORT = "report.html"


def changes_data(found: Sequence[Changed], pair: RunPair, folder: Path) -> str:
    """Return it as JSON that may stand inside a page.

    Args:
        found: All changes, judged.
        pair: The runs.
        folder: Where the page will be; the runs' own pages are linked from there.
    """
    keys = list(dict.fromkeys(one.change.key for one in found))
    place = {key: number for number, key in enumerate(keys)}
    runs = pair.runs
    blocks = [
        (number, block)
        for number, comparisons in enumerate((pair.before, pair.after))
        for block in sorted({b.block for s in comparisons[pair.chosen].summaries for b in s.blocks})
    ]
    every = changes_table(found, pair)
    rows = [_row(one, every, place, pair.chosen) for one in found]
    about = {
        name: f"Against {name}: how each effect changed from the first run to the second"
        + ("" if name == pair.chosen else ", all baselines being one family")
        for name in dict.fromkeys(one.baseline for one in found)
    }
    arms = dict.fromkeys(
        arm for comparisons in (pair.before, pair.after) for arm in comparisons[pair.chosen].arms
    )
    data = {
        "baseline": pair.chosen,
        "twins": dict(pair.before[pair.chosen].pooled),
        "own": [],
        "arms": list(arms),
        "emulated": sorted(runs[0].emulated_arms | runs[1].emulated_arms),
        "keys": [[legible(key.scenario), legible(key.workload), ""] for key in keys],
        "rows": rows,
        "flags": {
            row[0]: flags for row, one in zip(rows, found, strict=True) if (flags := _flags(one))
        },
        "blocks": blocks,
        "values": _values(pair, place, blocks),
        "cells": cells_of_runs(runs, place),
        "machines": machines_of_runs(runs, folder),
        "ends": ends_of_runs(runs),
        "counters": counters_of(monitors(runs), runs),
        "differences": _told_differences(pair),
        "runs": [run.run for run in runs],
        "about": about,
        "apart": "the first run’s",
        "reports": _reports(runs, folder),
    }
    return json.dumps(data, ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c")


def _row(one: Changed, table: Table[Changed], place: Mapping[Key, int], chosen: str) -> list[Any]:
    texts, change = table.texts_of(one), one.change
    told = f"{texts['before']} → {texts['after']}: {texts['change']}"
    return [
        anchor_of(change.key, change.arm, "" if one.baseline == chosen else one.baseline),
        place[change.key],
        change.arm,
        one.baseline,
        int(change.before.headline),
        f"{change.before.blocks} and {change.after.blocks}",
        [*(texts[name] for name in ("what", "metric")), told, texts["low"], one.verdict,
         texts["not_excluded"], "–"],
        [finite(end) for end in one.cost or (None, None, None)],
    ]  # fmt: skip


def _flags(one: Changed) -> list[str]:
    return [
        legible(f"{when}: {flag.text}")
        for when, effect in (("before", one.change.before), ("after", one.change.after))
        for flag in effect.flags
    ]


def _values(
    pair: RunPair, place: Mapping[Key, int], blocks: Sequence[tuple[int, int]]
) -> dict[str, dict[str, tuple[str, str]]]:
    known: dict[tuple[int, str], dict[tuple[int, int], float]] = {}
    units: dict[tuple[int, str], str] = {}
    for number, comparisons in enumerate((pair.before, pair.after)):
        for summary in comparisons[pair.chosen].summaries:
            if summary.key in place:
                whose = place[summary.key], summary.arm
                units[whose] = summary.unit
                known.setdefault(whose, {}).update(
                    {(number, block.block): block.value for block in summary.blocks}
                )
    found: dict[str, dict[str, tuple[str, str]]] = {}
    for (key, arm), values in known.items():
        told = " ".join(f"{values[b]:.6g}" if b in values else "-" for b in blocks)
        found.setdefault(str(key), {})[arm] = (units[key, arm], told)
    return found


def _told_differences(pair: RunPair) -> dict[str, Any]:
    """Return by arm how its machines differ between the runs: how many ways, and the first few."""
    found = {}
    for arm in pair.before[pair.chosen].arms:
        if different := machine_differences(*pair.runs, arm):
            told = [
                [legible(d.what), short(legible(d.before), 100), short(legible(d.after), 100),
                 legible(d.why)]
                for d in different[:MOST_DIFFERENCES]
            ]  # fmt: skip
            found[arm] = [len(different), told]
    return found


def _reports(runs: Sequence[RunData], folder: Path) -> list[list[str]]:
    """Return how each run's own page is called and where it is, as seen from this one."""
    found = []
    for when, run in zip(("first", "second"), runs, strict=True):
        page = run.folder / REPORT
        if page.is_file():
            where = os.path.relpath(page.resolve(), folder.resolve())
            found.append([f"in the {when} run’s report", quote(where)])
    return found
