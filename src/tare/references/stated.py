"""What a source's text states beside its tables, each with what a run has for it, or why not."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from tare.analysis.comparison import Comparison
from tare.analysis.results import Key
from tare.references.arms import Like, alike
from tare.references.pairing import measured_keys, samples_of, shown_value
from tare.references.printed import Fact
from tare.references.published import Reference
from tare.references.scenarios import describe_scenario, matching

SETUP = "it tells how the source measured"
UNNAMED = "no metric of a study is named for it"


@dataclass(frozen=True)
class Stated:
    """One number of the text.

    Args:
        name: Its name in the reference.
        fact: What is stated.
        own: What the run has for it, arm by arm: in ``unit``, of a quotient a plain number. Where
            arms are compared, by the two.
        unit: SI unit of the run's values.
        why: Why the run has none; empty where it has.
        scenario: The run's scenario that they are from, where it is one.
    """

    name: str
    fact: Fact
    own: Mapping[str, float]
    unit: str
    why: str
    scenario: str = ""


def stated(comparison: Comparison, reference: Reference) -> tuple[Stated, ...]:
    """Return all that the text states, in the reference's order."""
    return tuple(_stated(comparison, reference, *each) for each in reference.facts.items())


def _stated(comparison: Comparison, reference: Reference, name: str, fact: Fact) -> Stated:
    if not fact.measured:
        return Stated(name, fact, {}, fact.unit, fact.none or (SETUP if fact.setup else UNNAMED))
    own, unit, scenario = _values(comparison, reference, fact, fact.scenario)
    if fact.against:
        other, _, _ = _values(comparison, reference, fact, fact.against)
        shared = {arm: (value, other[arm]) for arm, value in own.items() if arm in other}
        if fact.unit == "1":
            own = {arm: value / base for arm, (value, base) in shared.items() if base > 0}
            unit = "1"
        else:
            own = {arm: value - base for arm, (value, base) in shared.items()}
    why = "" if own else _unmeasured(reference, fact)
    if fact.than:
        own, why = _quotients(alike(comparison, reference), fact, own, why)
        unit = "1"
    return Stated(name, fact, own, unit, why, scenario)


def _quotients(
    likes: Iterable[Like], fact: Fact, own: Mapping[str, float], why: str
) -> tuple[dict[str, float], str]:
    """Return what a run's arms like the one are to those like the other, or why there is none."""
    found = {like.arm: like for like in likes}
    one, other = found[fact.arm], found[fact.than]
    quotients = {
        f"{first} ÷ {second}": own[first] / own[second]
        for first in one.own
        for second in other.own
        if first in own and own.get(second, 0.0) > 0
    }
    reasons = [f"{like.label}: {like.why}" for like in (one, other) if like.why]
    return quotients, "" if quotients else "; ".join(reasons) or why


def _values(
    comparison: Comparison, reference: Reference, fact: Fact, scenario: str
) -> tuple[dict[str, float], str, str]:
    """Return the run's values by arm, of a maximum the longest of all; their unit and scenario."""
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
