"""The guests of a server that boots nothing: local agents, started and ended from its threads."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any

from platforms.guest_networks import Card, GuestNetworks
from tare.platforms.vendors.configuration import read_configuration
from tare.testing.simulated_guest import LocalGuest

CALL_S = 60.0


class Guests:
    """Local agents by the number or name of their VM.

    Args:
        agent: The agent's program.
        ended: Called with the VM of a guest that ended by itself.
        networks: Gives each guest the network cards that its VM has; None: guests have this
            computer's own network.
        cards: Returns the cards of a VM; called from the server's threads.
    """

    def __init__(
        self,
        agent: Path,
        ended: Callable[[Any], None],
        networks: GuestNetworks | None = None,
        cards: Callable[[Any], Sequence[Card]] = lambda _: (),
    ) -> None:
        self._agent = agent
        self._ended = ended
        self._networks = networks
        self._cards = cards
        self._loop = asyncio.get_running_loop()
        self._guests: dict[Any, LocalGuest] = {}
        self.keys: list[str] = []
        """The key of every guest that was started."""
        self.configurations: dict[str, dict[str, Any]] = {}
        """The configuration of each machine, by its name."""
        self._tasks: set[asyncio.Task[None]] = set()

    def plug(self, vm: Any, images: list[bytes]) -> None:
        """Start a guest; called from the server's threads."""
        self._do(self._plug(vm, images, self._cards(vm)))

    def unplug(self, vm: Any) -> None:
        """End it at once."""
        self._do(self.end(vm))

    async def end(self, vm: Any) -> None:
        """End it, from the loop."""
        if (guest := self._guests.pop(vm, None)) is not None:
            await self._end(vm, guest)

    async def _end(self, vm: Any, guest: LocalGuest) -> None:
        await guest.end()
        if self._networks is not None:
            await self._networks.remove(vm)

    async def close(self) -> None:
        """End them all."""
        for vm in tuple(self._guests):
            await self.end(vm)
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _do(self, work: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(CALL_S)

    async def _plug(self, vm: Any, images: list[bytes], cards: Sequence[Card]) -> None:
        for each in filter(None, map(read_configuration, images)):
            self.keys.append(str(each["key"]))
            self.configurations[str(each["name"])] = each
        around: list[str] = []
        environment = None
        if self._networks is not None:
            around = await self._networks.create(vm, cards)
            environment = self._networks.environment
        guest = self._guests[vm] = LocalGuest(self._agent, around, environment)
        # Without its configuration a guest boots too, and does nothing.
        with contextlib.suppress(LookupError):
            await guest.boot(images)
            task = asyncio.create_task(self._watch(vm, guest))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _watch(self, vm: Any, guest: LocalGuest) -> None:
        await guest.wait()
        if self._guests.get(vm) is guest:
            del self._guests[vm]
            await self._end(vm, guest)
        self._ended(vm)
