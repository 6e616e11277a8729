"""Remove facts about a host and its owner that do not belong in a certificate.

Events are filtered by a list of wanted fields, and not by a list of unwanted ones. Texts in them,
such as reasons, are searched for the names, addresses and secrets that Tare was given.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any, Literal, get_args, get_origin

from tare.study.model.platform_options import PlatformOptions

HIDDEN = "(hidden)"
NAMED = "(named)"
_SHORT = 8
LEAST = 3
"""The shortest text that is removed, in characters: removing shorter ones would damage words."""
WANTED: Mapping[str, tuple[str, ...]] = {
    "run_started": ("version", "versions"),
    "platform_checked": ("arm", "platform", "usable", "reason", "emulated", "versions"),
    "skipped": ("arm", "scenario", "workload", "reason"),
    "planned": ("blocks_most", "cells_per_block"),
    "block_finished": ("block",),
    "cell_finished": ("cell", "status", "reason", "warnings"),
    "run_finished": ("status", "reason", "cells"),
}
"""The fields of each event that are included."""
FIGURE = ("cell", "role", "metric", "unit", "better", "kind", "value")
_VERSIONS = frozenset({"versions", "build", "tare"})
_SECRET = re.compile(r"PASS|TOKEN|SECRET|KEY|CREDENTIAL", re.IGNORECASE)
_ADDRESS = re.compile(
    r"\b\d{1,3}(?:\.\d{1,3}){3}\b"
    r"|\b(?:[0-9a-f]{0,4}:){3,7}[0-9a-f]{1,4}\b"
    r"|\b[\w.+-]+@[\w-]+(?:\.[\w-]+)+\b",
    re.IGNORECASE,
)
"""Matches addresses of IPv4, IPv6, network cards and mail."""


def plain_options(options: PlatformOptions) -> dict[str, Any]:
    """Return options without names; numbers, switches and words from fixed lists are kept."""
    kept: dict[str, Any] = {}
    for name, value in options.model_dump(mode="json", exclude_defaults=True).items():
        field = type(options).model_fields[name]
        kept[name.replace("_", "-")] = value if _is_harmless(value, field.annotation) else NAMED
    return kept


def _is_harmless(value: object, annotation: Any) -> bool:
    return not isinstance(value, (str, dict, list)) or value in _words_of(annotation)


def _words_of(annotation: Any) -> tuple[Any, ...]:
    if get_origin(annotation) is Literal:
        return get_args(annotation)
    return tuple(word for part in get_args(annotation) for word in _words_of(part))


def texts_to_hide(
    options: PlatformOptions, environment: Mapping[str, str], names: Iterable[str]
) -> tuple[str, ...]:
    """Return the texts that a certificate must not contain, the longest first.

    Args:
        options: The platform's options; their names and paths are included.
        environment: The variables of Tare's process; those that may be secrets are included.
        names: The host's names, the user's, and folders.
    """
    shown = plain_options(options)
    given = options.model_dump(mode="json", exclude_defaults=True)
    texts = [
        text
        for name, value in given.items()
        if shown[name.replace("_", "-")] == NAMED
        for text in _texts(value)
    ]
    texts += [value for name, value in environment.items() if _SECRET.search(name)]
    found = {text for text in (*texts, *names) if len(text) >= LEAST}
    return tuple(sorted(found, key=lambda text: (-len(text), text)))


def _texts(value: object) -> Iterable[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for each in value.values():
            yield from _texts(each)
    elif isinstance(value, list):
        for each in value:
            yield from _texts(each)


def hidden(value: Any, secrets: Iterable[str], *, addresses: bool = True) -> Any:
    """Return plain data with every secret replaced.

    Args:
        value: The data.
        secrets: The texts to replace, the longest first.
        addresses: Whether to replace addresses too; versions may look like addresses.
    """
    listed = tuple(secrets)
    if isinstance(value, str):
        for secret in listed:
            value = _pattern(secret).sub(HIDDEN, value)
        return _ADDRESS.sub(HIDDEN, value) if addresses else value
    if isinstance(value, Mapping):
        return {
            hidden(str(key), listed, addresses=addresses): hidden(
                each, listed, addresses=addresses and key not in _VERSIONS
            )
            for key, each in value.items()
        }
    if isinstance(value, (list, tuple)):
        return [hidden(each, listed, addresses=addresses) for each in value]
    return value


@cache
def _pattern(secret: str) -> re.Pattern[str]:
    # A short name, such as a user's, may be a part of ordinary words, which reveal nothing.
    whole = len(secret) < _SHORT and secret.isalnum()
    words = re.escape(secret)
    return re.compile(rf"(?<![^\W_]){words}(?![^\W_])" if whole else words)


def wanted_events(
    events: Iterable[Mapping[str, Any]], *, figures: bool
) -> tuple[dict[str, Any], ...]:
    """Return the parts of a run's events that a certificate contains.

    Args:
        events: The events as plain data.
        figures: Whether to include observed values.
    """
    fields = {**WANTED, **({"observation": FIGURE} if figures else {})}
    return tuple(
        {
            "type": each["type"],
            **{name: each[name] for name in fields[each["type"]] if name in each},
        }
        for each in events
        if each.get("type") in fields
    )
