"""Network namespaces with the cards of simulated VMs, on bridges that stand for their networks.

A local agent in such a namespace plays the guest. Its first card is on a bridge with an address of
this computer, over which the agent dials back. Each further card is on a bridge for the network
that the simulated server has it on, so packets really flow between the guests, and nowhere else.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import secrets
import signal
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ENTER = ("ip", "netns", "exec")
APART = ("unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc")
"""A guest sees no process but its own, as in a VM."""
WITH_TOOLBOX = """set -e
mount --bind "$TARE_TOOLBOX" "$TARE_TOOLBOX"
mount -o remount,bind,ro,nosuid "$TARE_TOOLBOX"
for each in tmp run; do mount -t tmpfs -o mode=1777 tmpfs "$TARE_TOOLBOX/$each"; done
for each in proc sys dev; do mount --rbind "/$each" "$TARE_TOOLBOX/$each"; done
if [ -n "$TARE_SCRATCH" ]; then
    mount -t tmpfs tmpfs "$TARE_SCRATCH"
    mount --bind "$TARE_SCRATCH" "$TARE_TOOLBOX/scratch"
fi
exec "$@"
"""
"""The toolbox's tree as a live image has it: programs write only to folders in memory."""
MOST_GUESTS = 200
FIRST_GUEST = 10
MANAGEMENT = "198.18.{}.{}"
"""Addresses for benchmarks of networks (RFC 2544), which no route of a computer leads to."""


@dataclass(frozen=True)
class Card:
    """A network card of a simulated VM.

    Args:
        network: The network that the server has it on; empty: the one for dialling back.
        model: The server's word for its model.
        mac: Its address, with colons; empty: any.
    """

    network: str
    model: str
    mac: str = ""


@dataclass(frozen=True)
class Plugged:
    """What a guest was given: kept after its end.

    Args:
        cards: Its cards, in the server's order.
    """

    cards: tuple[Card, ...]


@dataclass
class GuestNetworks:
    """Creates a namespace for each guest, and removes it; needs root.

    Args:
        toolbox: The tree of the toolbox that guests have; None: none.
        scratch: A folder on which each guest has a file system of its own, in memory, in place of
            its VM's disk; None: guests have no disk.
    """

    toolbox: Path | None = None
    scratch: Path | None = None
    plugged: list[Plugged] = field(default_factory=list)
    """Every guest that was given cards."""

    def __post_init__(self) -> None:
        self._token = f"tg{secrets.token_hex(2)}"
        self._number = secrets.randbelow(254) + 1
        self._count = itertools.count(FIRST_GUEST)
        self._guests: dict[Any, tuple[str, tuple[str, ...]]] = {}
        self._bridges: dict[str, str] = {}

    @property
    def environment(self) -> dict[str, str]:
        """The variables of each agent."""
        places = {"TARE_TOOLBOX": self.toolbox, "TARE_SCRATCH": self.scratch}
        return {name: str(place) for name, place in places.items() if place is not None}

    @property
    def callback(self) -> str:
        """The address of this computer that guests reach, as an arm's ``callback``."""
        return f"{MANAGEMENT.format(self._number, 1)}:0"

    @property
    def left(self) -> list[str]:
        """The namespaces of guests, and the bridges of their isolated networks."""
        return [name for name, _ in self._guests.values()] + list(self._bridges.values())

    async def open(self) -> None:
        """Create the bridge over which guests dial back."""
        home = f"{self._token}m"
        await _ip("link", "add", home, "type", "bridge")
        await _ip("addr", "add", f"{MANAGEMENT.format(self._number, 1)}/24", "dev", home)
        await _ip("link", "set", home, "up")

    async def close(self) -> None:
        """Remove everything."""
        for guest in tuple(self._guests):
            await self.remove(guest)
        await _ip("link", "delete", f"{self._token}m")

    async def create(self, guest: Any, cards: Sequence[Card]) -> list[str]:
        """Create a guest's namespace with its cards; return the words that enter it."""
        number = next(self._count)
        assert number < MOST_GUESTS, "too many guests for one test"
        name = f"{self._token}-{number}"
        isolated = tuple(card.network for card in cards[1:])
        await _ip("netns", "add", name)
        self._guests[guest] = (name, isolated)
        self.plugged.append(Plugged(tuple(cards)))
        await _ip("-n", name, "link", "set", "lo", "up")
        for index, card in enumerate(cards):
            bridge = await self._bridge(card.network) if index else f"{self._token}m"
            end, mac = f"{self._token}{number}p{index}", ("address", card.mac) if card.mac else ()
            inside = ("peer", "name", f"eth{index}", *mac, "netns", name)
            await _ip("link", "add", end, "type", "veth", *inside)
            await _ip("link", "set", end, "master", bridge, "up")
        # What a product's DHCP server does. The agent sets up the other card itself.
        own = f"{MANAGEMENT.format(self._number, number)}/24"
        await _ip("-n", name, "addr", "add", own, "dev", "eth0")
        await _ip("-n", name, "link", "set", "eth0", "up")
        mounted = () if self.toolbox is None else ("sh", "-c", WITH_TOOLBOX, "sh")
        return [*ENTER, name, *APART, *mounted]

    async def remove(self, guest: Any) -> None:
        """Remove a guest's namespace, and bridges that no guest is on any more."""
        if (found := self._guests.pop(guest, None)) is None:
            return
        await _ip("netns", "delete", found[0])
        used = {network for _, networks in self._guests.values() for network in networks}
        for network in set(self._bridges) - used:
            await _ip("link", "delete", self._bridges.pop(network))

    async def kill(self, number: int) -> None:
        """End all processes of a guest at once, as a crash does.

        Args:
            number: Its number among the guests that are there, from 0 in the order of their start.
        """
        name, _ = list(self._guests.values())[number]
        for pid in (await _ip("netns", "pids", name)).split():
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)

    async def _bridge(self, network: str) -> str:
        assert network, "a second card is on a network that the server does not have"
        if network not in self._bridges:
            name = self._bridges[network] = f"{self._token}b{next(self._count)}"
            await _ip("link", "add", name, "type", "bridge")
            await _ip("link", "set", name, "up")
        return self._bridges[network]


async def _ip(*words: str) -> str:
    process = await asyncio.create_subprocess_exec(
        "ip", *words, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    output, _ = await process.communicate()
    assert process.returncode == 0, f"ip {' '.join(words)}: {output.decode()}"
    return output.decode()
