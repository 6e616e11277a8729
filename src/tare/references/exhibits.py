"""The tables and figures of a source by number, and what of a run stands for each."""

from __future__ import annotations

import re
from typing import Literal

from pydantic import Field, model_validator

from tare.references.printed import Asked, Part

View = Literal[
    "samples",
    "close-up",
    "values",
    "course",
    "phases",
    "bars",
    "counters",
    "job-phases",
    "over-size",
    "time-spent",
]
"""What stands for a figure: single samples over time, a few milliseconds of them, values with
intervals, response times over time, or their means phase by phase; of jobs on a cluster: bars with
intervals, counters of machines or hosts in one step, or the job's phases; of a load balancer: what
goes through over the size of objects, or who used the CPUs meanwhile."""
Over = Literal["", "size", "slaves", "hosts"]
"""What bars are drawn over: the size of the data, the number of slaves, or of their hosts."""


class Exhibit(Part):
    """One table or figure of the source.

    A table whose values are written out under ``tables`` needs its number or place alone. Anything
    else says with ``view`` what a run has for it, with ``like`` in which other figure
    that is drawn, or with ``none`` why there can be nothing.
    """

    table: str = Field("", description="Its number, if it is a table.")
    figure: str = Field(
        "", description="Its number, if it is a figure; what the source calls it, if it has none."
    )
    place: str = Field("", description="Where it stands, if it has no number.")
    text: str = Field("", description="Where in the text it is, if it is no table or figure.")
    section: str = ""
    study: str = Field("", description="The study that repeats it; by default the source's first.")
    longer: str = Field("", description="The study that measures it for as long as the source did.")
    shows: str = Field("", description="What it shows, in a few words.")
    scenario: str = ""
    view: View | None = None
    workloads: tuple[str, ...] = ()
    metrics: tuple[str, ...] = ()
    parameters: dict[str, Asked] = Field(
        default_factory=dict, description="What was asked for; of several values any."
    )
    arms: tuple[str, ...] = Field(
        (), description="The source's arms that it is of; empty: of all, and of all of a run."
    )
    over: Over = Field("", description="What bars are drawn over.")
    of: Literal["machines", "host"] = Field("machines", description="Whose counters these are.")
    step: str = Field("", description="The step of a job whose counters these are; empty: all.")
    span: float = Field(0.0, ge=0, description="Of a close-up: how much time it shows, seconds.")
    confidence: float = Field(0.95, gt=0, lt=1, description="Of values' intervals in the source.")
    remark: str = ""
    like: str = Field("", description="The figure whose counterpart here shows this one too.")
    none: str = Field("", description="Why a run can have nothing for it.")

    @model_validator(mode="after")
    def _is_whole(self) -> Exhibit:
        if len([each for each in (self.table, self.figure, self.place, self.text) if each]) != 1:
            raise ValueError("needs one of `table`, `figure`, `place` and `text`")
        needing = ("samples", "close-up", "values", "bars", "counters", "over-size")
        if self.view in needing and not (self.workloads and self.metrics):
            raise ValueError(f"a view of {self.view} needs `workloads` and `metrics`")
        if self.view == "time-spent" and not self.workloads:
            raise ValueError("a view of time-spent needs `workloads`")
        if self.arms and self.view not in ("over-size", "time-spent"):
            raise ValueError("`arms` goes with a view of over-size or time-spent")
        if (self.view == "close-up") != (self.span > 0):
            raise ValueError("`span` goes with `view: close-up`")
        return self

    @property
    def name(self) -> str:
        """How to cite it: ``Figure 9(e)``, ``Table II``, or where it stands or is told."""
        if self.place:
            return f"Table without number, {self.place}"
        if self.text:
            return f"Text, {self.text}"
        return f"Table {self.table}" if self.table else f"Figure {self.figure}"

    def stem(self, reference: str) -> str:
        """The name of its files among a report's figures or tables."""
        return "-".join(re.findall(r"[a-z0-9]+", f"paper {reference} {self.name}".lower()))[:60]
