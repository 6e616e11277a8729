"""Libraries that take long to load are there before the first cell, and loaded once."""

from __future__ import annotations

import asyncio
import threading

import pytest

from tare.run.lifecycle import slow_libraries
from tare.run.lifecycle.slow_libraries import SlowLibraries


async def test_who_needs_them_waits_until_they_are_loaded_and_they_are_loaded_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    go, loads = threading.Event(), []

    def load() -> None:
        loads.append(threading.current_thread())
        go.wait(60)

    monkeypatch.setattr(slow_libraries, "_load", load)
    libraries = SlowLibraries()
    libraries.begin()
    libraries.begin()
    waiting = [asyncio.ensure_future(libraries.loaded()) for _ in range(2)]
    await asyncio.sleep(0)
    assert not any(each.done() for each in waiting)
    go.set()
    await asyncio.gather(*waiting)
    await libraries.loaded()
    assert len(loads) == 1 and loads[0] is not threading.main_thread()
