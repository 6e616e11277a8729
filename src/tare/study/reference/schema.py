"""The JSON Schema of a study file, with every platform and workload typed, for editors."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from pydantic import BaseModel

from tare.study.model.scenario import Scenario
from tare.study.model.study import ArmFrame, Catalog, StudyFrame, WorkloadSpec
from tare.study.reading.checking import takes_list

Schema = dict[str, Any]
_NAMES = {"pattern": "^[a-z0-9][a-z0-9._-]{0,39}$"}


def properties_of(model: type[BaseModel], without: Iterable[str] = ()) -> dict[str, Schema]:
    """Return the schema of each field of ``model`` by its kebab-case key, references resolved.

    Args:
        model: A model of parts, options or parameters.
        without: Fields that users do not write.
    """
    whole = model.model_json_schema()
    # If words are allowed instead of the mapping, the mapping is one of several forms.
    inner = next((each for each in whole.get("anyOf", ()) if "properties" in each), whole)
    return {
        kebab(name): _resolved(schema, whole.get("$defs", {}))
        for name, schema in inner.get("properties", {}).items()
        if name not in without
    }


def required_of(model: type[BaseModel], without: Iterable[str] = ()) -> list[str]:
    """Return the kebab-case keys that have no default."""
    return [
        kebab(name)
        for name, info in model.model_fields.items()
        if info.is_required() and name not in without
    ]


def kebab(name: str) -> str:
    """Return a field's name as the key in a study file."""
    return name.replace("_", "-")


def _resolved(schema: Any, definitions: Mapping[str, Any]) -> Any:
    """Put definitions in place of references, name keys in kebab-case, and drop titles."""
    if isinstance(schema, list):
        return [_resolved(item, definitions) for item in schema]
    if not isinstance(schema, dict):
        return schema
    reference = schema.get("$ref")
    if isinstance(reference, str):
        target = definitions[reference.rsplit("/", 1)[-1]]
        rest = {key: value for key, value in schema.items() if key != "$ref"}
        return _resolved({**target, **rest}, definitions)
    result = {key: _resolved(value, definitions) for key, value in schema.items() if key != "title"}
    if isinstance(schema.get("properties"), dict):
        result["properties"] = {
            kebab(name): _resolved(value, definitions)
            for name, value in schema["properties"].items()
        }
        result["required"] = [kebab(name) for name in schema.get("required", ())]
    return result


def study_schema(catalog: Catalog) -> Schema:
    """Return the JSON Schema (draft 07) of a study file.

    Args:
        catalog: The available platforms and workloads.
    """
    scenario = _mapping(properties_of(Scenario), optional=True)
    load = scenario["properties"]["neighbours"]["items"]["properties"]["load"]
    load["enum"] = sorted(catalog.workloads)
    properties = properties_of(StudyFrame)
    properties["arms"] = {
        "description": "The arms to compare: one platform with its options per name.",
        "type": "object",
        "minProperties": 1,
        "propertyNames": _NAMES,
        "additionalProperties": _arm(catalog),
    }
    properties["scenarios"] = {
        "description": "The conditions of the measurement. Default: `alone`, unpinned.",
        "type": "object",
        "minProperties": 1,
        "propertyNames": _NAMES,
        "additionalProperties": scenario,
    }
    properties["workloads"] = _workloads(catalog)
    return {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "A study of Tare",
        "definitions": {"workload": _named_workload(catalog)},
        **_mapping(properties, [*required_of(StudyFrame), "arms", "workloads"]),
    }


def _mapping(
    properties: Mapping[str, Schema], required: Iterable[str] = (), *, optional: bool = False
) -> Schema:
    schema: Schema = {
        "type": ["object", "null"] if optional else "object",
        "properties": dict(properties),
        "additionalProperties": False,
    }
    needed = list(required)
    return {**schema, "required": needed} if needed else schema


def _arm(catalog: Catalog) -> Schema:
    common = properties_of(ArmFrame)
    common["platform"]["enum"] = sorted(catalog.platforms)
    # An arm's shape overrides part of the study's, so nothing in it is required.
    return {
        "type": "object",
        "anyOf": [{"required": ["platform"]}, {"required": ["twin-of"]}],
        "properties": common,
        "allOf": [
            _conditional("platform", name, {**properties_of(model), **dict.fromkeys(common, True)})
            for name, model in sorted(catalog.platforms.items())
        ],
    }


def _conditional(key: str, name: str, properties: Mapping[str, Any]) -> Schema:
    return {
        "if": {"properties": {key: {"const": name}}, "required": [key]},
        "then": {"properties": dict(properties), "additionalProperties": False},
    }


def _workloads(catalog: Catalog) -> Schema:
    """Return the schema of workloads: a label that is not a workload's name needs ``workload``."""
    named = {"$ref": "#/definitions/workload"}
    common = properties_of(WorkloadSpec, ["points"])
    return {
        "description": "The workloads to measure; each key is a label.",
        "type": "object",
        "minProperties": 1,
        "propertyNames": _NAMES,
        "properties": {
            name: {
                "description": catalog.summaries.get(f"workload/{name}", ""),
                "if": {"type": "object", "required": ["workload"]},
                "then": named,
                "else": _mapping({**_parameters(model), **common}, optional=True),
            }
            for name, model in _measured(catalog).items()
        },
        "additionalProperties": named,
    }


def _measured(catalog: Catalog) -> dict[str, type[BaseModel]]:
    """Return the workloads that can be measured themselves, in the order of their names."""
    return {
        name: model
        for name, model in sorted(catalog.workloads.items())
        if name not in catalog.neighbours_only
    }


def _named_workload(catalog: Catalog) -> Schema:
    common = properties_of(WorkloadSpec, ["points"])
    common["workload"]["enum"] = list(_measured(catalog))
    return {
        "type": "object",
        "required": ["workload"],
        "properties": common,
        "allOf": [
            _conditional("workload", name, {**_parameters(model), **dict.fromkeys(common, True)})
            for name, model in _measured(catalog).items()
        ],
    }


def _parameters(model: type[BaseModel]) -> dict[str, Schema]:
    fields = {kebab(name): name for name in model.model_fields}
    return {
        key: schema if takes_list(model, fields[key]) else _allow_list(schema)
        for key, schema in properties_of(model).items()
    }


def _allow_list(schema: Schema) -> Schema:
    outer: Schema = {key: schema[key] for key in ("description", "default") if key in schema}
    inner = {key: value for key, value in schema.items() if key not in outer}
    return {**outer, "anyOf": [inner, {"type": "array", "minItems": 1, "items": inner}]}
