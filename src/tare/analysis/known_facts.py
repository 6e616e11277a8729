"""The parts of a run's events that have no fixed form, read as the analysis needs them.

What a cell tells beside its values, how a machine was placed and what the study said are JSON of
any form, and a run's folder may come from anyone. Here is the one place that knows which keys the
analysis goes by and what they hold; what does not fit is left out, as if it had not been told.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from tare.errors import InputError
from tare.units import Confidence

_MOST = 1e300
_Number = Annotated[float, Field(allow_inf_nan=False, ge=-_MOST, le=_MOST)]
_Amount = Annotated[float, Field(allow_inf_nan=False, ge=0, le=_MOST)]
_Whole = Annotated[int, Field(ge=-(1 << 62), le=1 << 62)]
_Object = dict[str, Any]
_Pair = Annotated[list[str], Field(min_length=2)]
_Nobody = Annotated[list[str], Field(max_length=0)]


class _Told(BaseModel):
    model_config = ConfigDict(extra="allow", defer_build=True)


class _Phase(_Told):
    name: str
    begin_s: _Number
    end_s: _Number


class _Neighbour(_Told):
    role: str = ""
    load: str = ""


class _Step(_Told):
    job: _Object | list[Any] | str | None = None
    caches: list[_Object] = Field(default_factory=list)


class _Job(_Told):
    steps: dict[str, _Step] = Field(default_factory=dict)
    written_bytes: _Amount = 0.0
    replication: _Whole = 0


class _Fault(_Told):
    where: str
    what: str
    count: _Whole


class _Spent(_Told):
    where: str
    who: str
    share: _Number
    per_request_s: _Number
    cycles: _Number = 0.0


class _Account(_Told):
    spent: list[_Spent] = Field(default_factory=list)
    cpus: _Whole = 0
    cycles_per_s: _Number | None = None
    softirq: _Number | None = None
    hardirq: _Number | None = None
    no_cycles: str | None = None


class _Proxied(_Told):
    size: _Whole = 0
    limits: list[Any] = Field(default_factory=list)
    faults: list[_Fault] = Field(default_factory=list)
    account: _Account = Field(default_factory=_Account)


class _Counted(_Told):
    seconds: _Amount | None = None
    llc_misses: _Amount | None = None
    llc_references: _Amount | None = None
    instructions: _Amount | None = None
    cycles: _Amount | None = None
    bytes: _Amount | None = None
    missing: str | None = None


class _Neighbours(_Told):
    load: str | None = None
    parameters: _Object | None = None


class _Scenario(_Told):
    summary: str | None = None
    neighbours: list[_Neighbours] | None = None
    machines: _Object | None = None


class _Blocks(_Told):
    least: _Whole = 0
    most: _Whole | None = None
    method: str | None = None


class _Boot(_Told):
    takes: _Amount = 0.0


class _Sessions(_Told):
    computer: str
    boots: dict[str, _Boot] = Field(default_factory=dict)


class _Study(_Told):
    study: str = ""
    title: str | None = None
    description: str | None = None
    baseline: str
    aa: _Pair | _Nobody | None = None
    confidence: Confidence | None = None
    margin: _Amount = 0.0
    blocks: _Blocks | None = None
    floors: dict[str, _Amount] | None = None
    own_baselines: dict[str, str] | None = None
    arms: dict[str, _Object] = Field(default_factory=dict)
    scenarios: dict[str, _Scenario] | None = None
    workloads: _Object | None = None
    shape: _Object | None = None
    sessions: _Sessions | None = None


_FACTS: Mapping[str, Any] = {
    "phases": list[_Phase],
    "neighbours": list[_Neighbour],
    "host_cost": dict[str, _Number],
    "origins_ns": dict[str, _Whole],
    "host_counters": _Object,
    "host_trace": _Object,
    "hypervisor": _Object,
    "duet": _Object,
    "turns": _Object,
    "job": _Job,
    "proxy": _Proxied,
    "hardware": _Counted,
    "host_memory": _Counted,
    "host_hardware": dict[str, _Counted],
    "clock_drift_ppm": _Number | None,
    "start_skew_s": _Number | None,
}
"""By the name of a fact that the analysis or the report goes by, what it holds."""
_PLACEMENT: Mapping[str, Any] = {
    "cpus": list[_Whole],
    "host": str,
    "keeps_to": list[_Whole],
    "memory": _Object,
    "network": _Object,
    "nic": _Object,
    "role": str,
    "sees_host_cpus": bool,
}


def known_facts(told: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a cell's facts without those that are not of the form the analysis reads."""
    return _fitting(told, _FACTS)


def known_placement(told: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return how a machine was placed, without what is not of the form that is read."""
    return _fitting(told, _PLACEMENT)


def require_study(told: Mapping[str, Any], where: str) -> None:
    """See that the study in a run's first event is one that can be read.

    Args:
        told: It.
        where: The run's folder, for the message.

    Raises:
        InputError: It is not; says by which key.
    """
    try:
        _reader(_Study).validate_python(told)
    except ValidationError as error:
        place = ".".join(map(str, error.errors()[0]["loc"]))
        raise InputError(
            f"{where}: the study in its first event is not as Tare writes one, at `{place}`",
            "restore the folder from where it was made, or start the run anew",
        ) from None


def _fitting(told: Mapping[str, Any], forms: Mapping[str, Any]) -> Mapping[str, Any]:
    wrong = [name for name, form in forms.items() if name in told and not _fits(told[name], form)]
    return {name: value for name, value in told.items() if name not in wrong} if wrong else told


def _fits(value: Any, form: Any) -> bool:
    try:
        _reader(form).validate_python(value)
    except ValidationError:
        return False
    return True


@lru_cache(maxsize=64)
def _reader(form: Any) -> TypeAdapter[Any]:
    # Made when a run is read: making all of them takes longer than most commands' start.
    return TypeAdapter(form)
