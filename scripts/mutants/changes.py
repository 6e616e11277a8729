"""The small mistakes that a program can be given: one operator, number or condition at a time."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

COMPARED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
}
COUNTED: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.Mult,
    ast.Pow: ast.Mult,
}
CALLED = {"min": "max", "max": "min", "any": "all", "all": "any"}


@dataclass(frozen=True)
class Change:
    """One mistake: the place, the text there, and its replacement.

    Args:
        path: The file.
        line: Its line, from 1 on.
        start: The offset of the old text in the file, in bytes.
        end: The offset of its end, in bytes.
        old: The old text.
        new: The new text.
    """

    path: Path
    line: int
    start: int
    end: int
    old: str
    new: str

    def __str__(self) -> str:
        one_line = (" ".join(text.split()) for text in (self.old, self.new))
        return f"{self.path}:{self.line}: `{'` -> `'.join(one_line)}`"

    def applied(self, source: bytes) -> bytes:
        """Return the file's bytes with the mistake."""
        return source[: self.start] + self.new.encode() + source[self.end :]


def changes_of(path: Path, source: bytes) -> list[Change]:
    """Return every mistake that this file can be given.

    Args:
        path: The file's name.
        source: Its bytes, of Python.
    """
    starts = [0]
    for line in source.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))

    def change(node: ast.expr, new: str) -> Change | None:
        if node.end_lineno is None or node.end_col_offset is None:
            return None
        start = starts[node.lineno - 1] + node.col_offset
        end = starts[node.end_lineno - 1] + node.end_col_offset
        return Change(path, node.lineno, start, end, source[start:end].decode(), new)

    made = (change(node, new) for node in _expressions(ast.parse(source)) for new in _wrong(node))
    return [each for each in made if each is not None]


def _expressions(node: ast.AST) -> Iterator[ast.expr]:
    """Yield the expressions that are evaluated when the program runs: neither types nor texts."""
    if isinstance(node, ast.expr):
        yield node
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns", "decorator_list", "type_params"):
            continue
        for child in value if isinstance(value, list) else [value]:
            # Before Python 3.12, nodes within an f-string have no positions.
            has_position = isinstance(child, ast.AST) and not isinstance(child, ast.JoinedStr)
            if has_position and not _is_for_types(child) and not _is_a_claim(child):
                yield from _expressions(child)


def _is_for_types(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"


def _is_a_claim(node: ast.AST) -> bool:
    """Return whether a node only asserts a fact: ``strict=True`` in ``zip(..., strict=True)``."""
    return isinstance(node, ast.keyword) and node.arg == "strict"


def _wrong(node: ast.expr) -> Iterator[str]:
    match node:
        case ast.Compare(left, [op, *more], others):
            yield _text(ast.Compare(left, [COMPARED[type(op)](), *more], others))
        case ast.BinOp(left, op, right) if type(op) in COUNTED and not _is_text(node):
            yield _text(ast.BinOp(left, COUNTED[type(op)](), right))
        case ast.BoolOp(op, values):
            yield _text(ast.BoolOp(ast.And() if isinstance(op, ast.Or) else ast.Or(), values))
        case ast.UnaryOp(ast.Not() | ast.USub(), operand):
            yield _text(operand)
        case ast.IfExp(test, body, orelse):
            yield _text(ast.IfExp(ast.UnaryOp(ast.Not(), test), body, orelse))
        case ast.Call(ast.Name(name), arguments, keywords) if name in CALLED:
            yield _text(ast.Call(ast.Name(CALLED[name]), arguments, keywords))
        case ast.Constant(bool(value)):
            yield str(not value)
        case ast.Constant(int(value)):
            yield str(value + 1)
        case ast.Constant(float(value)):
            yield repr(value * 1.5 + (value == 0))


def _is_text(node: ast.BinOp) -> bool:
    sides = (node.left, node.right)
    return any(
        isinstance(side, ast.JoinedStr)
        or (isinstance(side, ast.Constant) and isinstance(side.value, str))
        for side in sides
    )


def _text(node: ast.expr) -> str:
    return f"({ast.unparse(ast.fix_missing_locations(node))})"
