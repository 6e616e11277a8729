"""The part of a run that one of several hosts carries out."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass

from tare.events import PlatformChecked


@dataclass(frozen=True)
class GivenBlock:
    """A block that this host is to measure.

    Args:
        number: From 1, among the blocks of all hosts.
        settled: Identities of its cells that another attempt has finished.
    """

    number: int
    settled: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Part:
    """What one host has of a run.

    Args:
        checked: What the run's first host found out about each arm; all hosts plan alike by it.
        blocks: The blocks as they are dealt out, until there are no more.
    """

    checked: Mapping[str, PlatformChecked]
    blocks: AsyncIterator[GivenBlock]
