"""Values in a source's text, outside its tables, each with the run's own value or the reason."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from tare.analysis.effects.comparison import Comparison
from tare.analysis.effects.results import Key
from tare.references.arms import ArmMatch, alike, reasons_of
from tare.references.measured import asked_of, measured_keys, samples_of
from tare.references.pairing import shown_value
from tare.references.printed import Fact
from tare.references.published import Reference
from tare.references.scenarios import describe_scenario, matching
from tare.references.shares import Compared, compared

SETUP = "it says how the source measured"
UNNAMED = "no metric of a study is named for it"


@dataclass(frozen=True)
class Stated:
    """One number of the text.

    Args:
        name: Its name in the reference.
        fact: The statement.
        own: The run's values in ``unit``, by arm. A quotient or a share is a plain number. If the
            statement compares arms, the key names both arms.
        unit: The SI unit of the run's values.
        why: Why the run has none; empty if it has some.
        scenario: The run's scenario that the values are from, if it is a single one.
        between: The compared arms with their interval, if the statement compares arms.
        conditions: The statement's conditions in words, with the source's names of arms.
        unlike: Why the run has no arm like the one in the statement; empty if it has one.
    """

    name: str
    fact: Fact
    own: Mapping[str, float]
    unit: str
    why: str
    scenario: str = ""
    between: tuple[Compared, ...] = ()
    conditions: str = ""
    unlike: str = ""


def stated(comparison: Comparison, reference: Reference) -> tuple[Stated, ...]:
    """Return all numbers that the text states, in the reference's order."""
    likes = {like.arm: like for like in alike(comparison, reference)}
    labels = {name: arm.label for name, arm in reference.arms.items()}
    return tuple(
        replace(
            _stated(comparison, reference, likes, name, fact),
            conditions=fact.describe_conditions(labels),
        )
        for name, fact in reference.facts.items()
    )


def _stated(
    comparison: Comparison,
    reference: Reference,
    likes: Mapping[str, ArmMatch],
    name: str,
    fact: Fact,
) -> Stated:
    unlike = _unlike(likes, fact)
    if not fact.measured:
        why = fact.none or unlike or (SETUP if fact.setup else UNNAMED)
        return Stated(name, fact, {}, fact.unit, why, unlike=unlike)
    if fact.than:
        return _between_arms(comparison, reference, name, fact)
    own, unit, scenario = _values(comparison, reference, fact, fact.scenario)
    if fact.against:
        other, _, _ = _values(comparison, reference, fact, fact.against)
        shared = {arm: (value, other[arm]) for arm, value in own.items() if arm in other}
        if fact.unit == "1":
            own = {arm: value / base for arm, (value, base) in shared.items() if base > 0}
            unit = "1"
        else:
            own = {arm: value - base for arm, (value, base) in shared.items()}
    if fact.arm:
        # A statement about one machine concerns only that machine's counterparts in the run.
        own = {arm: value for arm, value in own.items() if arm in likes[fact.arm].own}
    why = "" if own else unlike or _unmeasured(reference, fact)
    return Stated(name, fact, own, unit, why, scenario, unlike=unlike)


def _unlike(likes: Mapping[str, ArmMatch], fact: Fact) -> str:
    """Return why the run has no counterpart of a statement's arms; empty if it has one."""
    about = [likes[arm] for arm in fact.needs or ((fact.arm,) if fact.arm else ())]
    if not about or any(like.own for like in about):
        return ""
    return reasons_of(about)


def _between_arms(comparison: Comparison, reference: Reference, name: str, fact: Fact) -> Stated:
    """Return the run's values for two arms that the text compares."""
    keys, scenario = _keys_of(comparison, reference, fact)
    if not keys:
        return Stated(name, fact, {}, "1", _unmeasured(reference, fact))
    found, why = compared(comparison, reference, fact, keys)
    own = {f"{each.first} ÷ {each.second}": each.value for each in found}
    why = why or ("" if found else f"no block of this run has both arms' {fact.metric}")
    return Stated(name, fact, own, "1", why, scenario, found)


def _keys_of(
    comparison: Comparison, reference: Reference, fact: Fact
) -> tuple[tuple[Key, ...], str]:
    """Return the run's keys for a statement, one for each size in its range, and the scenario."""
    key = _key(comparison, reference, fact, fact.scenario)
    if key is None or fact.data is None or fact.data_to is None:
        return ((key,) if key else ()), key.scenario if key else ""
    sizes: dict[float, Key] = {}
    for each in measured_keys(
        comparison, fact.workload, fact.metric, key.scenario, fact.parameters
    ):
        size = asked_of(each, fact.workload, "size")
        if isinstance(size, int | float) and fact.data <= size <= fact.data_to:
            sizes.setdefault(float(size), each)
    return tuple(sizes.values()) or (key,), key.scenario


def _values(
    comparison: Comparison, reference: Reference, fact: Fact, scenario: str
) -> tuple[dict[str, float], str, str]:
    """Return the run's values by arm (of a maximum the largest), their unit, and their scenario."""
    key = _key(comparison, reference, fact, scenario)
    found = [summary for summary in comparison.summaries if summary.key == key]
    unit = found[0].unit if found else fact.unit
    values = {summary.arm: shown_value(summary) for summary in found}
    return values, unit, key.scenario if key is not None else ""


def _key(comparison: Comparison, reference: Reference, fact: Fact, scenario: str) -> Key | None:
    if scenario:
        wanted = matching(comparison.runs, scenario, reference.scenarios[scenario])
        among = [wanted] if wanted else []
    else:
        among = list(dict.fromkeys(summary.key.scenario for summary in comparison.summaries))
    for each in among:
        keys = measured_keys(comparison, fact.workload, fact.metric, each, fact.parameters)
        if keys:
            return max(keys, key=samples_of)
    return None


def _unmeasured(reference: Reference, fact: Fact) -> str:
    wanted = [name for name in (fact.scenario, fact.against) if name]
    where = " and ".join(
        f"{name} ({describe_scenario(reference.scenarios[name])})" for name in wanted
    )
    given = ", ".join(f"{name}: {value}" for name, value in fact.parameters.items())
    what = f"{fact.workload} {fact.metric}" + (f" with {given}" if given else "")
    return f"this run measured no {what}" + (f" in {where}" if where else "")
