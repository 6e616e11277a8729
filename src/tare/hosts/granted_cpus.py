"""Choose host CPUs for a machine that has no virtual CPUs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from tare.hosts.ledger.ledger import Ledger


def granted_cpus(
    shared: Sequence[int], ledger: Ledger, wanted: Sequence[int], vcpus: int
) -> tuple[int, ...]:
    """Choose as many host CPUs as the machine has vCPUs, so that it gets no more than a guest.

    A pinned machine gets the first of the CPUs that it is pinned to. Any other machine gets the
    CPUs that the fewest running machines hold, according to the ledger's open entries, as a
    scheduler would spread them.

    Args:
        shared: The host's CPUs for machines that are not pinned.
        ledger: Records the CPUs that machines were granted.
        wanted: The CPUs that the machine is pinned to; empty: any.
        vcpus: The machine's number of vCPUs.

    Returns:
        Host CPU numbers, ascending.
    """
    if wanted:
        return tuple(sorted(set(list(dict.fromkeys(wanted))[:vcpus])))
    held = Counter(
        cpu for entry in ledger.open_entries() for cpu in entry.details.get("cpus") or ()
    )
    return tuple(sorted(sorted(shared, key=lambda cpu: (held[cpu], cpu))[:vcpus]))
