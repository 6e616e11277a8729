"""Which host CPUs a machine without virtual CPUs of its own is confined to."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from tare.hosts.ledger.ledger import Ledger


def granted_cpus(
    shared: Sequence[int], ledger: Ledger, wanted: Sequence[int], vcpus: int
) -> tuple[int, ...]:
    """Choose as many host CPUs as the machine has vCPUs, so that it has no more than a guest.

    A pinned machine gets the first of the CPUs it is pinned to. Any other gets those that the
    fewest running machines hold (the ledger's open entries say so), as a scheduler would
    spread them.

    Args:
        shared: The host's CPUs for machines that are not pinned.
        ledger: Where machines note the CPUs that they were granted.
        wanted: The CPUs it is pinned to; empty for any.
        vcpus: How many vCPUs it has.

    Returns:
        Host CPU numbers, ascending.
    """
    if wanted:
        return tuple(sorted(set(list(dict.fromkeys(wanted))[:vcpus])))
    held = Counter(
        cpu for entry in ledger.open_entries() for cpu in entry.details.get("cpus") or ()
    )
    return tuple(sorted(sorted(shared, key=lambda cpu: (held[cpu], cpu))[:vcpus]))
