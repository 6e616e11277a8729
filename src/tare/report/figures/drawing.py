"""Draw figures as SVG for page and file, and convert them to PNG and PDF on request."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from tare.errors import NotAvailable
from tare.outputs import put
from tare.report.figures.frame import Figure
from tare.report.figures.svg import inline_svg
from tare.report.figures.vector import svg_of

PIXELS_PER_UNIT = 2.0
"""The scale of PNG files: twice the SVG's size, for dense screens and print."""

SVG, PNG, PDF = "svg", "png", "pdf"
EXTENSIONS = (SVG, PNG, PDF)
"""The formats of figures. SVG is always drawn, because the page contains it."""


@dataclass(frozen=True)
class Drawn:
    """A figure in the page: ``wide`` inline SVG and, if it differs, ``narrow``."""

    figure: Figure
    wide: str
    narrow: str | None
    files: tuple[str, ...]


def require_converter(formats: Sequence[str]) -> None:
    """Check that figures can be drawn in all ``formats``.

    Args:
        formats: Formats out of `EXTENSIONS`.

    Raises:
        NotAvailable: A format needs vl-convert, which is not installed.
    """
    if {PNG, PDF}.intersection(formats) and find_spec("vl_convert") is None:
        raise NotAvailable(
            "figures as PNG and PDF need vl-convert, which is not installed",
            "pip install 'hypertare[figures]'",
        )


def draw(
    figures: Sequence[Figure], folder: Path, formats: Sequence[str] = (SVG,)
) -> dict[str, Drawn]:
    """Draw all ``figures``, and write NAME.svg and so on into ``folder``.

    Args:
        figures: The figures; their names must be unique.
        folder: The folder, which exists already.
        formats: The formats to draw, out of `EXTENSIONS`; SVG is always drawn.

    Returns:
        The drawn figures by name, in the order of ``figures``.

    Raises:
        OSError: A file cannot be written.
    """
    wanted = tuple(each for each in EXTENSIONS if each == SVG or each in formats)
    return {figure.name: _draw(figure, folder, wanted) for figure in figures}


def _draw(figure: Figure, folder: Path, formats: Sequence[str]) -> Drawn:
    svg, name = svg_of(figure.spec), figure.name
    put(folder / f"{name}.svg", svg)
    if PNG in formats or PDF in formats:
        # The import takes long, and most reports need neither format.
        import vl_convert

        if PNG in formats:
            put(folder / f"{name}.png", vl_convert.svg_to_png(svg, scale=PIXELS_PER_UNIT))
        if PDF in formats:
            put(folder / f"{name}.pdf", vl_convert.svg_to_pdf(svg))

    def inline(drawing: str, id_: str) -> str:
        return inline_svg(drawing, name=id_, title=figure.title, description=figure.description)

    return Drawn(
        figure=figure,
        wide=inline(svg, name),
        narrow=inline(svg_of(figure.narrow), f"{name}-narrow") if figure.narrow else None,
        files=tuple(f"figures/{name}.{extension}" for extension in formats),
    )
