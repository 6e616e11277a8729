"""Which host measures which block next."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType
from typing import Literal, Protocol

Way = Literal["replicate", "split", "bound"]
"""How hosts share a run; ``bound``: each has the arms that say they are on it."""


class Dealing(Protocol):
    """The blocks of a run, as they are dealt out to hosts."""

    @property
    def idle(self) -> bool:
        """Whether nothing is being measured, and nothing is left to deal out."""
        ...

    @property
    def left(self) -> int:
        """How many blocks, or parts of blocks, would still have to be dealt out."""
        ...

    def owner(self, block: int) -> str:
        """Return the host whose block this is; empty where it is not one host's."""
        ...

    def take(self, host: str) -> int | None:
        """Deal a block out to a host; None when there is none for it now."""
        ...

    def awaits(self, host: str) -> bool:
        """Return whether there will be a block for a host that gets none now."""
        ...

    def done(self, block: int, host: str) -> None:
        """Take note that a host has measured a block, or its part of it."""
        ...

    def whole(self, block: int) -> bool:
        """Return whether nothing of a block that was begun is left to measure."""
        ...

    def give_back(self, host: str) -> tuple[int, ...]:
        """Take back what a host did not finish; return the numbers."""
        ...

    def give_up(self, host: str) -> tuple[int, ...]:
        """Let a host go; return the blocks that no other host can measure for it."""
        ...

    def close(self) -> None:
        """Deal nothing out any more."""
        ...


def blocks_in_all(how: Way, hosts: int, most: int) -> int:
    """Return how many blocks there are at most, of all hosts together.

    Args:
        how: ``replicate``: each host measures ``most`` of its own; ``split``: they share them.
        hosts: How many hosts there are.
        most: The most blocks that the study says.
    """
    return most * hosts if how == "replicate" else most


class Deal:
    """The blocks of a run, dealt out one at a time.

    Blocks are numbered from 1 over all hosts. Where they are replicated, each host's own are every
    ``len(hosts)``-th number, so that a run that stops early has as many of each host; where they
    are split, whoever is free takes the next one. A block that a host has begun is kept for it
    until it is given up: what it measured of it compares with nothing that another host measures.

    Args:
        how: How the hosts share the blocks.
        hosts: Their names, each once, in the order of the run.
        most: The most blocks that the study says.
        finished: Numbers of the blocks that are measured already.
        begun: The host of each block that was begun before, also of finished ones.
    """

    def __init__(
        self,
        how: Way,
        hosts: Sequence[str],
        most: int,
        finished: Collection[int] = (),
        begun: Mapping[int, str] = MappingProxyType({}),
    ) -> None:
        self._how = how
        self._hosts = list(hosts)
        total = blocks_in_all(how, len(hosts), most)
        self._waiting = [number for number in range(1, total + 1) if number not in finished]
        self._out: dict[int, str] = {}
        self._kept = {
            block: host
            for block, host in begun.items()
            if block not in finished and host in self._hosts
        }
        self._closed = False

    @property
    def out(self) -> frozenset[int]:
        """The blocks that are being measured."""
        return frozenset(self._out)

    @property
    def idle(self) -> bool:
        """Whether nothing is being measured, and nothing is left to deal out."""
        return not self._out and (self._closed or not self._waiting)

    @property
    def left(self) -> int:
        """How many blocks would still have to be dealt out."""
        return 0 if self._closed else len(self._waiting)

    def owner(self, block: int) -> str:
        """Return the host whose block this is; empty where any host may measure it."""
        return self._hosts[(block - 1) % len(self._hosts)] if self._how == "replicate" else ""

    def take(self, host: str) -> int | None:
        """Deal a block out to a host; None when there is none for it."""
        if self._closed:
            return None
        found = next((block for block, kept in self._kept.items() if kept == host), None)
        if found is None:
            free = (each for each in self._waiting if each not in self._kept)
            found = next((each for each in free if self.owner(each) in ("", host)), None)
        if found is not None:
            self._kept.pop(found, None)
            self._waiting.remove(found)
            self._out[found] = host
        return found

    def awaits(self, host: str) -> bool:
        """Return whether there may be a block for a host later: one that is kept for another."""
        return not self._closed and any(self.owner(block) in ("", host) for block in self._kept)

    def done(self, block: int, host: str) -> None:
        """Take note that a host has measured a block."""
        del host
        self._out.pop(block, None)

    def whole(self, block: int) -> bool:
        """Return whether a block that was begun is measured."""
        return block not in self._out and block not in self._waiting

    def give_back(self, host: str) -> tuple[int, ...]:
        """Take back what a host did not finish, and keep it for it; return the numbers."""
        back = sorted(block for block, out in self._out.items() if out == host)
        for block in back:
            self._kept[block] = self._out.pop(block)
        self._waiting = sorted([*self._waiting, *back])
        return tuple(back)

    def give_up(self, host: str) -> tuple[int, ...]:
        """Let a host go that stays away; return the blocks that no other host can measure."""
        self.give_back(host)
        self._kept = {block: kept for block, kept in self._kept.items() if kept != host}
        lost = tuple(block for block in self._waiting if self.owner(block) == host)
        self._waiting = [block for block in self._waiting if block not in lost]
        return lost

    def close(self) -> None:
        """Deal nothing out any more."""
        self._closed = True
