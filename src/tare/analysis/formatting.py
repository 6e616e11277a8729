"""Quantities as people read them, for those who know the analysis but not the study."""

from tare.study.quantities import (
    format_duration,
    format_number,
    format_percent,
    format_quantity,
    format_size,
)

__all__ = [
    "format_duration",
    "format_number",
    "format_percent",
    "format_quantity",
    "format_size",
]
