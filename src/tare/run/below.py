"""Who has the CPUs of a computer while its host's kernel is watched, which may have only some."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tare.errors import WorkloadFault
from tare.workloads.values import finite, shortened

if TYPE_CHECKING:
    from tare.platforms.contract import Below, CpuAccounting


def given_out_meanwhile(below: Below, account: Mapping[str, Any]) -> dict[str, Any]:
    """Return who had the CPUs over a stretch of time, by the hypervisor below the host's kernel.

    Args:
        below: How the host was asked.
        account: What it accounts for: ``printed`` has what it was told near both ends.

    Returns:
        The machine's number (``domain``), how many ``cpus`` there are, and how many of them the
        ``machine``, the ``host``'s kernel and each of the ``others`` had; ``host_on``, which CPUs
        the host's kernel is kept on, as far as that is known.

    Raises:
        MachineFault: The machine has ended.
        WorkloadFault: The host's agent does not tell of two moments.
    """
    (first, began_s), (last, ended_s) = _looks(below, account)
    seconds = ended_s - began_s
    if seconds <= 0:
        raise WorkloadFault("the hypervisor below the host was asked twice in one moment")
    return {
        "domain": last.domain,
        "cpus": last.cpus,
        "machine": (last.machine_s - first.machine_s) / seconds,
        "host": (last.host_s - first.host_s) / seconds,
        "host_on": list(below.host_on),
        "others": {
            name: (spent - first.others.get(name, 0.0)) / seconds
            for name, spent in last.others.items()
        },
    }


def _looks(below: Below, account: Mapping[str, Any]) -> list[tuple[CpuAccounting, float]]:
    printed = account.get("printed")
    try:
        looks = [(str(each["text"]), finite(each["at_s"], "at_s")) for each in printed or ()]
    except (KeyError, TypeError, ValueError) as error:
        raise WorkloadFault(f"what the host printed cannot be read: {error!r}") from error
    if len(looks) != 2:
        raise WorkloadFault(f"the host printed {shortened(printed)}, not what it saw at both ends")
    return [(below.read(text), at_s) for text, at_s in looks]
