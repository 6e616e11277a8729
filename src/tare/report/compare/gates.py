"""Write the outcome of gates for people and for other programs."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol
from xml.etree import ElementTree

from tare.analysis.effects.verdict import LEVEL
from tare.analysis.runs.gates import ERROR, Checked, Outcome, worst
from tare.analysis.statistics.maxt import least_blocks
from tare.report.figures.svg import legible
from tare.report.page.words import parameters_of, ratio, ratio_interval
from tare.units import format_number, format_quantity, parameter_words

STATUS: Mapping[Outcome, int] = {"holds": 0, "fails": 1, "open": 3}
SIGN: Mapping[Outcome, str] = {"holds": "✓", "fails": "✗", "open": "?"}
OPEN = "the limit is within the interval: more blocks would decide"
RANGED = (
    "time counts instructions here, and ranges over all blocks replace intervals; to see how far "
    "builds of the same code differ, measure a few"
)
FEW = f"each run needs {least_blocks(LEVEL)} blocks at least"


def _name(one: Checked) -> str:
    key = one.change.key
    inside = parameter_words(parameters_of(key.parameters))
    parameters = f" [{inside}]" if inside else ""
    return legible(f"{key.workload} {key.metric}{parameters} of {one.change.arm} in {key.scenario}")


def _change(one: Checked) -> str:
    change = one.change
    if one.value is not None:
        unit = change.after.unit
        own = (format_quantity(end, unit) for end in (one.value.low, one.value.high))
        return f"{format_quantity(one.at, unit)} ({' to '.join(own)})"
    if change.ratio:
        ends = ratio_interval((change.low, change.high))
        return f"{ratio(change.change)} ({ends if _bounded(one) else FEW})"
    ends = f"{format_number(change.low)} to {format_number(change.high)}"
    return f"{format_number(change.change, sign=True)} ({ends if _bounded(one) else FEW})"


def _bounded(one: Checked) -> bool:
    return math.isfinite(one.change.high)


def _why(one: Checked) -> str:
    """Return the reason why a gate is open: a doubt about its interval, or an undecided limit."""
    return legible(one.reason) or (OPEN if one.value or _bounded(one) else FEW)


def _describe_change(one: Checked) -> str:
    return f"{'is' if one.value is not None else 'changed by'} {_change(one)}{_floor(one)}"


def _floor(one: Checked) -> str:
    """Return a note if a floor moved the limit, because the gate's own text does not show that."""
    if not one.by_floor:
        return ""
    limit = ratio(one.limit) if one.change.ratio else format_number(one.limit, sign=True)
    return f"; by its floor the limit is {limit}"


def as_text(checked: Sequence[Checked], doubts: Sequence[str] = ()) -> str:
    """Return differences between the runs, one line for each gate, and the outcome of all gates."""
    lines = [f"Note: {legible(doubt)}" for doubt in doubts]
    lines += [
        f"{SIGN[one.outcome]} {one.outcome}: {legible(one.gate.text)}: {_name(one)} "
        f"{_describe_change(one)}" + legible(_reason_suffix(one))
        for one in checked
    ]
    return "\n".join([*lines, f"{worst(checked)} ({_error(checked)})", ""])


def _error(checked: Sequence[Checked]) -> str:
    family = "one gate" if len(checked) == 1 else f"{len(checked)} gates, one family"
    if any(one.change.ranged for one in checked):
        return f"{family}: {RANGED}"
    error = f"{family}: wrongly failed or passed in at most {100 * ERROR:g} % of calls"
    return "; ".join([error, *dict.fromkeys(one.runs for one in checked if one.runs)])


def as_markdown(checked: Sequence[Checked], doubts: Sequence[str] = ()) -> str:
    """Return differences between the runs and a table of gates in Markdown, for a pull request."""
    lines = [f"- {_prose(doubt)}" for doubt in doubts]
    lines += [
        *([""] if doubts else []),
        f"**Gates: {worst(checked)}** ({_error(checked)})",
        "",
        "| | gate | what | change, or value |",
        "|---|---|---|---|",
        *(
            f"| {SIGN[one.outcome]} {one.outcome} | `{_code(one.gate.text)}` | "
            f"{_cell(_name(one))} | {_change(one)}{_floor(one)}{_cell(_reason_suffix(one))} |"
            for one in checked
        ),
    ]
    return "\n".join([*lines, ""])


def _prose(text: str) -> str:
    """Return a sentence in which Markdown sees no markup except code."""
    return re.sub(r"([\\*_\[\]|#~])", r"\\\1", " ".join(legible(text).split())).replace("<", "&lt;")


def _code(text: str) -> str:
    """Return code to put between backticks in a table, where only ``|`` needs an escape."""
    return " ".join(legible(text).split()).replace("`", "'").replace("|", "\\|")


def _reason_suffix(one: Checked) -> str:
    return f", but {one.reason}" if one.reason else ""


def _cell(text: str) -> str:
    return " ".join(legible(text).split()).replace("|", "\\|").replace("<", "&lt;")


def as_junit(checked: Sequence[Checked], doubts: Sequence[str] = ()) -> str:
    """Return JUnit's XML: failed gates are failures, and open gates are skipped with the reason.

    Differences between the runs are in the suite's properties and in its output.
    """
    counts = {outcome: sum(one.outcome == outcome for one in checked) for outcome in STATUS}
    suite = ElementTree.Element(
        "testsuite",
        name="tare gates",
        tests=str(len(checked)),
        failures=str(counts["fails"]),
        skipped=str(counts["open"]),
        errors="0",
    )
    if doubts:
        properties = ElementTree.SubElement(suite, "properties")
        for doubt in doubts:
            ElementTree.SubElement(properties, "property", name="note", value=legible(doubt))
    for one in checked:
        case = ElementTree.SubElement(
            suite, "testcase", classname=legible(one.gate.text), name=_name(one)
        )
        if one.outcome == "fails":
            ElementTree.SubElement(case, "failure", message=_describe_change(one))
        elif one.outcome == "open":
            ElementTree.SubElement(
                case, "skipped", message=f"{_change(one)}{_floor(one)}; {_why(one)}"
            )
    if doubts:
        output = ElementTree.SubElement(suite, "system-out")
        output.text = "".join(f"Note: {legible(doubt)}\n" for doubt in doubts)
    return ElementTree.tostring(suite, encoding="unicode", xml_declaration=True) + "\n"


def as_bmf(checked: Sequence[Checked], doubts: Sequence[str] = ()) -> str:
    """Return Bencher's metric format: each effect of the second run, and its change."""
    found: dict[str, dict[str, dict[str, float]]] = {}
    for one in checked:
        after = one.change.after
        effect = {"value": after.estimate}
        if after.interval is not None:
            effect |= {"lower_value": after.interval.low, "upper_value": after.interval.high}
        change = {
            "value": one.change.change,
            "lower_value": one.change.low,
            "upper_value": one.change.high,
        }
        measures = {"effect": _finite(effect), "change": _finite(change)}
        if one.value is not None:
            value = {"value": one.at, "lower_value": one.value.low, "upper_value": one.value.high}
            measures["value"] = _finite(value)
        found[_name(one)] = found.get(_name(one), {}) | measures
    return json.dumps(found, indent=2, ensure_ascii=False) + "\n"


def _finite(values: Mapping[str, float]) -> dict[str, float]:
    return {name: value for name, value in values.items() if math.isfinite(value)}


def as_github(checked: Sequence[Checked], doubts: Sequence[str] = ()) -> str:
    """Return cost factors as ``customSmallerIsBetter`` of github-action-benchmark."""
    found: list[dict[str, Any]] = []
    for one in checked:
        after = one.change.after
        if after.overhead is None or not math.isfinite(after.overhead):
            continue
        entry: dict[str, Any] = {
            "name": _name(one),
            "unit": "times the baseline's cost",
            "value": 1 + after.overhead,
            "extra": f"{one.gate.text}: {one.outcome}, {_describe_change(one)}"
            f"{_reason_suffix(one)}",
        }
        ends = after.overhead_interval
        if ends is not None and all(map(math.isfinite, ends)):
            entry["range"] = f"{format_number(1 + ends[0], 4)} to {format_number(1 + ends[1], 4)}"
        found.append(entry)
    return json.dumps(found, indent=2, ensure_ascii=False) + "\n"


def as_openmetrics(checked: Sequence[Checked], doubts: Sequence[str] = ()) -> str:
    """Return OpenMetrics text: change, interval, value, and the outcome as an exit status."""
    lines = []
    series: Mapping[str, tuple[str, Callable[[Checked], float]]] = {
        "tare_change": ("After against before.", lambda one: one.change.change),
        "tare_change_low": ("Lower end of the change's interval.", lambda one: one.change.low),
        "tare_change_high": ("Upper end of the change's interval.", lambda one: one.change.high),
        "tare_value": (
            "The arm's own value after, in its unit.",
            lambda one: one.change.after.arm_summary.centre,
        ),
        "tare_gate": ("0 holds, 1 fails, 3 open.", lambda one: STATUS[one.outcome]),
    }
    for name, (about, value) in series.items():
        lines += [f"# TYPE {name} gauge", f"# HELP {name} {about}"]
        samples = (f"{name}{{{_labels(one)}}} {_number(value(one))}" for one in checked)
        # A gate that was given twice is one sample, which may be written only once.
        lines += dict.fromkeys(samples)
    return "\n".join([*lines, "# EOF", ""])


def _labels(one: Checked) -> str:
    key = one.change.key
    labels = {
        "gate": one.gate.text,
        "arm": one.change.arm,
        "scenario": key.scenario,
        "workload": key.workload,
        "parameters": key.parameters,
        "metric": key.metric,
    }
    return ",".join(f'{name}="{_escaped(value)}"' for name, value in labels.items())


def _escaped(text: str) -> str:
    return legible(text).replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _number(value: float) -> str:
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return repr(float(value))


class GateFormat(Protocol):
    """Writes gates and differences between the runs in one format."""

    def __call__(self, checked: Sequence[Checked], doubts: Sequence[str] = ()) -> str: ...  # noqa: D102


FORMATS: Mapping[str, GateFormat] = {
    "text": as_text,
    "markdown": as_markdown,
    "junit": as_junit,
    "bmf": as_bmf,
    "github": as_github,
    "openmetrics": as_openmetrics,
}
