"""Load slow libraries before the first cell, so that loading disturbs no measurement."""

from __future__ import annotations

import asyncio
from importlib import import_module

LIBRARIES = ("numpy", "polars")
"""Loaded on first use by series and by stopping; up to a third of a second each."""


class LibraryLoader:
    """Loads slow libraries while arms are checked: that mostly waits, and no cell has to."""

    def __init__(self) -> None:
        self._loading: asyncio.Future[None] | None = None

    def begin(self) -> None:
        """Start to load them in the background."""
        if self._loading is None:
            self._loading = asyncio.ensure_future(asyncio.to_thread(_load))

    async def loaded(self) -> None:
        """Wait until they are loaded."""
        self.begin()
        assert self._loading is not None
        await asyncio.shield(self._loading)


def _load() -> None:
    for library in LIBRARIES:
        import_module(library)
