"""Numbers and names as the report writes them; every table and figure uses the same words."""

from __future__ import annotations

import json
import math
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from tare.analysis.data.rundata import SUBJECT
from tare.analysis.effects.cached_arrays import ShownAs, What
from tare.analysis.model import Effect, Key
from tare.report.figures.svg import legible
from tare.units import (
    format_number,
    format_percent,
    format_quantity,
    parameter_words,
    value_words,
)

EMULATED = "emulated"
"""The mark of results that show behaviour and relative instruction cost, not hardware speed."""

NONE = "–"

QUANTITY = re.compile(r"[±+−-]?\d[\d.,]* (?:%|[nµm]?s|min|h|[kMGT]?i?B)(?:/s)?(?!\w)")
"""A number with its unit. Lines never break inside it."""


class Part(NamedTuple):
    """What one section of the report is about: a workload with its parameters in a scenario."""

    scenario: str
    workload: str
    parameters: str
    role: str

    @staticmethod
    def of(key: Key) -> Part:
        """Return the part that ``key``'s metric belongs to."""
        return Part(key.scenario, key.workload, key.parameters, key.role)


class Names:
    """Short names of parts: the workload, plus only what distinguishes it from the others.

    Args:
        parts: All parts that are named.
        shown_as: Names for workloads whose own name does not describe what they measured.
        short: Whether to use the short form of these names, without sizes, as figures do.
    """

    def __init__(
        self,
        parts: Iterable[Part],
        shown_as: Mapping[What, ShownAs] | None = None,
        *,
        short: bool = False,
    ) -> None:
        self._shown_as, self._short = shown_as or {}, short
        parts = tuple(dict.fromkeys(parts))
        self._many_scenarios = len({part.scenario for part in parts}) > 1
        seen: dict[str, list[Mapping[str, object]]] = defaultdict(list)
        for part in parts:
            seen[part.workload].append(parameters_of(part.parameters))
        self._telling = {workload: _varying(given) for workload, given in seen.items()}
        self._known: dict[Part, str] = {}
        for part in parts:
            self.name(part)

    def name(self, part: Part) -> str:
        """Return a name such as ``switch threads=100`` or ``tick (pinned)``."""
        if part not in self._known:
            self._known[part] = self._made(part)
        return self._known[part]

    def metric(self, part: Part, metric: str) -> str:
        """Return a name with the metric it is about, such as ``switch/latency-max threads=100``."""
        return self.name(part).replace(
            legible(part.workload), f"{legible(part.workload)}/{legible(metric)}", 1
        )

    def _made(self, part: Part) -> str:
        given = parameters_of(part.parameters)
        telling = self._telling.get(part.workload, ())
        given_words = (f"{k}={value_words(given[k])}" for k in telling if k in given)
        words = [self._called(part), *given_words]
        if part.role != SUBJECT:
            words.append(f"as {part.role}")
        if self._many_scenarios:
            words.append(f"({part.scenario})")
        name = legible(" ".join(words))
        alike = list(self._known.values()).count(name)
        while alike and f"{name} no. {alike + 1}" in self._known.values():
            alike += 1
        # Some parts differ only inside their mappings, such as the metrics of a command.
        return f"{name} no. {alike + 1}" if alike else name

    def _called(self, part: Part) -> str:
        """Return the workload's name, or the name in ``shown_as`` if there is one."""
        named = self._shown_as.get((part.scenario, part.workload, part.parameters))
        if named is None:
            return part.workload
        return named.short if self._short else named.words


def parameters_of(text: str) -> Mapping[str, object]:
    """Return the parameters in canonical JSON ``text``; empty when it holds none."""
    try:
        found = json.loads(text)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def parameter_text(parameters: Mapping[str, object]) -> str:
    """Return parameters for reading. Those that are mappings are left out; the study has them."""
    return parameter_words({k: v for k, v in parameters.items() if not isinstance(v, dict)})


def _varying(given: Sequence[Mapping[str, object]]) -> tuple[str, ...]:
    names = sorted({name for parameters in given for name in parameters})
    return tuple(
        name for name in names if len({repr(parameters.get(name)) for parameters in given}) > 1
    )


def metric_name(metric: str) -> str:
    """Return a metric's name for reading: ``duration-p99.9`` becomes ``duration p99.9``."""
    return legible(metric.replace("-", " ").replace("_", " "))


def metric_of(effect: Effect) -> str:
    """Return an effect's workload and metric: ``tick/slowdown``."""
    return legible(f"{effect.key.workload}/{effect.key.metric}")


def short(text: str, most: int) -> str:
    """Return ``text`` cut to ``most`` characters, the cut shown by an ellipsis."""
    text = legible(text)
    return text if len(text) <= most else text[: most - 1].rstrip() + "…"


def ratio(value: float) -> str:
    """Return a ratio with as many digits as help: ``1.003×``, ``1.84×``, ``21.7×``, ``1,250×``."""
    if math.isnan(value):
        return NONE
    if math.isinf(value):
        return "∞" if value > 0 else "-∞"
    if value == 0:
        return "0×"
    if 0.9 <= value < 1.1:
        return f"{value:.3f}×"
    if value >= 1000:
        return f"{value:,.0f}×"
    if value < 0.01:
        return f"{format_number(value, 2)}×"
    return f"{float(f'{value:.3g}'):{_places(value)}}×"


def _places(value: float) -> str:
    digits = max(0, 2 - math.floor(math.log10(value)))
    return f".{digits}f"


def interval_text(low: str, high: str) -> str:
    """Return an interval's two ends as text."""
    return f"{low} to {high}"


def ratio_interval(interval: tuple[float, float] | None) -> str:
    """Return ``1.79 to 1.90``, or a dash if there is none."""
    if interval is None:
        return NONE
    return interval_text(ratio(interval[0]).rstrip("×"), ratio(interval[1]).rstrip("×"))


def difference_text(value: float, unit: str) -> str:
    """Return a difference with its sign, unlike a ratio: ``+10.4``, ``-3.10 µs``."""
    return f"{'+' if value > 0 else ''}{format_quantity(value, unit)}"


def probability(value: float | None) -> str:
    """Return a p- or q-value: ``0.0078``, ``0.31``, ``< 0.0001``."""
    if value is None:
        return NONE
    if value < 0.0001:
        return "< 0.0001"
    return f"{value:.2g}" if value < 0.995 else "1"


def percent(value: float) -> str:
    """Return a relative size as per cent with two digits that count: ``2 %``, ``0.35 %``."""
    return format_percent(value)


def cost(effect: Effect) -> float | None:
    """Return the factor by which the arm is worse (1 = even, 2 = twice the cost); None without."""
    overhead = effect.overhead
    return None if overhead is None or math.isnan(overhead) else 1 + overhead


def cost_interval(effect: Effect) -> tuple[float, float] | None:
    """Return the ends of the effect's interval as factors; None without an interval."""
    ends = effect.overhead_interval
    return None if ends is None else (1 + ends[0], 1 + ends[1])


def joined(names: Sequence[str]) -> str:
    """Return ``a``, ``a and b``, ``a, b and c``."""
    if len(names) < 2:
        return "".join(names)
    return f"{', '.join(names[:-1])} and {names[-1]}"


def first_names(names: Sequence[str], most: int) -> str:
    """Return ``a``, ``a and b``, ``a, b and 3 more``: no more than ``most`` names."""
    more = len(names) - most
    return joined([*names[:most], *([f"{more} more"] if more > 0 else [])])


def counted(number: int, noun: str) -> str:
    """Return ``1 block``, ``8 blocks``."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def marked(arm: str, emulated: bool) -> str:
    """Return the arm's name, followed by the mark of emulation if it is emulated."""
    return f"{legible(arm)} ({EMULATED})" if emulated else legible(arm)


def slug(text: str) -> str:
    """Return ``text`` as a file name and element id: lower-case letters, digits and hyphens."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")[:60] or "part"
