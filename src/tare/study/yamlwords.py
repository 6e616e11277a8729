"""What people did when a file is no YAML, in their words instead of the parser's."""

from __future__ import annotations

import codecs
import re

import yaml

LOOKS_LIKE_A_SPACE = "\u00a0\u2002\u2003\u2007\u2009\u200b\u202f\u3000\ufeff"
UTF_16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
_MERGE = re.compile(r"^(?:<{7}|={7}|>{7})(?: |$)", re.MULTILINE)
_FENCE = re.compile(r"^(?:```|~~~)", re.MULTILINE)
_NO_SPACE = re.compile(rf"^ *[{LOOKS_LIKE_A_SPACE}]", re.MULTILINE)
_FINISHED = re.compile(r":(?:\s|$)")


def undecodable(content: bytes, error: UnicodeDecodeError) -> str:
    """Return why bytes are no text, and how to save them so that they are."""
    if content.startswith(UTF_16):
        return "no UTF-8 text but UTF-16; save the file as UTF-8"
    if b"\0" in content[:1024]:
        return "no UTF-8 text but binary; name a YAML file"
    return f"no UTF-8 text: byte 0x{content[error.start]:02x}; save the file as UTF-8"


def said_of(error: yaml.MarkedYAMLError, text: str) -> tuple[str, tuple[int, int] | None]:
    """Return what is wrong with a text that is no YAML, and the line and column, both from 1.

    Args:
        error: What the parser says.
        text: The whole text.
    """
    for pattern, words in (
        (_MERGE, "a mark of a merge that was not finished; keep one of both versions"),
        (_FENCE, "a fence of Markdown; keep only what stands between two of them"),
        (_NO_SPACE, "indented by what only looks like spaces; write spaces instead"),
    ):
        if found := pattern.search(text):
            return words, (text.count("\n", 0, found.start()) + 1, 1)
    mark, begin = error.problem_mark or error.context_mark, error.context_mark
    if mark is None:
        return error.problem or "cannot be understood", None
    here = mark.line + 1, mark.column + 1
    began = (begin.line + 1, begin.column + 1) if begin else here
    what, context = error.problem or "cannot be understood", error.context or ""
    if "\\t" in what:
        return "a tab; indent with spaces", here
    if "mapping values are not allowed" in what:
        return _second_colon(text, mark.line, mark.column), here
    if found := re.search(r"character '(.)' that cannot start", what):
        return f"text that begins with {found[1]!r} must stand in quotes", here
    if what.startswith("expected '<document start>'"):
        return "what stands above this is no `key: value`; write `: ` behind its key", here
    if "could not find expected ':'" in what:
        return "no `: ` follows this; write `key: value`", began
    if "quoted scalar" in context and "unexpected" in what:
        return "the text in quotes that begins here has no end", began
    if context.startswith("while parsing a flow"):
        bracket = "{" if "mapping" in context else "["
        where = f"in line {began[0]}, column {began[1]}"
        return f"the `{bracket}` {where} is not closed, or a comma is missing before this", here
    if what.startswith("expected <block end>") and here[1] != began[1]:
        lines = text.split("\n")
        above = next((n for n in range(mark.line, 0, -1) if lines[n - 1].strip()), began[0])
        column = len(lines[above - 1]) - len(lines[above - 1].lstrip()) + 1
        return (
            f"no line above is indented as this one: it begins in column {here[1]}, line {above} "
            f"in column {column}"
        ), here
    return f"{what} ({context})" if context else what, here


def _second_colon(text: str, line: int, column: int) -> str:
    lines = text.split("\n")
    before = lines[line][:column] if line < len(lines) else ""
    above = [
        number
        for number, content in enumerate(lines[:line], 1)
        if content.strip() and not content.lstrip().startswith("#")
    ]
    if _FINISHED.search(before) or not above:
        return "a second `:` in one line; quote the text, or begin a new line"
    last = above[-1]
    if _FINISHED.search(lines[last - 1]):
        return f"line {last} has a value already, so nothing may be indented below it"
    return f"line {last} is no `key: value`; write `: `, with the space, behind its key"
