"""Pages, tables and figures; knows nothing of how data was made."""

from tare.report.build import build_report
from tare.report.terminal import render_comparison

__all__ = ["build_report", "render_comparison"]
