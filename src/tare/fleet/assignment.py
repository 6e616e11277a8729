"""The assignment of blocks to hosts: in turn, or to all hosts together (`Lockstep`)."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType
from typing import Literal, Protocol

Way = Literal["replicate", "split", "bound"]
"""The ways in which hosts share a run; ``bound``: each measures the arms that are on it."""


class Dealing(Protocol):
    """The assignment of a run's blocks to hosts."""

    @property
    def idle(self) -> bool:
        """Whether nothing is being measured, and nothing is left to assign."""
        ...

    @property
    def left(self) -> int:
        """The number of blocks, or parts of blocks, that are not assigned yet."""
        ...

    def owner(self, block: int) -> str:
        """Return the host of a block; empty if it is not bound to one host."""
        ...

    def take(self, host: str) -> int | None:
        """Assign a block to a host; return None if there is none for it now."""
        ...

    def awaits(self, host: str) -> bool:
        """Return whether there will be a block for a host that gets none now."""
        ...

    def done(self, block: int, host: str) -> None:
        """Record that a host has measured a block, or its part of it."""
        ...

    def whole(self, block: int) -> bool:
        """Return whether a block that was begun is complete."""
        ...

    def give_back(self, host: str) -> tuple[int, ...]:
        """Take back a host's unfinished blocks; return their numbers."""
        ...

    def give_up(self, host: str) -> tuple[int, ...]:
        """Remove a host; return the blocks that no other host can measure for it."""
        ...

    def close(self) -> None:
        """Assign no further blocks."""
        ...


def blocks_in_all(how: Way, hosts: int, most: int) -> int:
    """Return the highest number of blocks over all hosts.

    Args:
        how: ``replicate``: each host measures ``most`` of its own; ``split``: they share them.
        hosts: The number of hosts.
        most: The study's highest number of blocks.
    """
    return most * hosts if how == "replicate" else most


class Deal:
    """The blocks of a run, assigned one at a time.

    Blocks are numbered from 1 over all hosts. If they are replicated, each host has every
    ``len(hosts)``-th number, so that a run that stops early has as many blocks of each host. If
    they are split, the next free host takes the next block. A block that a host has begun is kept
    for it until the host is given up, because cells of different hosts are not comparable.

    Args:
        how: The way in which the hosts share the blocks.
        hosts: Their names, each once, in the sequence of the run.
        most: The study's highest number of blocks.
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
        """Whether nothing is being measured, and nothing is left to assign."""
        return not self._out and (self._closed or not self._waiting)

    @property
    def left(self) -> int:
        """The number of blocks that are not assigned yet."""
        return 0 if self._closed else len(self._waiting)

    def owner(self, block: int) -> str:
        """Return the host of a block; empty if any host may measure it."""
        return self._hosts[(block - 1) % len(self._hosts)] if self._how == "replicate" else ""

    def take(self, host: str) -> int | None:
        """Assign a block to a host; return None if there is none for it."""
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
        """Record that a host has measured a block."""
        del host
        self._out.pop(block, None)

    def whole(self, block: int) -> bool:
        """Return whether a block has been measured completely, after it was begun."""
        return block not in self._out and block not in self._waiting

    def give_back(self, host: str) -> tuple[int, ...]:
        """Take back a host's unfinished blocks, and keep them for it; return their numbers."""
        back = sorted(block for block, out in self._out.items() if out == host)
        for block in back:
            self._kept[block] = self._out.pop(block)
        self._waiting = sorted([*self._waiting, *back])
        return tuple(back)

    def give_up(self, host: str) -> tuple[int, ...]:
        """Remove a host that is away; return the blocks that no other host can measure."""
        self.give_back(host)
        self._kept = {block: kept for block, kept in self._kept.items() if kept != host}
        lost = tuple(block for block in self._waiting if self.owner(block) == host)
        self._waiting = [block for block in self._waiting if block not in lost]
        return lost

    def close(self) -> None:
        """Assign no further blocks."""
        self._closed = True


class Lockstep:
    """Each host measures its own arms in every block; the next block begins once all have.

    So the arms of one block are measured at about the same time, as on one host, and decisions are
    made on complete blocks.

    Args:
        hosts: Their names, each once.
        most: The study's highest number of blocks.
        done: For each block, the hosts that have already measured their part of it.
    """

    def __init__(
        self, hosts: Sequence[str], most: int, done: Mapping[int, Collection[str]] | None = None
    ) -> None:
        finished = done or {}
        self._left = {
            host: [block for block in range(1, most + 1) if host not in finished.get(block, ())]
            for host in hosts
        }
        self._out: dict[str, int] = {}
        self._closed = False

    @property
    def idle(self) -> bool:
        """Whether nothing is being measured, and nothing is left to assign."""
        return not self._out and (self._closed or not any(self._left.values()))

    @property
    def left(self) -> int:
        """The number of parts of blocks that are not assigned yet."""
        return 0 if self._closed else sum(map(len, self._left.values()))

    def owner(self, block: int) -> str:
        """Return an empty host, because all hosts take part in each block."""
        del block
        return ""

    def take(self, host: str) -> int | None:
        """Assign a host its part of the current block; return None if it has done that."""
        left = self._left.get(host)
        if self._closed or not left or host in self._out or left[0] != self._under_way:
            return None
        self._out[host] = left.pop(0)
        return self._out[host]

    def awaits(self, host: str) -> bool:
        """Return whether there will be a block for a host once the others have done theirs."""
        return not self._closed and bool(self._left.get(host))

    def done(self, block: int, host: str) -> None:
        """Record that a host has measured its part of a block."""
        if self._out.get(host) == block:
            del self._out[host]

    def whole(self, block: int) -> bool:
        """Return whether all hosts have measured their part of a block."""
        return block not in self._out.values() and not any(
            block in left for left in self._left.values()
        )

    def give_back(self, host: str) -> tuple[int, ...]:
        """Take back a host's unfinished block, to be assigned first; return its number."""
        block = self._out.pop(host, None)
        if block is None:
            return ()
        self._left[host].insert(0, block)
        return (block,)

    def give_up(self, host: str) -> tuple[int, ...]:
        """Remove a host that is away; return the blocks in which its arms are missing."""
        self.give_back(host)
        return tuple(self._left.pop(host, ()))

    def close(self) -> None:
        """Assign no further blocks."""
        self._closed = True

    @property
    def _under_way(self) -> int:
        heads = [left[0] for left in self._left.values() if left]
        return min([*heads, *self._out.values()])
