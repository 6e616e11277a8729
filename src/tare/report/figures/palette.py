"""Colours: one per role and arm, distinct for colour-blind readers, in a light and a dark theme.

Figures are drawn once, in the light colours. Every light colour is unique to its role, so that the
page can replace each by a CSS variable and follow the reader's colour scheme.

The arms' hues are those of Okabe and Ito, *Color Universal Design* (2008), darkened or lightened
for contrast, then the "muted" set of Paul Tol, *Colour Schemes* (2021).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

BASELINE_SHAPE = "square"


@dataclass(frozen=True)
class Ink:
    """One colour in the light and the dark theme; ``role`` names its CSS variable."""

    role: str
    light: str
    dark: str


PAPER = Ink("paper", "#fffffe", "#15181c")
TEXT = Ink("text", "#1d2127", "#e7e9ec")
SOFT = Ink("soft", "#5a626c", "#a3abb5")
RULE = Ink("rule", "#d8dce1", "#363c44")
AXIS = Ink("axis", "#9aa2ac", "#6b7480")
MARGIN = Ink("margin", "#e4e8ec", "#2a3037")
NOISE = Ink("noise", "#cfd5db", "#3b434c")
TIE = Ink("tie", "#868e98", "#8c949f")
BASELINE = Ink("baseline", "#464d57", "#c3c9d0")

ARMS = (
    Ink("arm-1", "#0072b2", "#56b0ea"),
    Ink("arm-2", "#c64f00", "#f08a4b"),
    Ink("arm-3", "#00805e", "#35c59b"),
    Ink("arm-4", "#b0578d", "#e29cc6"),
    Ink("arm-5", "#a87900", "#e8bd4a"),
    Ink("arm-6", "#332288", "#9d92e8"),
    Ink("arm-7", "#882255", "#d9759f"),
    Ink("arm-8", "#4f7f1f", "#a3cf6b"),
    Ink("arm-9", "#2b8fa3", "#74d4e6"),
    Ink("arm-10", "#8a5a2b", "#cfa276"),
    Ink("arm-11", "#6a3fb5", "#bd9cf5"),
)
HEAT = (
    Ink("heat-0", "#f3f5f7", "#20262d"),
    Ink("heat-1", "#fdebd3", "#3d3120"),
    Ink("heat-2", "#fbd09b", "#5a4322"),
    Ink("heat-3", "#f4a960", "#7d5320"),
    Ink("heat-4", "#e58442", "#9c5a1e"),
    Ink("heat-5", "#cf6430", "#b8551f"),
)
"""Colours from no slowdown to the worst; text on all of them is readable."""
SHAPES = ("circle", "diamond", "triangle-up", "triangle-down", "cross", "square")

INKS = (PAPER, TEXT, SOFT, RULE, AXIS, MARGIN, NOISE, TIE, BASELINE, *ARMS, *HEAT)


@dataclass(frozen=True)
class ArmStyle:
    """The style of one arm in every figure: its colour and, as a second sign, its shape."""

    ink: Ink
    shape: str


def looks(arms: Sequence[str], baseline: str | None) -> dict[str, ArmStyle]:
    """Return the style of each arm: neutral for the baseline, other hues in the study's order.

    After eleven arms the hues repeat with another shape.
    """
    given: dict[str, ArmStyle] = {}
    others = [arm for arm in arms if arm != baseline]
    for index, arm in enumerate(others):
        ink = ARMS[index % len(ARMS)]
        shape = SHAPES[(index + index // len(ARMS)) % (len(SHAPES) - 1)]
        given[arm] = ArmStyle(ink, shape)
    if baseline is not None:
        given[baseline] = ArmStyle(BASELINE, BASELINE_SHAPE)
    return given


def css_variables(dress: str) -> str:
    """Return the declarations ``--role: colour;`` of the ``light`` or ``dark`` theme."""
    return "".join(f"--{ink.role}:{getattr(ink, dress)};" for ink in INKS)


def variable_of_colour() -> Mapping[str, str]:
    """Return the CSS ``var(...)`` of each light colour, to replace colours in a drawn figure."""
    return {ink.light: f"var(--{ink.role})" for ink in INKS}
