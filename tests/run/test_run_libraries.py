"""Slow libraries are loaded once, before the first cell."""

from __future__ import annotations

import asyncio
import threading

import pytest

from tare.run.lifecycle import library_loading
from tare.run.lifecycle.library_loading import LibraryLoader


async def test_every_waiter_gets_the_libraries_of_one_load(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    go, loads = threading.Event(), []

    def load() -> None:
        loads.append(threading.current_thread())
        go.wait(60)

    monkeypatch.setattr(library_loading, "_load", load)
    libraries = LibraryLoader()
    libraries.begin()
    libraries.begin()
    waiting = [asyncio.ensure_future(libraries.loaded()) for _ in range(2)]
    await asyncio.sleep(0)
    assert not any(each.done() for each in waiting)
    go.set()
    await asyncio.gather(*waiting)
    await libraries.loaded()
    assert len(loads) == 1 and loads[0] is not threading.main_thread()
