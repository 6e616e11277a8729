"""The connection tracking of a switch's kernel: how many connections, and what was lost."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tare.platforms.linux.network.parts import Parts

COUNT = "/proc/sys/net/netfilter/nf_conntrack_count"
MOST = "/proc/sys/net/netfilter/nf_conntrack_max"
STATISTICS = "/proc/net/stat/nf_conntrack"
LOST = ("drop", "insert_failed")
"""Columns of packets that were lost since there was no room, or no place, for their connection
(net/netfilter/nf_conntrack_core.c, ``early_drop`` and ``__nf_conntrack_confirm``)."""


@dataclass(frozen=True)
class Tracked:
    """What was tracked at one moment.

    Args:
        count: Connections in the table.
        most: How many the table takes; it is the whole host's.
        lost: Packets that were lost so far, by the reason's name; empty where the kernel does not
            tell.
    """

    count: int
    most: int
    lost: dict[str, int]

    def since(self, before: Tracked) -> dict[str, Any]:
        """Return it for a cell's record: ``count``, ``most``, and what was lost meanwhile."""
        lost = {name: number - before.lost.get(name, 0) for name, number in self.lost.items()}
        return {"count": self.count, "most": self.most, "lost": lost}


async def tracked(parts: Parts) -> Tracked:
    """Look at the table of a switch; raises MachineFault where its kernel shows none."""
    shown = await parts.run(
        *("nsenter", f"--net=/run/netns/{parts.within}"),
        *("sh", "-c", f"cat {COUNT} {MOST} && cat {STATISTICS} 2>/dev/null || true"),
    )
    return read(shown)


def read(shown: str) -> Tracked:
    """Read both numbers, each on a line, and the table of statistics, a line for each CPU.

    A word that is not a number counts as 0.
    """
    lines = shown.splitlines()
    count, most = (_number(lines[place : place + 1], 10) for place in (0, 1))
    heads = lines[2].split() if len(lines) > 2 else []
    lost = {
        name: sum(_number(line.split()[place : place + 1], 16) for line in lines[3:])
        for name in LOST
        if name in heads
        for place in (heads.index(name),)
    }
    return Tracked(count, most, lost)


def _number(words: list[str], base: int) -> int:
    digits = "0123456789abcdef"[:base]
    word = words[0].strip() if words else ""
    return int(word, base) if 0 < len(word) < 17 and not word.strip(digits) else 0


def warnings(network: dict[str, Any]) -> list[str]:
    """Return in words what a switch lost of what it tracked; ``network`` as a record has it."""
    found = network.get("tracked")
    lost = {name: number for name, number in found["lost"].items() if number > 0} if found else {}
    return [
        f"the switch's conntrack lost {number} packets ({name}); its table has {found['count']} of "
        f"{found['most']} connections"
        for name, number in lost.items()
        if found
    ]
