"""The tables and figures of a source by number, and the counterpart of each in a run."""

from __future__ import annotations

import re
from typing import Literal

from pydantic import Field, model_validator

from tare.references.printed import Asked, ReferencePart

View = Literal[
    "samples",
    "close-up",
    "values",
    "timeline",
    "phases",
    "bars",
    "counters",
    "job-phases",
    "over-size",
    "time-spent",
]
"""How a run shows a figure.

Single samples over time, a few milliseconds of them, values with intervals, response times over
time, or their means phase by phase. For jobs on a cluster: bars with intervals, counters of
machines or hosts in one step, or the job's phases. For a load balancer: throughput over the size of
objects, or the threads that used the CPUs meanwhile.
"""
OF_ARMS: tuple[View, ...] = ("samples", "close-up", "timeline", "values", "over-size", "time-spent")
"""Views that can be restricted to the counterparts of some of the source's arms."""
Over = Literal["", "size", "slaves", "hosts"]
"""What the bars of a figure vary: the size of the data, the number of slaves, or of hosts."""


class Exhibit(ReferencePart):
    """One table or figure of the source.

    A table whose values are written out under ``tables`` needs only its number or place. Others
    have ``view``, the counterpart in a run, or ``none``, the reason why there cannot be one.
    """

    table: str = Field("", description="Its number, if it is a table.")
    figure: str = Field(
        "", description="Its number, if it is a figure; what the source calls it, if it has none."
    )
    place: str = Field("", description="What the page calls it, if it has no number.")
    text: str = Field("", description="Where in the text it is, if neither a table nor a figure.")
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
        (), description="The source's arms that it shows; empty: all arms."
    )
    over: Over = Field("", description="What bars are drawn over.")
    of: Literal["machines", "host"] = Field("machines", description="Whose counters these are.")
    step: str = Field("", description="The step of a job whose counters these are; empty: all.")
    span: float = Field(0.0, ge=0, description="How much time a close-up shows, seconds.")
    confidence: float = Field(
        0.95, gt=0, lt=1, description="The source's, for intervals of values."
    )
    remark: str = ""
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
        if self.arms and self.view not in OF_ARMS:
            raise ValueError(f"`arms` goes with a view of {', '.join(OF_ARMS)}")
        if (self.view == "close-up") != (self.span > 0):
            raise ValueError("`span` goes with `view: close-up`")
        return self

    @property
    def name(self) -> str:
        """The exhibit's citation: ``Figure 9(e)``, ``Table II``, or the name that the page uses."""
        if self.place:
            return self.place
        if self.text:
            return f"Text, {self.text}"
        return f"Table {self.table}" if self.table else f"Figure {self.figure}"

    def stem(self, reference: str) -> str:
        """Return the stem of its file names among a report's figures or tables."""
        return "-".join(re.findall(r"[a-z0-9]+", f"paper {reference} {self.name}".lower()))[:60]
