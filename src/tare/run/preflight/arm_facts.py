"""The facts of each arm, written into the events and restored from them.

A resumed run is planned from the facts at its start, so that later changes do not alter the plan.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pydantic import TypeAdapter

from tare.errors import InputError
from tare.events import PlatformChecked
from tare.study.planning.plan import ArmFacts

if TYPE_CHECKING:
    from tare.platforms.contract import Verdict

_FACTS = TypeAdapter(ArmFacts)


def recorded(facts: ArmFacts) -> dict[str, Any]:
    """Return ``facts`` as plain values, with sorted sets."""
    plain = {
        name: sorted(value) if isinstance(value, frozenset) else value
        for name, value in _FACTS.dump_python(facts).items()
    }
    # The numbers of CPUs are keys here, which JSON has as strings.
    return {**plain, "carrier": _FACTS.dump_python(facts, mode="json")["carrier"]}


def require_still_usable(
    checked: Mapping[str, PlatformChecked], now: Mapping[str, Verdict]
) -> None:
    """Check that every arm that a run began with can still run.

    Args:
        checked: The verdicts that the run recorded, by arm.
        now: The current verdict on every arm.

    Raises:
        InputError: An arm was usable when the run began and is not now.
    """
    for name, event in checked.items():
        if event.usable and not now[name].usable:
            raise InputError(
                f"arm {name} was usable when the run began and is not now: {now[name].reason}",
                now[name].hint or "make it usable again, or start a new run",
            )


def restored_facts(
    checked: Mapping[str, PlatformChecked], now: Mapping[str, ArmFacts]
) -> dict[str, ArmFacts]:
    """Return the facts of the arms at the start of a run.

    Args:
        checked: The verdicts that the run recorded, by arm.
        now: The current facts of every arm, used for arms that the run had not checked.
    """
    return {
        name: _restored(checked[name], today) if name in checked else today
        for name, today in now.items()
    }


def _restored(event: PlatformChecked, now: ArmFacts) -> ArmFacts:
    return _FACTS.validate_python(event.facts) if event.facts else _from_old_event(event, now)


def _from_old_event(event: PlatformChecked, now: ArmFacts) -> ArmFacts:
    """Return the facts from an event without all facts; current ones replace the missing ones."""
    able = event.capabilities
    return dataclasses.replace(
        now,
        usable=event.usable,
        reason=event.reason,
        emulated=event.emulated,
        max_vcpus=able["max_vcpus"],
        min_memory=able["min_memory"],
        pinning=able["pinning"],
        devices=frozenset(able.get("devices", ())),
        neighbours=able.get("neighbours", now.neighbours),
        knobs=frozenset(able.get("knobs", ())),
        missing_knobs=able.get("missing_knobs", {}),
    )
