"""The guests of a server that boots nothing: local agents, started and ended from its threads."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from tare.platforms.vendors.configuration import read_configuration
from tare.testing.dialling import LocalGuest

CALL_S = 60.0


class Guests:
    """Local agents by the number or name of their VM.

    Args:
        agent: The agent's program.
        ended: Called with the VM of a guest that ended by itself.
    """

    def __init__(self, agent: Path, ended: Callable[[Any], None]) -> None:
        self._agent = agent
        self._ended = ended
        self._loop = asyncio.get_running_loop()
        self._guests: dict[Any, LocalGuest] = {}
        self.keys: list[str] = []
        """The key of every guest that was started."""
        self.configurations: dict[str, dict[str, Any]] = {}
        """The configuration of each machine, by its name."""
        self._tasks: set[asyncio.Task[None]] = set()

    def plug(self, vm: Any, images: list[bytes]) -> None:
        """Start a guest; called from the server's threads."""
        self._do(self._plug(vm, images))

    def unplug(self, vm: Any) -> None:
        """End it at once."""
        self._do(self.end(vm))

    async def end(self, vm: Any) -> None:
        """End it, from the loop."""
        if (guest := self._guests.pop(vm, None)) is not None:
            await guest.end()

    async def close(self) -> None:
        """End them all."""
        for vm in tuple(self._guests):
            await self.end(vm)
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _do(self, work: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(CALL_S)

    async def _plug(self, vm: Any, images: list[bytes]) -> None:
        for each in filter(None, map(read_configuration, images)):
            self.keys.append(str(each["key"]))
            self.configurations[str(each["name"])] = each
        guest = self._guests[vm] = LocalGuest(self._agent)
        # Without its configuration a guest boots all the same, and does nothing.
        with contextlib.suppress(LookupError):
            await guest.boot(images)
            task = asyncio.create_task(self._watch(vm, guest))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _watch(self, vm: Any, guest: LocalGuest) -> None:
        await guest.wait()
        await guest.end()
        if self._guests.get(vm) is guest:
            del self._guests[vm]
        self._ended(vm)
