"""The part of a run that one of several hosts, or one session, carries out."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass

from tare.events import HostJoined
from tare.run.lifecycle.account import Account


@dataclass(frozen=True)
class GivenBlock:
    """A block that is to be measured now.

    Args:
        number: From 1, among the blocks of all hosts.
        settled: Identities of its cells that another attempt has finished.
        ended: The arms that get no further block.
        whole: Whether nothing of the block is left for another time, when this is done.
    """

    number: int
    settled: frozenset[str] = frozenset()
    ended: frozenset[str] = frozenset()
    whole: bool = True


@dataclass(frozen=True)
class Part:
    """What one host, or one session, has of a run.

    Args:
        before: What the host was when it joined the run the last time; None: it is new.
        blocks: The blocks as they are dealt out, until there are no more.
        account: What became of the run's cells, where its plan does not hold them all.
    """

    before: HostJoined | None
    blocks: AsyncIterator[GivenBlock]
    account: Callable[[], Account] | None = None
