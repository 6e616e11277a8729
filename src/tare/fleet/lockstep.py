"""The blocks of a study whose arms are bound to hosts, measured by all hosts together."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence


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
