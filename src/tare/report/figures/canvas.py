"""A canvas on which figures place marks by pixel coordinates."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Literal

from tare.report.figures.frame import Mark, Spec
from tare.report.figures.palette import PAPER, TEXT, Ink
from tare.report.figures.svg import TIP

Align = Literal["left", "center", "right"]


class Canvas:
    """Collects marks at pixel positions (origin top left) and returns them as one drawing."""

    def __init__(self, width: float) -> None:
        self.width = width
        self._marks: defaultdict[str, list[Mark]] = defaultdict(list)

    def rect(self, x: float, y: float, x2: float, y2: float, ink: Ink, *, to: str = "") -> None:
        """Fill a rectangle. On the page it links to the effect or block named by ``to``."""
        self._marks["rect"].append({"x": x, "y": y, "x2": x2, "y2": y2, "c": ink.light, "l": to})

    def area(self, x: float, y: float, x2: float, y2: float, to: str) -> None:
        """Make everything in a rectangle link to ``to``; nothing is drawn for it."""
        if to:
            self._marks["area"].append({"x": x, "y": y, "x2": x2, "y2": y2, "c": "", "l": to})

    def rule(
        self,
        x: float,
        y: float,
        x2: float,
        y2: float,
        ink: Ink,
        *,
        size: float = 1,
        dashed: bool = False,
        above: bool = False,
        opacity: float = 1,
    ) -> None:
        """Draw a straight line, below the symbols or ``above`` them."""
        layer = "rule-above" if above else "rule-dashed" if dashed else "rule"
        dash = "4,3" if dashed else ""
        self._marks[layer].append(
            {"x": x, "y": y, "x2": x2, "y2": y2, "c": ink.light, "w": size, "k": dash, "o": opacity}
        )

    def path(
        self,
        points: Sequence[tuple[float, float]],
        ink: Ink,
        *,
        size: float = 2,
        dash: str = "",
        to: str = "",
    ) -> None:
        """Draw straight lines from each of ``points`` to the next.

        Args:
            points: The points' pixel positions.
            ink: The colour.
            size: The line width in pixels.
            dash: Pixels drawn and left out in turn, such as ``5,3``; empty: a solid line.
            to: The link target on the page.
        """
        self._marks["path"].append({"p": points, "c": ink.light, "w": size, "k": dash, "l": to})

    def point(
        self,
        x: float,
        y: float,
        ink: Ink,
        shape: str,
        *,
        hollow: bool = False,
        size: float = 70,
        tip: str = "",
        line: float = 2,
        opacity: float = 1,
        to: str = "",
    ) -> None:
        """Draw a symbol of ``size`` square pixels, hollow for emulated arms.

        On the page it links to ``to``: an effect's name in links, or one block of an effect
        (`tare.report.page.links.block_target`).
        """
        fill = PAPER.light if hollow else ink.light
        self._marks["point"].append(
            {
                "x": x,
                "y": y,
                "c": ink.light,
                "f": fill,
                "s": shape,
                "z": size,
                "d": TIP + tip if tip else "",
                "l": to,
                "w": line,
                "o": opacity,
            }
        )

    def text(
        self,
        x: float,
        y: float,
        text: str,
        *,
        ink: Ink = TEXT,
        align: Align = "left",
        bold: bool = False,
        size: float = 12,
        upwards: bool = False,
    ) -> None:
        """Write ``text`` with its middle at ``y``, or ``upwards`` with its middle at ``x``."""
        self._marks["text"].append(
            {
                "x": x,
                "y": y,
                "t": text,
                "c": ink.light,
                "z": size,
                "a": align,
                "b": bold,
                "u": upwards,
            }
        )

    def spec(self, height: float) -> Spec:
        """Return the drawing of all marks, ``height`` pixels tall."""
        return Spec(self.width, height, dict(self._marks))
