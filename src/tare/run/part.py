"""The part of a run that one of several hosts carries out."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass

from tare.events import HostJoined


@dataclass(frozen=True)
class GivenBlock:
    """A block that this host is to measure.

    Args:
        number: From 1, among the blocks of all hosts.
        settled: Identities of its cells that another attempt has finished.
        ended: The arms that get no further block.
    """

    number: int
    settled: frozenset[str] = frozenset()
    ended: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Part:
    """What one host has of a run.

    Args:
        before: What it was when it joined the run the last time; None: it is new.
        blocks: The blocks as they are dealt out, until there are no more.
    """

    before: HostJoined | None
    blocks: AsyncIterator[GivenBlock]
