"""Read printed numbers as SI units, and define the base of all parts of a reference."""

from __future__ import annotations

import re
from collections.abc import Mapping
from decimal import Decimal
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from tare.units import DURATION_UNITS, SIZE_UNITS, format_quantity

Unit = Literal["s", "B", "B/s", "1/s", "1"]
"""The SI units of values after reading."""
Share = Literal["", "above", "below", "difference"]
"""How a number relates two arms; empty: their quotient."""
Asked = int | float | str | tuple[int | float | str, ...]
"""The requested value of a parameter; of several values, any one matches."""


class ReferencePart(BaseModel):
    """The base of all parts of a reference: immutable, refusing unknown keys."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Fact(ReferencePart):
    """A number that the source's text states outside its tables; ``to`` is the end of a range."""

    section: str
    value: float
    to: float | None = None
    printed: str = Field(
        "", description="As the source prints it; by default the value as it is given with a unit."
    )
    unit: Unit
    says: str
    arm: str = Field("", description="The arm that it is about, if one.")
    scenario: str = Field("", description="The source's scenario that it was found in.")
    machines: int | None = Field(None, ge=1, description="How many machines there were.")
    placement: Literal["one host", "several hosts"] | None = Field(
        None, description="Where the machines were."
    )
    data: float | None = Field(None, gt=0, description="Bytes that were worked on.")
    data_to: float | None = Field(None, gt=0, description="The end of their range.")
    phase: str = Field("", description="What the neighbours did meanwhile.")
    of: tuple[str, ...] = Field((), description="The tables and figures that it is about.")
    workload: str = Field("", description="The workload that measures it in a run.")
    metric: str = Field("", description="The metric that measures it in a run.")
    parameters: dict[str, int | float | str] = Field(default_factory=dict)
    against: str = Field(
        "",
        description="The scenario that `scenario` is compared with: a run has the quotient of the "
        "two, or where the unit is a time, their difference.",
    )
    than: tuple[str, ...] = Field(
        (),
        description="The arm, or each of several, that `arm` is compared with: a run has the "
        "quotients of its counterparts. Without `arm`, each two of several.",
    )
    share: Share = Field(
        "",
        description="How the number follows from their quotient: how far `arm` is `above` or "
        "`below`, or their `difference` as a share of the mean of both.",
    )
    setup: bool = Field(False, description="True if it describes how the source measured.")
    here: str = Field(
        "", description="Where a run shows that, if not by a metric; with `setup`, how it measured."
    )
    needs: tuple[str, ...] = Field(
        (),
        description="Arms of the source: `here` needs a counterpart of one of them in the run. "
        "Default: `arm`.",
    )
    none: str = Field("", description="Why a run cannot have a counterpart.")

    @property
    def measured(self) -> bool:
        """Whether a run can have a value for it."""
        return bool(self.workload)

    def describe_conditions(self, labels: Mapping[str, str]) -> str:
        """Return the statement's conditions in words; empty if the text states none.

        Args:
            labels: The source's names of its arms, by their names in the reference.
        """
        counted = f"{self.machines} machine{'s' * (self.machines != 1)}" if self.machines else ""
        counted = " on ".join(filter(None, (counted, self.placement)))
        ends = [end for end in (self.data, self.data_to) if end is not None]
        worked = " to ".join(format_quantity(end, "B", digits=5, trim=True) for end in ends)
        phase = f"during {self.phase}" if self.phase else ""
        than = [labels.get(arm, arm) for arm in self.than]
        others = (" or " if self.arm else ", ").join(than)
        arms = " against ".join(filter(None, (labels.get(self.arm, self.arm), others)))
        return ", ".join(filter(None, (arms, self.scenario, counted, worked, phase)))

    @model_validator(mode="after")
    def _is_whole(self) -> Fact:
        if bool(self.workload) != bool(self.metric):
            raise ValueError("`workload` and `metric` go together")
        if [self.measured, self.setup, bool(self.none)].count(True) > 1:
            raise ValueError("has one of `workload`, `setup` and `none` at most")
        if self.here and (self.measured or self.none):
            raise ValueError("`here` goes alone or with `setup`")
        if self.needs and not self.here:
            raise ValueError("`needs` goes with `here`")
        several = bool(self.arm) or len(self.than) > 1
        if self.than and (self.against or not (self.measured and self.scenario and several)):
            raise ValueError("`than` needs `arm`, `workload`, `metric` and `scenario` alone")
        if self.share and not (self.than and self.unit == "1"):
            raise ValueError("`share` goes with `than`, and has the unit 1")
        if self.against and not (self.measured and self.scenario):
            raise ValueError("`against` needs `workload`, `metric` and `scenario`")
        return self

    @model_validator(mode="before")
    @classmethod
    def _convert_to_si(cls, data: Any) -> Any:
        if not isinstance(data, dict):
            return data
        units = {"value": data.get("unit"), "to": data.get("unit"), "data": "B", "data_to": "B"}
        ends = {key: in_si(data[key], unit) for key, unit in units.items() if key in data}
        # The result of a validator is checked strictly: a list does not count as a tuple.
        lists = {
            key: tuple(data[key])
            for key in ("of", "than", "needs")
            if isinstance(data.get(key), list)
        }
        one = {"than": (data["than"],)} if isinstance(data.get("than"), str) else {}
        written = [data[key] for key in ("value", "to") if isinstance(data.get(key), str)]
        printed = {"printed": " to ".join(map(as_written, written))} if written else {}
        return {**printed, **data, **ends, **lists, **one}


def as_written(value: str) -> str:
    """Return a value with its unit as the source prints it: ``0.43 us`` is ``0.43 µs``."""
    return re.sub(r"(?<=[\d ])us$", "µs", value)


_PRINTED = re.compile(r"(\d+(?:\.\d+)?) ?([a-zµ]+(?:/s)?)", re.IGNORECASE)
_UNITS: Mapping[object, Mapping[str, float]] = {
    "s": DURATION_UNITS,
    "B": SIZE_UNITS,
    "B/s": {f"{name}/s": size for name, size in SIZE_UNITS.items()},
}


def in_si(value: object, unit: object) -> object:
    """Return a printed value as a number in ``unit``; other types and units remain unchanged.

    Args:
        value: ``"4.35 ms"`` for seconds, ``"9 MB"`` for bytes, ``"69 MB/s"`` for bytes a second,
            a plain number otherwise.
        unit: One of ``Unit``.

    Raises:
        ValueError: A duration, size or rate has no unit, or the value cannot be read.
    """
    if unit not in _UNITS or not isinstance(value, str | int | float) or isinstance(value, bool):
        return value
    found = _PRINTED.fullmatch(str(value))
    scale = _UNITS[unit].get(found[2]) if found else None
    if found is None or scale is None:
        units = ", ".join(_UNITS[unit])
        raise ValueError(f"{value!r} is not a value with its unit as printed, one of {units}")
    # Decimal arithmetic reads "11.45 us" as exactly 1.145e-05; a product of floats may round.
    return float(Decimal(found[1]) * Decimal(repr(scale)))
