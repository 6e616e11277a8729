"""Load what takes long to load, at a time of the run's own choosing."""

from __future__ import annotations

from importlib import import_module

LIBRARIES = ("numpy", "polars", "scipy.special")
"""Loaded on first use by series and by stopping; a third of a second each."""


def load_slow_libraries() -> None:
    """Load them while the first machine boots, so that no cell and no start waits for them."""
    for library in LIBRARIES:
        import_module(library)
