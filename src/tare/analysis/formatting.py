"""Quantities as people read them, for those who know the analysis but not the study."""

from tare.study.cells import parameter_words, value_words
from tare.study.quantities import (
    format_duration,
    format_number,
    format_percent,
    format_quantity,
    format_size,
    shape_words,
)

__all__ = [
    "format_duration",
    "format_number",
    "format_percent",
    "format_quantity",
    "format_size",
    "parameter_words",
    "shape_words",
    "value_words",
]
