"""Files of gates: a list of them, or gates together with floors by metric."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from tare.analysis.runs.gates import WRITE, Gate, parse_gate
from tare.errors import InputError

_FLOOR = "write a floor as a number in the metric's unit, as `1 %`, or as a list of both"


class Floor(NamedTuple):
    """A change that never matters: in the metric's unit, and as a share of the arm's value."""

    floor: float = 0.0
    share: float = 0.0


def read_gates(path: Path) -> tuple[Gate, ...]:
    """Return the gates of a YAML file.

    The file holds a list of texts or of ``{gate: TEXT, floor: FLOOR}``. Or it holds such a list as
    ``gates`` and ``floors`` by metric, which apply to gates without a floor of their own.

    Args:
        path: The file.

    Raises:
        InputError: It cannot be read, or an entry is not a gate; the message names the entry.
    """
    try:
        given = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, ValueError, yaml.YAMLError) as error:
        raise InputError(
            f"{path}{_reason(error)}", "name a YAML file with a list of gates"
        ) from None
    floors: Mapping[str, Floor] = {}
    if isinstance(given, dict) and set(given) <= {"gates", "floors"}:
        floors = _floors(path, given.get("floors") or {})
        given = given.get("gates")
    if not isinstance(given, list) or not given:
        raise InputError(f"{path}: no list of gates", f"begin each line with `- `; {WRITE}")
    return tuple(_entry(path, number, entry, floors) for number, entry in enumerate(given, 1))


def _reason(error: Exception) -> str:
    """Return the position in a file, if it is known, and why the file cannot be read."""
    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark is not None:
        mark = error.problem_mark
        return f":{mark.line + 1}:{mark.column + 1}: {error.problem}"
    return f": {(isinstance(error, OSError) and error.strerror) or error}"


def with_floors(gates: Sequence[Gate], texts: Sequence[str]) -> tuple[Gate, ...]:
    """Return gates with the floors of a command line; a floor in a file's entry has precedence.

    Args:
        gates: All gates of a call.
        texts: ``METRIC=FLOOR`` each: a number in the metric's unit, or a share such as ``1 %``. A
            metric may have one of each kind; both count.

    Raises:
        InputError: A text is not a floor, or no gate is about its metric.
    """
    floors: dict[str, Floor] = {}
    for text in texts:
        metric, sign, given = text.partition("=")
        where = f"--floor {text}"
        if not sign or metric.strip() not in {gate.metric for gate in gates}:
            about = ", ".join(sorted({gate.metric for gate in gates}))
            raise InputError(
                f"{where}: no gate is about {metric.strip()!r}",
                f"write METRIC=FLOOR, such as `--floor '{about.split(', ')[0]}=1 %'`; the gates "
                f"are about {about}",
            )
        found = _floor(where, given.strip())
        known = floors.get(metric.strip(), Floor())
        floors[metric.strip()] = Floor(found.floor or known.floor, found.share or known.share)
    return tuple(
        gate
        if gate.floor or gate.share or gate.metric not in floors
        else replace(gate, floor=floors[gate.metric].floor, share=floors[gate.metric].share)
        for gate in gates
    )


def _floors(path: Path, given: Any) -> dict[str, Floor]:
    if not isinstance(given, dict) or not all(isinstance(name, str) for name in given):
        raise InputError(f"{path}: floors: no metrics by name", _FLOOR)
    return {name: _floor(f"{path}: floors: {name}", value) for name, value in given.items()}


def _entry(path: Path, number: int, entry: Any, floors: Mapping[str, Floor]) -> Gate:
    where = f"{path}: entry {number}"
    known = isinstance(entry, dict) and set(entry) <= {"gate", "floor"}
    text = entry.get("gate") if known else entry
    if not isinstance(text, str):
        raise InputError(f"{where} is not a gate", f"{WRITE}; or {{gate: TEXT, floor: FLOOR}}")
    own = _floor(where, entry["floor"]) if known and "floor" in entry else None
    try:
        gate = parse_gate(text)
    except InputError as error:
        raise InputError(f"{where}: {error.message}", WRITE) from None
    floor = own or floors.get(gate.metric, Floor())
    return replace(gate, floor=floor.floor, share=floor.share)


def _floor(where: str, given: Any) -> Floor:
    parts = given if isinstance(given, list) else [given]
    found = Floor()
    for part in parts:
        if isinstance(part, str) and part.endswith("%"):
            found = found._replace(share=_number(where, part.removesuffix("%")) / 100)
        else:
            found = found._replace(floor=_number(where, part))
    return found


def _number(where: str, given: Any) -> float:
    try:
        number = math.nan if isinstance(given, bool) else float(given)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not 0 <= number < math.inf:
        raise InputError(f"{where}: {given!r} is not a floor", _FLOOR)
    return number
