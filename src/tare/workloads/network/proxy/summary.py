"""What a course comes to: the raw accounts of both kernels become figures and a record."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from tare.workloads.network.proxy import course
from tare.workloads.network.proxy import kernel_text as kernel
from tare.workloads.network.proxy.account import Account, account_of, limits
from tare.workloads.values import mapping, number

PACKETS = ("packets-in", "packets-out", "packet-in", "packet-out")
RECORDED = (
    "account", "limits", "direct", "proxied", "errors", "configuration", "said", "outside",
    "settings", "kernel", "network",
)  # fmt: skip
"""What a cell's record keeps."""


def summed(told: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the course found, from what the agents told.

    Args:
        told: The ``stages`` by name, the ``accounts`` of ``host`` and ``machine``, whose the host's
            threads are (``owners``), the ``interface`` and CPUs of the machine, and how it was set
            up.

    Raises:
        KeyError, ValueError, TypeError: Something is missing, or is not what the agent tells.
    """
    try:
        return _summed(told)
    except (AttributeError, IndexError, ArithmeticError) as error:
        raise ValueError(f"an account is not what the agent tells: {error}") from error


def _summed(told: Mapping[str, Any]) -> dict[str, Any]:
    stages = mapping(told, "stages")
    found = account_of(told)
    rate = number(stages, [course.FULL, "requests_per_s"])
    rates = {path: course.steps_of(path, stages) for path in ("direct", "proxied")}
    direct = course.best_of(rates["direct"])[1]
    limited = limits(told, found, direct, rate)
    machine = told["accounts"]["machine"]
    grew = [kernel.counted(machine["before"], machine["after"], path) for path in kernel.TABLES]
    return {
        "stages": dict(stages),
        "direct_per_s": direct,
        "account": _told(found),
        "limits": limited,
        "packets": packets(machine, str(told["interface"])),
        "host_cost": {} if limited else _cost(told, found, rate),
        **{path: [[tried, reached] for tried, reached in rates[path].items()] for path in rates},
        "errors": {name: dict(stage.get("errors", {})) for name, stage in stages.items()},
        "configuration": str(told.get("configuration", "")),
        "said": dict(machine.get("said", {})),
        "outside": {role: list(cpus) for role, cpus in told["outside"].items()},
        "settings": {
            path: machine["after"][path]
            for path in (*kernel.SETTINGS, kernel.SOCKETS)
            if path in machine["after"]
        },
        "kernel": {name: value for table in grew for name, value in table.items()},
        "network": dict(told.get("network", {})),
        "warnings": list(told.get("warnings", ())),
    }


def _told(found: Account) -> dict[str, Any]:
    told = {**asdict(found), "spent": [asdict(each) for each in found.spent]}
    if found.machine_s is None:
        del told["machine_s"]
    return told


def _cost(told: Mapping[str, Any], found: Account, rate: float) -> dict[str, float]:
    """Return what the machine cost the host while the CPUs were watched."""
    if found.machine_s is None:
        return {}
    seconds = number(told, "accounts.host.seconds")
    return {"cpu_s": found.machine_s * rate * seconds, "wall_s": seconds}


def packets(machine: Mapping[str, Any], interface: str) -> dict[str, float]:
    """Return packets per second and their mean sizes in bytes, of one interface.

    Args:
        machine: The machine's account.
        interface: The name of the interface.

    Raises:
        KeyError: There is no such interface.
        ValueError: Its line is damaged, or no time has passed.
    """
    seconds = number(machine, "seconds")
    if seconds <= 0:
        raise ValueError("no time has passed in the machine's account")
    first, last = (
        kernel.device(machine[when].get(kernel.DEVICES, ""), interface)
        for when in ("before", "after")
    )
    grew = [after - before for before, after in zip(first, last, strict=True)]
    values = {"packets-in": grew[1] / seconds, "packets-out": grew[3] / seconds}
    if grew[1]:
        values["packet-in"] = grew[0] / grew[1]
    if grew[3]:
        values["packet-out"] = grew[2] / grew[3]
    return values
