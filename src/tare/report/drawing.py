"""Draw figures: Vega-Lite to SVG for page and file, and from that PNG and PDF."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import vl_convert

from tare.report.figures.frame import Figure, Spec
from tare.report.svg import inline_svg

PIXELS_PER_UNIT = 2.0
"""PNG files are drawn at twice the SVG's size, for dense screens and print."""


@dataclass(frozen=True)
class Drawn:
    """A figure as the page holds it: ``wide`` and, where it differs, ``narrow`` inline SVG."""

    figure: Figure
    wide: str
    narrow: str | None
    files: tuple[str, ...]


def draw(figures: Sequence[Figure], folder: Path) -> dict[str, Drawn]:
    """Draw all ``figures``, write NAME.svg, NAME.png and NAME.pdf into ``folder``.

    Args:
        figures: What to draw; names must be unique.
        folder: Exists already.

    Returns:
        The drawn figures by name.
    """
    return {figure.name: _draw(figure, folder) for figure in figures}


def _draw(figure: Figure, folder: Path) -> Drawn:
    svg = _svg(figure.spec)
    contents = {
        "svg": svg.encode(),
        "png": vl_convert.svg_to_png(svg, scale=PIXELS_PER_UNIT),
        "pdf": vl_convert.svg_to_pdf(svg),
    }
    for extension, content in contents.items():
        (folder / f"{figure.name}.{extension}").write_bytes(content)
    narrow = None if figure.narrow is None else _svg(figure.narrow)
    return Drawn(
        figure=figure,
        wide=_inline(figure, svg, figure.name),
        narrow=None if narrow is None else _inline(figure, narrow, f"{figure.name}-narrow"),
        files=tuple(f"figures/{figure.name}.{extension}" for extension in contents),
    )


def _svg(spec: Spec) -> str:
    # An empty list of allowed addresses keeps the converter off the network whatever a spec says.
    return str(vl_convert.vegalite_to_svg(spec, allowed_base_urls=[]))


def _inline(figure: Figure, svg: str, name: str) -> str:
    return inline_svg(svg, name=name, title=figure.title, description=figure.description)
