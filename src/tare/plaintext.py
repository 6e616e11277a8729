"""Make text from outside safe to show: it cannot move a cursor, hide itself or change direction.

Escape sequences of terminals are removed completely (ECMA-48, section 5). Each of the following
characters is replaced by a mark: other control characters, characters that set the direction of
text (Unicode Standard Annex 9, section 2), invisible tags, and surrogates without a partner.
"""

from __future__ import annotations

import re
from typing import Any

MARK = "\N{REPLACEMENT CHARACTER}"
_PICTURES = 0x2400
"""The first of Unicode's pictures of the control characters below 32."""

_SEQUENCE = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]{0,64}[ -/]{0,16}[@-~]"
    r"|(?:\x1b[\]PX^_]|[\x90\x98\x9d-\x9f])[^\x07\x1b\x9c]{0,4096}(?:\x07|\x1b\\|\x9c)"
    r"|\x1b[ -/]{0,4}[0-Z\\^-~]"
)
_UNSAFE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff"
    "\ud800-\udfff\U000e0000-\U000e007f]"
)


def plain(text: str) -> str:
    """Return ``text`` in a form that is safe to show. Tabs and line ends remain."""
    if _UNSAFE.search(text) is None:
        return text
    text = _SEQUENCE.sub("", text).replace("\r\n", "\n")
    return _UNSAFE.sub(lambda found: _shown(ord(found[0])), text)


def steering(text: str) -> tuple[str, ...]:
    """Return the unsafe characters of a text in order, with repetitions."""
    return tuple(_UNSAFE.findall(text))


def plain_line(text: str, longest: int) -> str:
    """Return ``text`` as one line of at most ``longest`` characters."""
    line = " ".join(plain(text[: 2 * longest]).split())
    return line if len(line) <= longest else f"{line[: longest - 1]}…"


def plain_json(value: Any) -> Any:
    """Return a JSON value in which all text, including keys, is safe to show."""
    if isinstance(value, str):
        return plain(value)
    if isinstance(value, dict):
        return {plain(str(key)): plain_json(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [plain_json(inner) for inner in value]
    return value


def _shown(code: int) -> str:
    return chr(_PICTURES + code) if code < 32 else MARK
