"""Load what takes long to load, at a time of the run's own choosing."""

from __future__ import annotations

import asyncio
from importlib import import_module

LIBRARIES = ("numpy", "polars")
"""Loaded on first use by series and by stopping; up to a third of a second each."""


class SlowLibraries:
    """Loads them while arms are checked, which mostly waits, so that no cell waits for them."""

    def __init__(self) -> None:
        self._loading: asyncio.Future[None] | None = None

    def begin(self) -> None:
        """Begin to load them beside whatever else goes on."""
        if self._loading is None:
            self._loading = asyncio.ensure_future(asyncio.to_thread(_load))

    async def loaded(self) -> None:
        """Wait until they are loaded, so that loading disturbs no measurement."""
        self.begin()
        assert self._loading is not None
        await asyncio.shield(self._loading)


def _load() -> None:
    for library in LIBRARIES:
        import_module(library)
