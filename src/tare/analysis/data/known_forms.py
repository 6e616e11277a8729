"""The study and the placement of machines in a run's events, read as the analysis needs them.

Both are JSON of any form, and a run's folder may come from anyone. This module alone knows which
keys the analysis reads and what they hold.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from tare.errors import InputError
from tare.events.cell_facts import Amount, Whole, fitting
from tare.units import Confidence

_Object = dict[str, Any]
_Pair = Annotated[list[str], Field(min_length=2)]
_Nobody = Annotated[list[str], Field(max_length=0)]


class _Recorded(BaseModel):
    model_config = ConfigDict(extra="allow", defer_build=True)


class _Neighbours(_Recorded):
    load: str | None = None
    parameters: _Object | None = None


class _Scenario(_Recorded):
    summary: str | None = None
    neighbours: list[_Neighbours] | None = None
    machines: _Object | None = None


class _Blocks(_Recorded):
    least: Whole = 0
    most: Whole | None = None
    method: str | None = None


class _Boot(_Recorded):
    takes: Amount = 0.0


class _Sessions(_Recorded):
    computer: str
    boots: dict[str, _Boot] = Field(default_factory=dict)


class _Study(_Recorded):
    study: str = ""
    title: str | None = None
    description: str | None = None
    baseline: str
    aa: _Pair | _Nobody | None = None
    confidence: Confidence | None = None
    margin: Amount = 0.0
    blocks: _Blocks | None = None
    floors: dict[str, Amount] | None = None
    own_baselines: dict[str, str] | None = None
    arms: dict[str, _Object] = Field(default_factory=dict)
    scenarios: dict[str, _Scenario] | None = None
    workloads: _Object | None = None
    shape: _Object | None = None
    sessions: _Sessions | None = None


_PLACEMENT: Mapping[str, Any] = {
    "cpus": list[Whole],
    "host": str,
    "keeps_to": list[Whole],
    "memory": _Object,
    "network": _Object,
    "nic": _Object,
    "role": str,
    "sees_host_cpus": bool,
}


def known_placement(recorded: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return how a machine was placed, without parts of an unknown form."""
    return fitting(recorded, _PLACEMENT)


def require_study(recorded: Mapping[str, Any], where: str) -> None:
    """Check that the study in a run's first event can be read.

    Args:
        recorded: The study as the run's events hold it.
        where: The run's folder, for the message.

    Raises:
        InputError: It cannot; the message names the key.
    """
    try:
        _Study.model_validate(recorded)
    except ValidationError as error:
        place = ".".join(map(str, error.errors()[0]["loc"]))
        raise InputError(
            f"{where}: the study in its first event is not as Tare writes one, at `{place}`",
            "restore the folder from where it was made, or start a new run",
        ) from None
