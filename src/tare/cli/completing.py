"""Shell completion of a study's names and keys."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import typer

from tare.errors import TareError

ALONE = "alone"
"""The scenario of a study that names none."""


def arms(context: typer.Context, typed: str) -> list[str]:
    """Return the arms of the study that start with the last name typed."""
    return _listed(typed, _section(_data(context), "arms"))


def workloads(context: typer.Context, typed: str) -> list[str]:
    """Return the labels of the study's workloads that start with the last name typed."""
    return _listed(typed, _section(_data(context), "workloads"))


def scenarios(context: typer.Context, typed: str) -> list[str]:
    """Return the scenarios of the study that start with the last name typed."""
    return _listed(typed, _section(_data(context), "scenarios") or {ALONE: None})


def values(context: typer.Context, typed: str) -> list[str]:
    """Return the keys that `--set` may change, one level below what was typed."""
    if "=" in typed:
        return []
    data = _data(context)
    folder, _, begun = typed.rpartition(".")
    before = f"{folder}." if folder else ""
    found: dict[str, bool] = dict.fromkeys(_models(data, folder), False)
    here = _value_at(data, folder)
    if isinstance(here, Mapping):
        found |= {str(key): isinstance(value, Mapping) for key, value in here.items()}
    if not folder:
        found |= {"blocks": True, "shape": True, "lab": True}
    return [
        f"{before}{key}{'.' if deeper else '='}"
        for key, deeper in sorted(found.items())
        if key.startswith(begun)
    ]


def _listed(typed: str, names: Iterable[object]) -> list[str]:
    """Return the typed text completed with each name that is not already in its list."""
    before, comma, begun = typed.rpartition(",")
    taken = set(before.split(","))
    return [
        f"{before}{comma}{name}"
        for name in map(str, names)
        if name.startswith(begun) and name not in taken
    ]


def _data(context: typer.Context) -> Mapping[str, Any]:
    """Return the plain data of the study on the command line; empty if none can be read."""
    from tare.study.reading.shipped import find_study
    from tare.study.reading.yamltext import parse

    # While an option lacks its value, the parameters are unset and only `args` has the words.
    words = [word for word in context.args if not word.startswith("-")]
    given = context.params.get("study") or next(iter(words), None)
    if given is None:
        return {}
    try:
        path = find_study(Path(str(given)))
        return parse(path.read_bytes(), str(path)).data
    except (OSError, TareError):
        # Completion cannot show errors; the command itself does.
        return {}


def _section(data: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = data.get(name)
    return found if isinstance(found, Mapping) else {}


def _value_at(data: Mapping[str, Any], folder: str) -> Any:
    here: Any = data
    for part in folder.split(".") if folder else ():
        here = here.get(part) if isinstance(here, Mapping) else None
    return here


def _models(data: Mapping[str, Any], folder: str) -> Iterable[str]:
    """Return all keys that a part of a study may have, whether or not the file sets them."""
    from tare.registry import installed
    from tare.study.model.shape import Shape
    from tare.study.model.study import StudyFrame
    from tare.study.planning.blocks import Blocks
    from tare.study.reading.hosting import LabSpec
    from tare.study.reference.schema import kebab

    def options(name: str) -> Mapping[str, Any]:
        spec = _section(_section(data, "arms"), name)
        platform = installed().platforms.get(str(spec.get("platform")))
        return {} if platform is None else platform.options.model_fields

    def parameters(label: str) -> Mapping[str, Any]:
        spec = _section(_section(data, "workloads"), label)
        workload = installed().workloads.get(str(spec.get("workload", label)))
        return {} if workload is None else workload.parameters.model_fields

    parts = folder.split(".") if folder else []
    known: Mapping[tuple[str, ...], Callable[[], Mapping[str, Any]]] = {
        (): lambda: StudyFrame.model_fields,
        ("blocks",): lambda: Blocks.model_fields,
        ("shape",): lambda: Shape.model_fields,
        ("lab",): lambda: LabSpec.model_fields,
    }
    if found := known.get(tuple(parts)):
        return map(kebab, found())
    if len(parts) == 2 and parts[0] in ("arms", "workloads"):
        return map(kebab, (options if parts[0] == "arms" else parameters)(parts[1]))
    if len(parts) == 3 and parts[0] == "arms" and parts[2] == "shape":
        return map(kebab, Shape.model_fields)
    return ()
