#!/usr/bin/env python3
"""Write the generated parts of ``tare help architecture``; ``make architecture`` runs it.

The generated parts are between the marks ``<!-- NAME -->`` and ``<!-- end -->``: the duty of each
folder, the import graph of the rooms, and the number of lines of the examples. The graph is also
drawn as docs/explanation/architecture.svg. A room is a folder or file directly below ``tare``.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterable, Mapping, Set
from html import escape
from itertools import pairwise
from pathlib import Path
from statistics import fmean

import grimp

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src" / "tare"
PAGE = ROOT / "docs" / "explanation" / "architecture.md"
PICTURE = ROOT / "docs" / "explanation" / "architecture.svg"
EXAMPLES = (
    "examples/tare-bubblewrap",
    "examples/tare-redis",
    "examples/tare-boot-times",
    "examples/tare-pressure",
)
BOX, PASS, GAP, ROW, BEND = (112, 34), 6, 24, 84, 30
"""Pixels: width and height of a box, width for an arrow that passes a row, space between two boxes,
distance from row to row, and length of an arrow's straight part before it bends."""
SWEEPS = 8
"""The number of times that rows are sorted; after that, nothing moves any more."""

Graph = Mapping[str, Set[str]]


def main() -> int:
    """Write the page's generated parts and the picture."""
    rooms = imports_of_rooms()
    PAGE.write_text(with_parts(PAGE.read_text(encoding="utf-8"), rooms), encoding="utf-8")
    PICTURE.write_text(picture(rooms), encoding="utf-8")
    print(PAGE, PICTURE, sep="\n")
    return 0


def with_parts(page: str, rooms: Graph) -> str:
    """Return the page with generated parts that match the current code."""
    parts = {
        "duties": duties(),
        "graph": f"```mermaid\n{mermaid(rooms)}\n```",
        "cost": f"```text\n{cost()}\n```",
    }
    for name, text in parts.items():
        before, mark, rest = page.partition(f"<!-- {name} -->\n")
        _, end, after = rest.partition("\n<!-- end -->")
        page = f"{before}{mark}{text}{end}{after}"
    return page


def duties() -> str:
    """Return a table of every folder with the first sentence of its docstring."""
    rows = ["| folder | its one duty |", "|---|---|"]
    for file in sorted(SOURCE.rglob("__init__.py")):
        if file.parent == SOURCE:
            continue
        text = ast.get_docstring(ast.parse(file.read_text(encoding="utf-8"))) or ""
        folder = file.parent.relative_to(SOURCE)
        sentence = " ".join(text.partition("\n\n")[0].split())
        rows.append(f"| `{folder}/` | {sentence.replace('|', '/')} |")
    return "\n".join(rows)


def imports_of_rooms() -> Graph:
    """Return the rooms that each room imports, including imports for types only."""
    graph = grimp.build_graph("tare", cache_dir=None)
    found: dict[str, set[str]] = defaultdict(set)
    for module in graph.modules - {"tare"}:
        room = module.split(".")[1]
        others = graph.find_modules_directly_imported_by(module) - {"tare"}
        found[room] |= {other.split(".")[1] for other in others} - {room}
    return {room: frozenset(found[room]) for room in sorted(found)}


def reduced(graph: Graph) -> list[tuple[str, str]]:
    """Return the imports that no chain of other imports implies, to keep the picture readable."""

    def beyond(node: str) -> Set[str]:
        return set(graph[node]).union(*(beyond(other) for other in graph[node]))

    return [
        (node, other)
        for node in graph
        for other in sorted(graph[node])
        if not any(other in beyond(between) for between in graph[node] - {other})
    ]


def mermaid(rooms: Graph) -> str:
    """Return the graph in mermaid's notation, importers above the rooms that they import."""
    lines = [f"    {room} --> {other}" for room, other in reduced(rooms)]
    return "\n".join(["flowchart TD", *lines])


def rows_of(rooms: Graph) -> list[list[str]]:
    """Return the rooms in rows from top to bottom: each above all rooms that it imports."""
    depth: dict[str, int] = {}

    def deep(room: str) -> int:
        if room not in depth:
            depth[room] = 1 + max((deep(other) for other in rooms[room]), default=-1)
        return depth[room]

    for room in rooms:
        deep(room)
    return [
        [room for room in rooms if depth[room] == level]
        for level in range(max(depth.values()), -1, -1)
    ]


def layout(rooms: Graph) -> tuple[list[list[str]], list[list[str]]]:
    """Return the rows of a picture in order, and the way of each arrow through them.

    An arrow has a place of its own in each row that it passes, so that it crosses no box. Each row
    is sorted by the mean position of neighbours, so that connected boxes are close.
    Source: K. Sugiyama et al., "Methods for visual understanding of hierarchical system
    structures", IEEE Trans. Syst. Man Cybern. 11 (1981).
    """
    rows = rows_of(rooms)
    level = {room: number for number, row in enumerate(rows) for room in row}
    ways: list[list[str]] = []
    for room, other in reduced(rooms):
        between = range(level[room] + 1, level[other])
        passed = [f"{room}>{other}@{number}" for number in between]
        for number, name in zip(between, passed, strict=True):
            rows[number].append(name)
        ways.append([room, *passed, other])
    neighbours: dict[str, set[str]] = defaultdict(set)
    for way in ways:
        for one, two in pairwise(way):
            neighbours[one].add(two)
            neighbours[two].add(one)
    for _ in range(SWEEPS):
        for row in (*rows, *reversed(rows)):
            at = places(rows)
            row.sort(key=lambda name: fmean([at[other][0] for other in neighbours[name]] or [0.0]))
    return rows, ways


def places(rows: list[list[str]]) -> dict[str, tuple[float, float]]:
    """Return the middle of each box, and of each place that an arrow passes, in pixels."""
    widths = [[BOX[0] if name.isidentifier() else PASS for name in row] for row in rows]
    spans = [sum(row) + GAP * (len(row) - 1) for row in widths]
    found: dict[str, tuple[float, float]] = {}
    for number, (row, each, span) in enumerate(zip(rows, widths, spans, strict=True)):
        left = GAP + (max(spans) - span) / 2
        for name, width in zip(row, each, strict=True):
            found[name] = (left + width / 2, GAP + number * ROW + BOX[1] / 2)
            left += width + GAP
    return found


def picture(rooms: Graph) -> str:
    """Return the graph as an SVG image."""
    rows, ways = layout(rooms)
    at = places(rows)
    width = max(x for x, _ in at.values()) + BOX[0] / 2 + GAP
    height = max(y for _, y in at.values()) + BOX[1] / 2 + GAP
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" '
            f'width="{width:g}" font-family="sans-serif" font-size="14">',
            "<title>Which room of Tare imports which</title>",
            '<defs><marker id="tip" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="7" '
            'markerHeight="7" orient="auto"><path d="M0 0 8 4 0 8z" fill="#777"/></marker></defs>',
            f'<rect width="{width:g}" height="{height:g}" fill="#fff"/>',
            *(_arrow([at[name] for name in way]) for way in ways),
            *(_box(room, *at[room]) for room in rooms),
            "</svg>\n",
        ]
    )


def _arrow(way: list[tuple[float, float]]) -> str:
    half = BOX[1] / 2
    path = f"M{way[0][0]:g} {way[0][1] + half:g}"
    for (x1, y1), (x2, y2) in pairwise(way):
        # From below one row to above the next, and straight down between boxes.
        start, end = y1 + half, y2 - half
        path += f"V{start:g}C{x1:g} {start + BEND:g} {x2:g} {end - BEND:g} {x2:g} {end:g}"
    return f'<path d="{path}" fill="none" stroke="#777" marker-end="url(#tip)"/>'


def _box(room: str, x: float, y: float) -> str:
    left, top = x - BOX[0] / 2, y - BOX[1] / 2
    return (
        f'<rect x="{left:g}" y="{top:g}" width="{BOX[0]}" height="{BOX[1]}" rx="5" '
        'fill="#eef3fa" stroke="#456"/>'
        f'<text x="{x:g}" y="{y + 5:g}" text-anchor="middle">{escape(room)}</text>'
    )


def cost() -> str:
    """Return the diff stat of the examples, as git shows it for a commit that adds them."""
    return "\n\n".join(_stat(example) for example in EXAMPLES)


def _stat(example: str) -> str:
    counts = {path: len(path.read_text().splitlines()) for path in _files(ROOT / example)}
    names = [str(path.relative_to(ROOT)) for path in counts]
    longest = max(map(len, names))
    lines = [
        f" {name:{longest}} | {count:3}" for name, count in zip(names, counts.values(), strict=True)
    ]
    total = sum(counts.values())
    return "\n".join([*lines, f" {len(lines)} files changed, {total} insertions(+)"])


def _files(folder: Path) -> Iterable[Path]:
    listed = subprocess.run(
        ["git", "ls-files", str(folder)], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return sorted(ROOT / name for name in listed.stdout.split())


if __name__ == "__main__":
    sys.exit(main())
