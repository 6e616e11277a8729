"""Checks of plain data against models: suggestions for unknown keys, and actionable errors."""

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
from tare.study.model.forms import FOLDER
from tare.study.reading.yamltext import Path

M = TypeVar("M", bound=BaseModel)
SEQUENCES = (list, tuple, set, frozenset)


class StudyErrors:
    """The errors so far: message, path in the file, and whether the key itself is meant."""

    def __init__(self) -> None:
        self.found: dict[tuple[Path, str], bool] = {}

    def add(self, path: Path, message: str, *, key: bool = False) -> None:
        """Add a problem; duplicates count once."""
        self.found.setdefault((path, message), key)

    def under(self, path: Path) -> bool:
        """Return whether there is a problem at or below ``path``."""
        return any(found[: len(path)] == path for found, _ in self.found)


class KeyStyle:
    """The spelling of keys and paths.

    Args:
        kebab: Keys are in kebab-case, as in a study file, not in snake_case, as in a stored study.
        folder: The folder that paths of a study file are relative to; None if paths are absolute.
    """

    def __init__(self, *, kebab: bool, folder: FilePath | None = None) -> None:
        self.kebab = kebab
        self.folder = folder

    def written(self, name: str) -> str:
        """Return the key that a user writes for a model's field."""
        return name.replace("_", "-") if self.kebab else name


def known_keys(
    models: Iterable[type[BaseModel]],
    data: Mapping[str, Any],
    path: Path,
    style: KeyStyle,
    findings: StudyErrors,
    *,
    without: Iterable[str] = (),
    instead: Mapping[str, str] = MappingProxyType({}),
) -> dict[str, Any]:
    """Return ``data`` with field names for keys, and report every key that no model has.

    Args:
        models: The models whose fields may occur together in this mapping.
        data: The mapping as written.
        path: Its place.
        style: The spelling of its keys.
        findings: Collects the problems.
        without: Fields that users do not write.
        instead: Words that users write though they are not keys, each with the correction.
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
        return f"write a space after `{begun}:`"
    return "unknown key" + suggestion(key, known)


def _inner(annotation: Any, value: Any, path: Path, style: KeyStyle, findings: StudyErrors) -> Any:
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
    """Return the model in a field's type, however it is wrapped, or None."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    origin = typing.get_origin(annotation)
    if origin in (dict, Mapping):
        return None
    if origin in (typing.Union, types.UnionType, typing.Annotated, *SEQUENCES):
        return next(filter(None, map(model_in, typing.get_args(annotation))), None)
    return None


def named_model_in(annotation: Any) -> type[BaseModel] | None:
    """Return the model of the values if a field maps the user's names to models, or None."""
    if typing.get_origin(annotation) not in (dict, Mapping):
        return None
    return model_in(typing.get_args(annotation)[1])


def takes_list(model: type[BaseModel], name: str) -> bool:
    """Return whether a field's own value is a list, so that a list is not a grid of values."""
    return _is_sequence(model.model_fields[name].annotation)


def _is_sequence(annotation: Any) -> bool:
    origin = typing.get_origin(annotation) or annotation
    if origin in (typing.Union, types.UnionType, typing.Annotated):
        return any(map(_is_sequence, typing.get_args(annotation)))
    return origin in SEQUENCES


def checked(
    model: type[M], data: Mapping[str, Any], path: Path, style: KeyStyle, findings: StudyErrors
) -> M | None:
    """Validate field names and plain values strictly; return None if there are problems."""
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
    # For an invalid key of a mapping, pydantic reports the key and then this word.
    named = loc[:-1] if loc[-1:] == ("[key]",) else loc
    return tuple(style.written(part) if isinstance(part, str) else part for part in named)
