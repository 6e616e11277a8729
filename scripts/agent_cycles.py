#!/usr/bin/env python3
"""Fail if modules of the agent (``agent/src``) depend on each other in a cycle.

A module is a file. It depends on another one if a path in a ``use``, a type or an expression leads
there; tests count too. ``mod child;`` alone is not a dependency, but a path into the child is. A
parent that uses its child and a child that uses its parent are therefore a cycle. ``make lint``
runs this check.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Container, Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

SOURCE = Path(__file__).parent.parent / "agent" / "src"

Module = tuple[str, ...]
"""A module's path below the crate; the crate itself is empty."""

NOT_CODE = re.compile(
    r"""//[^\n]*
    | /\*.*?\*/
    | b?r(\#*)".*?"\1
    | b?"(?:\\.|[^"\\])*"
    | b?'(?:\\.[^']*|[^'\\])'
    """,
    re.VERBOSE | re.DOTALL,
)
BLOCK = re.compile(r"\bmod\s+(\w+)\s*\{")
CHILD = re.compile(r"\bmod\s+(\w+)\s*;")
USE = re.compile(r"\buse\s+([^;]+);")
PATH = re.compile(r"(?<![\w:])\w+(?:::\w+)+")
TOKEN = re.compile(r"\w+|::|[{},*]")


def main(source: Path = SOURCE) -> int:
    """Print the files of a cycle and return 1; return 0 if there is none."""
    files = modules(source)
    graph = {
        module: set(uses(module, path.read_text(encoding="utf-8"), files.keys()))
        for module, path in files.items()
    }
    cycle = find_cycle(graph)
    if cycle:
        print("modules of the agent depend on each other in a cycle:")
        print("\n".join(f"  {files[module]}" for module in cycle))
    return 1 if cycle else 0


def modules(source: Path) -> dict[Module, Path]:
    """Return the file of each module of the library in a source folder."""
    found: dict[Module, Path] = {}
    for path in sorted(source.rglob("*.rs")):
        parts = path.relative_to(source).with_suffix("").parts
        if parts == ("main",):
            continue
        found[parts[:-1] if parts[-1] in ("mod", "lib") else parts] = path
    return found


def find_cycle(graph: Mapping[Module, set[Module]]) -> list[Module]:
    """Return the modules of one cycle, ending with the first one again; empty if there is none."""
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        found: list[Module] = error.args[1]
        return found[::-1]
    return []


def uses(module: Module, text: str, known: Container[Module]) -> Iterator[Module]:
    """Yield each other module that a module depends on.

    Args:
        module: The module.
        text: Its source.
        known: All modules of the crate.
    """
    for target in _targets(module, NOT_CODE.sub(" ", text), known):
        while target and target not in known:
            target = target[:-1]
        if target != module:
            yield target


def _targets(module: Module, code: str, known: Container[Module]) -> Iterator[Module]:
    while block := BLOCK.search(code):
        end = block.end() + _length(code[block.end() :])
        yield from _targets((*module, block[1]), code[block.end() : end], known)
        code = code[: block.start()] + code[end:]
    names = {child: (*module, child) for child in CHILD.findall(code)}
    paths = []
    for tree in USE.findall(code):
        for path, name in leaves(TOKEN.findall(tree)):
            paths.append(path)
            target = resolve(path, module, names)
            if target is not None and target in known:
                names[name] = target
    paths += [tuple(path.split("::")) for path in PATH.findall(USE.sub(" ", code))]
    for path in paths:
        target = resolve(path, module, names)
        if target is not None:
            yield target


def _length(code: str) -> int:
    """Return the length of a block, given the code after its opening brace."""
    depth = 1
    for at, letter in enumerate(code):
        depth += (letter == "{") - (letter == "}")
        if depth == 0:
            return at
    return len(code)


def leaves(
    tokens: list[str], prefix: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield each path of a ``use`` tree, and the name that the ``use`` gives it.

    Args:
        tokens: The tree's tokens; the ones of the first tree are removed.
        prefix: The path before the tree.
    """
    path = prefix
    name = ""
    while tokens:
        token = tokens.pop(0)
        if token == "{":
            while tokens and tokens[0] != "}":
                yield from leaves(tokens, path)
                if tokens[:1] == [","]:
                    tokens.pop(0)
            del tokens[:1]
            return
        if token == "as":
            name = tokens.pop(0)
        elif token == "*":
            break
        elif token != "::":
            path = (*path, token)
        if tokens[:1] in ([","], ["}"]):
            break
    if path[-1:] == ("self",) and len(path) > 1:
        path = path[:-1]
    yield path, name or path[-1]


def resolve(path: tuple[str, ...], module: Module, names: Mapping[str, Module]) -> Module | None:
    """Return the path below the crate that a path leads to; None if it leads to another crate.

    Args:
        path: The path as written in the module.
        module: The module.
        names: The module's names for other modules: its children and its imports.
    """
    first, rest = path[0], path[1:]
    if first == "crate":
        return rest
    if first in ("self", "super"):
        at = module[:-1] if first == "super" else module
        while rest[:1] == ("super",):
            at, rest = at[:-1], rest[1:]
        return (*at, *rest)
    return (*names[first], *rest) if first in names else None


if __name__ == "__main__":
    sys.exit(main())
