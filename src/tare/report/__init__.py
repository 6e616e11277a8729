"""Pages, tables and figures, which do not depend on how the data was made.

The parts are imported on first use, because a table on a terminal needs no figures.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tare.report.page.build import build_report
    from tare.report.page.warnings import ending_lines
    from tare.report.terminal.advice import render_advice
    from tare.report.terminal.comparison import render_comparison

__all__ = ["build_report", "ending_lines", "render_advice", "render_comparison"]

_HOMES = {
    "build_report": "page.build",
    "ending_lines": "page.warnings",
    "render_advice": "terminal.advice",
    "render_comparison": "terminal.comparison",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
