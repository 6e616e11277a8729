"""The top of the page: what the comparison found, in words and as one figure of all arms."""

from __future__ import annotations

from dataclasses import dataclass

from tare.analysis.model import Comparison
from tare.report.figures.overhead import overhead_figure, overview, shading_note
from tare.report.figures.svg import legible
from tare.report.page.data import ReportData
from tare.report.page.verdicts import ArmLine, arm_lines, lead
from tare.report.page.words import EMULATED, counted, joined
from tare.report.sections.contract import Section, SectionData
from tare.report.sections.results import effects_table


@dataclass(frozen=True)
class OverviewData(SectionData):
    """What the top of the page shows."""

    lead: str
    arms: tuple[ArmLine, ...]
    emulated_note: str


class Overview(Section):
    """The verdicts on all arms, and how far each is from the baseline."""

    name, title, template = "verdict", "Verdict", "overview.html.j2"

    def data(self, report: ReportData) -> OverviewData:
        """Return the verdicts in words and the figure of overheads."""
        found = report.comparison
        overhead = overhead_figure(found, report.looks)
        return OverviewData(
            lead=lead(found) or _no_lead(found),
            arms=arm_lines(found, report.looks),
            emulated_note=_emulated_note(found, report.emulated),
            figures=((overhead, _overhead_note(found)),) if overhead else (),
            tables=(effects_table(found, "overhead", found.headlines),),
        )


def _no_lead(comparison: Comparison) -> str:
    if not comparison.summaries:
        return "Nothing was measured: no cell ended well."
    if comparison.baseline not in {summary.arm for summary in comparison.summaries}:
        return (
            f"No comparison: the baseline {legible(comparison.baseline)} has no values; each arm’s "
            "own values are below."
        )
    return "No comparison: only the baseline has values."


def _emulated_note(comparison: Comparison, emulated: frozenset[str]) -> str:
    arms = [legible(arm) for arm in comparison.arms if arm in emulated]
    if not arms:
        return ""
    return (
        f"{EMULATED.capitalize()} here: {joined(arms)}. They execute the guest’s instructions in "
        "software, so their figures show behaviour and relative instruction cost, not the speed "
        "of the hardware under a hypervisor."
    )


def _overhead_note(comparison: Comparison) -> str:
    level = f"{100 * comparison.confidence:.4g} %"
    text = (
        f"Each mark is an estimate over {counted(comparison.blocks, 'block')}, each bar its "
        f"{level} interval; marks in colour are differences that count, grey ones do not. "
    )
    text += shading_note(comparison)
    left_out = [effect for effect in comparison.headlines if effect.overhead is None]
    if left_out:
        text += f" {len(left_out)} effects without a ratio are only in the tables."
    shown = len(overview(comparison)) + len(left_out)
    if shown < len(comparison.headlines):
        text += (
            f" Of each workload only the first of its headline metrics is drawn here: "
            f"{len(comparison.headlines) - shown} more effects are below, workload by workload."
        )
    return text
