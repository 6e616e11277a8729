"""Whether hosts that share the blocks of a run are equal: a block is measured on any of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tare.run.lifecycle.resuming import differing_hosts

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tare.events import HostJoined


def unequal(first: HostJoined, other: HostJoined) -> str:
    """Return in what a host differs from the first that joined, in a sentence; empty for nothing.

    Args:
        first: What the first one reported about itself.
        other: What the other one says.
    """
    found = [*differing_hosts(first.facts, other.facts, first.host), *_versions(first, other)]
    if not found:
        return ""
    return (
        f"{other.host} shares the blocks with {first.host} and is not its equal: "
        f"{'; '.join(found)}. What blocks differ by is in part the hosts."
    )


def _versions(first: HostJoined, other: HostJoined) -> Iterator[str]:
    """Yield what arms are made of on one host and not on the other."""
    known = {event.arm: event for event in first.checked if event.usable}
    told: dict[str, list[str]] = {}
    for event in other.checked:
        if not event.usable or event.arm not in known:
            continue
        before = known[event.arm].versions
        for name, version in event.versions.items():
            if before.get(name, version) != version:
                phrase = f"{name} is {version}, and on {first.host} {before[name]}"
                told.setdefault(phrase, []).append(event.arm)
    for phrase, arms in told.items():
        yield f"{phrase} (arm {', '.join(arms)})"
