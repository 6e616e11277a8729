"""Statistics over a run's observations; depends only on the events, not on platforms.

The parts are loaded when first used: deciding whether to continue a run needs no tables,
and tables take a third of a second to load.
"""

from __future__ import annotations

import os
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tare.analysis.data.export import export_observations, tidy_frame, write_observations
    from tare.analysis.data.load import load_run, load_runs
    from tare.analysis.effects.all_pairs import compare_every_pair
    from tare.analysis.effects.compare import compare as compare_runs
    from tare.analysis.effects.pilot import advise
    from tare.analysis.series.summaries import group_series, summarise_series

__all__ = [
    "advise",
    "compare_every_pair",
    "compare_runs",
    "export_observations",
    "group_series",
    "load_run",
    "load_runs",
    "summarise_series",
    "tidy_frame",
    "write_observations",
]

_HOMES = {
    "advise": ("effects.pilot", "advise"),
    "compare_every_pair": ("effects.all_pairs", "compare_every_pair"),
    "compare_runs": ("effects.compare", "compare"),
    "export_observations": ("data.export", "export_observations"),
    "group_series": ("series.summaries", "group_series"),
    "load_run": ("data.load", "load_run"),
    "load_runs": ("data.load", "load_runs"),
    "summarise_series": ("series.summaries", "summarise_series"),
    "tidy_frame": ("data.export", "tidy_frame"),
    "write_observations": ("data.export", "write_observations"),
}


_THREADS = "OPENBLAS_NUM_THREADS"


def _load_arithmetic() -> None:
    """Load numpy so that its matrix products use one thread.

    The products are small here. A second thread mostly waits, and it waits by spinning: analysis
    then took half as much CPU time again and was not faster. Children do not inherit the setting.
    """
    given = os.environ.get(_THREADS)
    os.environ.setdefault(_THREADS, "1")
    try:
        import_module("numpy")
    finally:
        if given is None:
            del os.environ[_THREADS]


_load_arithmetic()


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, attribute = _HOMES[name]
    return getattr(import_module(f"{__name__}.{module}"), attribute)
