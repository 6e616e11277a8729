"""Draw one figure after the other, in this process or in a second one beside it.

The converter needs half a second to start and holds the interpreter while it draws; on a computer
with a second core a report is done in little more than half the time with a helper process. Run as
``python -m tare.report.painter`` it answers each line of JSON on stdin with one on stdout, and
ends with its input.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any, TypedDict

from tare.outputs import put

PIXELS_PER_UNIT = 2.0
"""PNG files are drawn at twice the SVG's size, for dense screens and print."""

SVG = "svg"
"""What every figure is drawn as: the page holds it."""
EXTENSIONS = (SVG, "png", "pdf")
"""What figures can be drawn as. PNG and PDF take longer than all else of a report together."""


class Job(TypedDict):
    """A figure to paint: the files ``stem``.svg and so on, and SVG for the page."""

    stem: str
    spec: dict[str, Any]
    narrow: dict[str, Any] | None
    extensions: list[str]


def paint(job: Job) -> list[str]:
    """Write the figure's files and return its SVG, and that of its narrow dress if it has one.

    Raises:
        OSError: A file cannot be written.
        ValueError: The specification cannot be drawn.
    """
    import vl_convert

    def svg_of(spec: dict[str, Any]) -> str:
        # No allowed address keeps the converter off the network whatever a specification says.
        return str(vl_convert.vegalite_to_svg(spec, allowed_base_urls=[]))

    svg = svg_of(job["spec"])
    stem = job["stem"]
    put(Path(f"{stem}.svg"), svg)
    if "png" in job["extensions"]:
        put(Path(f"{stem}.png"), vl_convert.svg_to_png(svg, scale=PIXELS_PER_UNIT))
    if "pdf" in job["extensions"]:
        put(Path(f"{stem}.pdf"), vl_convert.svg_to_pdf(svg))
    return [svg] if job["narrow"] is None else [svg, svg_of(job["narrow"])]


def main() -> None:
    """Paint what stdin asks for until it ends."""
    for line in sys.stdin.buffer:
        answer = json.dumps(paint(json.loads(line)))
        sys.stdout.buffer.write(answer.encode() + b"\n")
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
