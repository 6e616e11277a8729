"""A study that many hosts share, and how its blocks are distributed over them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field, model_validator

from tare.study.reading.hosting import StudyPart

WAYS = ("replicate", "split")


def _allow_word(schema: dict[str, Any]) -> None:
    """Reduce a schema to the short form that a file uses."""
    for key in ("properties", "required", "additionalProperties", "type"):
        schema.pop(key, None)
    schema["enum"] = list(WAYS)


class Spread(StudyPart):
    """How the hosts of a cluster share a study."""

    model_config = StudyPart.model_config | {"json_schema_extra": _allow_word}

    how: Literal["replicate", "split"] = Field(
        description="`replicate`: each host measures all blocks; `split`: equal hosts share them."
    )
    hosts: list[str] = Field(
        default_factory=list,
        description="The hosts that share it. Default: all hosts of the cluster.",
    )

    @model_validator(mode="before")
    @classmethod
    def _from_word(cls, data: Any) -> Any:
        if isinstance(data, str):
            if data not in WAYS:
                raise ValueError(f"must be `replicate` or `split`, not {data!r}")
            return {"how": data}
        return data


class Spreadable(StudyPart):
    """The keys of a study about the hosts that share it."""

    spread: Spread | None = Field(
        None,
        description="How the hosts of a cluster share the study: `replicate` (each measures all "
        "blocks) or `split` (equal hosts share them). `hosts` then lists their names.",
    )


def with_spread_hosts(data: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a study's plain data with its hosts moved to the key that the model uses.

    If a study is spread, ``hosts`` names workers' hosts, and every arm runs on each of them.

    Args:
        data: The study as written.
    """
    how, hosts = data.get("spread"), data.get("hosts")
    if not isinstance(how, str) or not hosts:
        return data
    rest = {key: value for key, value in data.items() if key != "hosts"}
    names = list(hosts) if isinstance(hosts, list | Mapping) else hosts
    return {**rest, "spread": {"how": how, "hosts": names}}
