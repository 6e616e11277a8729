"""Check plain data against models: unknown keys with suggestions, and errors people can act on."""

from __future__ import annotations

import json
import types
import typing
from collections.abc import Iterable, Mapping
from pathlib import Path as FilePath
from types import MappingProxyType
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from tare.refusals import closest as closest
from tare.refusals import message_of as message_of
from tare.refusals import shown as shown
from tare.refusals import suggestion as suggestion
from tare.study.reading.study_path import FOLDER
from tare.study.reading.yamltext import Path

M = TypeVar("M", bound=BaseModel)
SEQUENCES = (list, tuple, set, frozenset)


class Findings:
    """What is wrong so far: message, path in the file, and whether the key itself is meant."""

    def __init__(self) -> None:
        self.found: dict[tuple[Path, str], bool] = {}

    def add(self, path: Path, message: str, *, key: bool = False) -> None:
        """Note a problem; the same problem twice is one."""
        self.found.setdefault((path, message), key)

    def under(self, path: Path) -> bool:
        """Whether anything was found at or below ``path``."""
        return any(found[: len(path)] == path for found, _ in self.found)


class KeyStyle:
    """How keys and paths are written.

    Args:
        kebab: Whether keys are in kebab-case, as in a study file, or in snake_case, as in a stored
            study.
        folder: What the paths of a study file are relative to; None: they are whole.
    """

    def __init__(self, *, kebab: bool, folder: FilePath | None = None) -> None:
        self.kebab = kebab
        self.folder = folder

    def written(self, name: str) -> str:
        """Return the key a user writes for a model's field."""
        return name.replace("_", "-") if self.kebab else name


def known_keys(
    models: Iterable[type[BaseModel]],
    data: Mapping[str, Any],
    path: Path,
    style: KeyStyle,
    findings: Findings,
    *,
    without: Iterable[str] = (),
    instead: Mapping[str, str] = MappingProxyType({}),
) -> dict[str, Any]:
    """Return ``data`` with field names for keys, noting every key that no model has.

    Args:
        models: The models whose fields may stand side by side in this mapping.
        data: The mapping as written.
        path: Where it stands.
        style: How its keys are written.
        findings: Takes the problems.
        without: Fields that are not written by users.
        instead: Keys that are none though people write them, and what to write instead.
    """
    fields = {
        style.written(name): (name, info.annotation)
        for model in models
        for name, info in model.model_fields.items()
        if name not in without
    }
    result: dict[str, Any] = {}
    for key, value in data.items():
        if key not in fields:
            known = f"unknown key: {instead[key]}" if key in instead else _unknown(key, fields)
            findings.add((*path, key), known, key=True)
            continue
        name, annotation = fields[key]
        result[name] = _inner(annotation, value, (*path, key), style, findings)
    return result


def _unknown(key: str, known: Iterable[str]) -> str:
    begun, colon, _ = key.partition(":")
    if colon and begun in known:
        return f"write a space behind `{begun}:`"
    return "unknown key" + suggestion(key, known)


def _inner(annotation: Any, value: Any, path: Path, style: KeyStyle, findings: Findings) -> Any:
    model = model_in(annotation)
    if model is None:
        named = named_model_in(annotation)
        if named is None or not isinstance(value, Mapping):
            return value
        return {
            name: _inner(named, item, (*path, name), style, findings)
            for name, item in value.items()
        }
    if isinstance(value, Mapping):
        return known_keys([model], value, path, style, findings)
    if isinstance(value, list):
        return [
            _inner(annotation, item, (*path, index), style, findings)
            for index, item in enumerate(value)
        ]
    return value


def model_in(annotation: Any) -> type[BaseModel] | None:
    """Return the model that a field's type holds, however it is wrapped; None if it holds none."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    origin = typing.get_origin(annotation)
    if origin in (dict, Mapping):
        return None
    if origin in (typing.Union, types.UnionType, typing.Annotated, *SEQUENCES):
        return next(filter(None, map(model_in, typing.get_args(annotation))), None)
    return None


def named_model_in(annotation: Any) -> type[BaseModel] | None:
    """Return the model of the values where a field maps names of the user's to models."""
    if typing.get_origin(annotation) not in (dict, Mapping):
        return None
    return model_in(typing.get_args(annotation)[1])


def takes_list(model: type[BaseModel], name: str) -> bool:
    """Whether a field's own value is a list, so that a list is no grid of values."""
    return _is_sequence(model.model_fields[name].annotation)


def _is_sequence(annotation: Any) -> bool:
    origin = typing.get_origin(annotation) or annotation
    if origin in (typing.Union, types.UnionType, typing.Annotated):
        return any(map(_is_sequence, typing.get_args(annotation)))
    return origin in SEQUENCES


def checked(
    model: type[M], data: Mapping[str, Any], path: Path, style: KeyStyle, findings: Findings
) -> M | None:
    """Validate field names and plain values strictly; None when something was found."""
    try:
        return model.model_validate_json(
            json.dumps(data, default=str), strict=True, context={FOLDER: style.folder}
        )
    except ValidationError as error:
        for detail in error.errors(include_url=False):
            where = _written_path(detail["loc"], style)
            findings.add((*path, *where), message_of(detail))
        return None


def _written_path(loc: tuple[str | int, ...], style: KeyStyle) -> Path:
    # Of a mapping's key that is wrong, pydantic tells the key and this word.
    named = loc[:-1] if loc[-1:] == ("[key]",) else loc
    return tuple(style.written(part) if isinstance(part, str) else part for part in named)
