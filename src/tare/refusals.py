"""Describe what a model found wrong with a value, in Tare's words instead of its library's."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

from pydantic_core import ErrorDetails

from tare.plaintext import plain

_TYPES = {
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "string": "text (in quotes when it looks like a number)",
    "path": "a path",
    "list": "a list, like [a, b]",
    "tuple": "a list, like [a, b]",
    "set": "a list, like [a, b]",
    "frozen": "a list, like [a, b]",
    "model": "keys with values, like {key: value}",
    "dict": "keys with values, like {key: value}",
}
_LETTERS = "letters and digits of ASCII"
FORMS: Mapping[str, str] = {
    r"^/": "a whole path, from / on",
    r"^[0-9a-f]{64}$": "a SHA-256: 64 characters, each of 0-9 or a-f",
    r"^[a-z0-9][a-z0-9._-]{0,39}$": "a short name (lower-case letters, digits, - _ .)",
    r"^[a-z0-9][a-z0-9-]*$": "a short name (lower-case letters, digits, -)",
    r"^[a-z][a-z0-9-]*$": "a short name (lower-case letters, digits, -), a letter first",
    r"^[a-z][a-z0-9.-]{0,39}$": "a short name (lower-case letters, digits, - .), a letter first",
    r"^[a-z0-9]{1,30}(-[a-z0-9]{1,30})?$": (
        "a hypervisor's word, or WORD-SCHEDULER (lower-case letters and digits), such as xen-credit"
    ),
    r"^[+-][a-z0-9][a-z0-9._-]*$": "+NAME or -NAME of a feature, such as +avx2",
    r"^[A-Za-z0-9][A-Za-z0-9._,+=-]*$": f"{_LETTERS} and . _ , + = -, a letter or digit first",
    r"^[A-Za-z0-9][A-Za-z0-9_.-]*$": f"{_LETTERS} and _ . -, a letter or digit first",
    r"^[A-Za-z0-9_+.][A-Za-z0-9_+.-]*$": f"{_LETTERS} and _ + . -, no - first",
    r"^[A-Za-z0-9_][A-Za-z0-9_./+-]*$": f"{_LETTERS} and _ . / + -, a letter, digit or _ first",
    r"^[A-Za-z0-9][A-Za-z0-9._-]*$": f"{_LETTERS} and . _ -, a letter or digit first",
    r"^[A-Za-z][A-Za-z0-9._-]*$": f"{_LETTERS} and . _ -, a letter first",
    r"^[a-z0-9][a-z0-9+.-]{1,99}$": (
        "a package's name (lower-case letters, digits, + . -), a letter or digit first"
    ),
    r"^[A-Za-z0-9.:_-]+$": "a server's name or address, without a scheme or a path",
    r"^[A-Za-z0-9.:_-]*$": "a server's name or address, without a scheme or a path; or empty",
    r"^(auto|/\S*)$": "auto, or a whole path, from / on",
    r"^(raw|security|limits|boot|linux|migration|nvidia|agent)\.[a-z][a-z0-9._-]*$": (
        "a key that begins with raw., security., limits., boot., linux., migration., nvidia. or "
        "agent."
    ),
    r"^(?:[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]|[A-Za-z0-9][A-Za-z0-9_.-]{0,14})$": (
        "an interface, such as ens1f0, or a PCI address, such as 0000:03:00.0"
    ),
    r"^qemu(\+unix)?:///\S*$": "a connection on the host itself, such as qemu:///system",
    r"^[A-Za-z][A-Za-z0-9._-]*:[^,\s]+$": "STORAGE:VOLUME, such as local:iso/tare.iso",
    r"^\d{4}-\d{2}-\d{2}$": "a day, like 2026-11-24",
    r"^[^-\x00-\x1f][^\x00-\x1f]*$": "one line of text that does not begin with -",
}
"""A description of each regular expression that a model's field requires."""
OTHER_KIND = "must be of another kind, as its description says, than {}"
OTHER_FORM = "must have another form, as its description says, than {}"


def closest(word: object, known: Iterable[str]) -> str:
    """Return the likely intended name, ignoring case; empty if no name is similar."""
    folded = {name.casefold(): name for name in known}
    close = difflib.get_close_matches(str(word)[:80].casefold(), folded, n=1, cutoff=0.6)
    return folded[close[0]] if close else ""


def suggestion(word: object, known: Iterable[str]) -> str:
    """Return ``; did you mean 'X'?``, or the list of known names."""
    names = sorted(known)
    if close := closest(word, names):
        return f"; did you mean {close!r}?"
    return f"; known: {', '.join(names)}" if names else ""


def shown(value: object) -> str:
    """Return a value as a user wrote it, shortened to 60 characters."""
    try:
        text = json.dumps(value, ensure_ascii=False, default=str)
    except (TypeError, ValueError):
        text = repr(value)
    text = plain(text)
    return text if len(text) <= 60 else f"{text[:57]}..."


def message_of(detail: ErrorDetails) -> str:
    """Return a validation error in Tare's words, with the value found."""
    kind, value, context = detail["type"], detail.get("input"), detail.get("ctx", {})
    if kind == "missing":
        return "is missing; add it"
    if kind in ("value_error", "assertion_error"):
        return str(context.get("error", detail["msg"]))
    if kind in ("literal_error", "enum"):
        return f"must be {context['expected']}, not {shown(value)}" + _close_choice(
            value, str(context["expected"])
        )
    family, _, problem = kind.partition("_")
    if problem in ("type", "parsing", "from_float", "set_type") and family in _TYPES:
        return f"must be {_TYPES[family]}, not {shown(value)}" + _as_share(family, value)
    bounds = {
        "greater_than_equal": ("at least", "ge"),
        "greater_than": ("more than", "gt"),
        "less_than_equal": ("at most", "le"),
        "less_than": ("less than", "lt"),
    }
    if kind in bounds:
        words, name = bounds[kind]
        return f"must be {words} {context[name]}, not {shown(value)}" + _share_of_percent(
            context, value
        )
    return _form(kind, context, value) or OTHER_KIND.format(shown(value))


def _as_share(family: str, value: object) -> str:
    """Return a hint that writes a percentage as the required number; empty for other values."""
    percentage = (
        re.fullmatch(r"\s*(\d+(?:\.\d*)?)\s*%\s*", value) if isinstance(value, str) else None
    )
    if family != "float" or percentage is None:
        return ""
    return f"; write it as a share, {float(percentage[1]) / 100:g}"


def _share_of_percent(context: Mapping[str, Any], value: object) -> str:
    """Return a hint with the share, if a share below 1 is required and the value is in percent."""
    most = context.get("lt", context.get("le", 2))
    if most > 1 or not isinstance(value, int | float) or not 1 < value < 100:
        return ""
    return f"; {value:g} % is {value / 100:g}"


def _form(kind: str, context: Mapping[str, Any], value: object) -> str:
    """Return an error about the length or the form of a value; a default if the kind is unknown."""
    match kind:
        case "string_too_short" | "too_short" if context["min_length"] == 1:
            return f"must not be empty, as {shown(value)} is"
        case "string_too_short":
            return f"must have {context['min_length']} characters or more, not {shown(value)}"
        case "string_too_long":
            return f"must have {context['max_length']} characters or fewer, not {shown(value)}"
        case "too_short":
            return f"must have {context['min_length']} entries or more, not {shown(value)}"
        case "too_long":
            return f"must have {context['max_length']} entries or fewer, not {shown(value)}"
        case "string_pattern_mismatch" if context["pattern"] in FORMS:
            return f"must be {FORMS[context['pattern']]}, not {shown(value)}"
        case "string_pattern_mismatch":
            return OTHER_FORM.format(shown(value))
        case "finite_number":
            return f"must be a finite number, not {shown(value)}"
        case "int_parsing_size":
            return f"must be a whole number of ordinary size, not {shown(value)}"
        case "extra_forbidden":
            return "is not known here; remove it"
        case "json_invalid":
            return "is not JSON"
        case "union_tag_invalid":
            return f"is of an unknown kind, {shown(context['tag'])}"
        case "union_tag_not_found":
            return "does not name its kind"
        case "string_unicode":
            return "must be text in Unicode"
        case _:
            return ""


def _close_choice(value: object, expected: str) -> str:
    choices = [part.strip("' ") for part in expected.replace(" or ", ", ").split(",")]
    close = closest(value, choices)
    return f"; did you mean {close!r}?" if close else ""
