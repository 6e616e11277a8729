"""The syntax of xl.cfg(5): names with numbers, strings and lists; nothing in it is ever run.

Source: xen's tools/libs/util/libxlu_cfg_l.l and libxlu_cfg_y.y.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

Value = str | list["Value"]
_TOKEN = re.compile(
    r"""(?P<space>[ \t\r]+|\\\n|\#[^\n]*)
    |(?P<end>[\n;])
    |(?P<name>[A-Za-z_][A-Za-z0-9_.-]*)
    |(?P<number>[+-]?(?:0[xX][0-9A-Fa-f]+|[0-9]+))
    |(?P<string>'[^'\n]*'|"[^"\n]*"|'''.*?'''|\"\"\".*?\"\"\")
    |(?P<sign>\+=|[=\[\],()])""",
    re.VERBOSE | re.DOTALL,
)
_DEEPEST = 20


@dataclass(frozen=True)
class _Token:
    kind: str
    text: str
    line: int


def parse_settings(text: str) -> dict[str, Value]:
    """Return the settings of a guest's file, by their names.

    Raises:
        ValueError: It is not such a file; names the line.
    """
    return _Parser(_tokens(text)).settings()


def _tokens(text: str) -> list[_Token]:
    tokens: list[_Token] = []
    place, line = 0, 1
    while place < len(text):
        found = _TOKEN.match(text, place)
        if found is None:
            raise ValueError(f"line {line} is not `name = value` of xl.cfg")
        kind = str(found.lastgroup)
        if kind != "space":
            tokens.append(_Token(kind, found[0], line))
        line += found[0].count("\n")
        place = found.end()
    return tokens


class _Parser:
    def __init__(self, tokens: list[_Token]) -> None:
        self._tokens = tokens
        self._place = 0

    def settings(self) -> dict[str, Value]:
        """Return all settings."""
        said: dict[str, Value] = {}
        while (token := self._next()) is not None:
            if token.kind == "end":
                continue
            sign = self._next()
            if token.kind != "name" or sign is None or sign.text not in ("=", "+="):
                raise ValueError(f"line {token.line} is not `name = value` of xl.cfg")
            value = self._value(token.line, 0)
            held = said.get(token.text)
            if sign.text == "+=" and held is not None:
                value = _joined(held, value)
            said[token.text] = value
            end = self._next()
            if end is not None and end.kind != "end":
                raise ValueError(f"line {end.line}: only one value for `{token.text}`")
        return said

    def _next(self) -> _Token | None:
        if self._place >= len(self._tokens):
            return None
        self._place += 1
        return self._tokens[self._place - 1]

    def _value(self, line: int, depth: int) -> Value:
        token = self._next()
        if token is None or depth > _DEEPEST:
            raise ValueError(f"line {line} has no value")
        if token.kind == "string":
            quotes = 3 if token.text[:3] in ("'''", '"""') and len(token.text) >= 6 else 1
            return token.text[quotes:-quotes]
        if token.kind in ("number", "name"):
            return token.text
        if token.text not in ("[", "("):
            raise ValueError(f"line {token.line} has no value that xl.cfg knows")
        return self._list(token, depth)

    def _list(self, opened: _Token, depth: int) -> Value:
        values: list[Value] = []
        closing = {"[": "]", "(": ")"}[opened.text]
        while self._place < len(self._tokens):
            token = self._tokens[self._place]
            if token.kind == "end" or token.text == ",":
                self._place += 1
            elif token.text == closing:
                self._place += 1
                return values
            else:
                values.append(self._value(opened.line, depth + 1))
        raise ValueError(f"line {opened.line}: the list does not end")


def _joined(held: Value, more: Value) -> Value:
    if isinstance(held, list):
        return [*held, *(more if isinstance(more, list) else [more])]
    return held + more if isinstance(more, str) else more
