"""Sum up a proxied cell: turn the raw accounts of both kernels into figures and a record."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from statistics import fmean
from typing import Any

from tare.units import format_number
from tare.workloads.network.proxy import kernel_text as kernel
from tare.workloads.network.proxy import load_search
from tare.workloads.network.proxy.account import (
    CpuAccount,
    account_of,
    clock_warnings,
    merge_accounts,
    slow_look,
    unowned,
)
from tare.workloads.network.proxy.faults import fault_warnings, faults_of
from tare.workloads.network.proxy.limits import limits, unended
from tare.workloads.network.proxy.parameters import ProxyParameters
from tare.workloads.network.proxy.preparation import budget, prepared, scarce, spent
from tare.workloads.values import mapping, number

PACKETS = ("packets-in", "packets-out", "packet-in", "packet-out")
RECORDED = (
    "account", "limits", "straight", "direct", "proxied", "errors", "faults", "configuration",
    "version", "said", "origins", "outside", "settings", "kernel", "network", "tls", "preparation",
    "offered", "below",
)  # fmt: skip
"""The fields of the result that a cell's record keeps."""
CARRIED = 0.9
"""The share of the proxy's capacity up to which an offered rate is not an overload. Above it,
latencies are those of a queue."""


def summed(reported: Mapping[str, Any], asked: ProxyParameters | None = None) -> dict[str, Any]:
    """Return the cell's result from the agents' answers.

    Args:
        reported: The ``stages`` by name, the ``accounts`` of ``host`` and ``machine``, the owners
            of the host's threads (``owners``), the ``interface`` and CPUs of the machine, and its
            set-up. If the measured load has several ``rounds``, accounts and owners of each.
        asked: The parameters; without them, the end of the search and the offered rate are not
            part of the result.

    Raises:
        KeyError, ValueError, TypeError: A field is missing, or has another form than in an agent's
            answers.
    """
    try:
        return _summed(reported, asked)
    except (AttributeError, IndexError, ArithmeticError) as error:
        raise ValueError(f"an account is not in the form that agents report: {error}") from error


def _summed(reported: Mapping[str, Any], asked: ProxyParameters | None) -> dict[str, Any]:
    stages = mapping(reported, "stages")
    rounds = _rounds(reported)
    each_rate = [number(each, "stages.full.requests_per_s") for each in rounds]
    rate = fmean(each_rate)
    found = merge_accounts([account_of(each) for each in rounds], each_rate)
    rates = {path: load_search.steps_of(path, stages) for path in load_search.PATHS}
    direct = max(rates["direct"].values())
    straight = max(rates["straight"].values(), default=None)
    limited = limits(rounds, found, direct, rate, straight)
    warnings: list[str] = []
    if asked is not None:
        limited += unended(rates["proxied"], asked.most_connections)
        warnings += _unended_without(rates, asked.most_connections)
    offered = _offered(stages, asked, rate)
    machines = [each["accounts"]["machine"] for each in rounds]
    machine = {**machines[-1], "before": machines[0]["before"]}
    grew = [kernel.counted(machine["before"], machine["after"], path) for path in kernel.TABLES]
    kernel_counts = {name: value for table in grew for name, value in table.items()}
    network = dict(reported.get("network", {}))
    faults = faults_of(stages, machine, kernel_counts, network)
    origins = list(reported.get("origins", ()))
    own = str(reported["interface"])
    preparation = prepared(reported["accounts"], reported.get("offloads", {}))
    lasting = budget(preparation, len(origins), rate)
    return {
        "stages": dict(stages),
        "direct_per_s": direct,
        **({} if straight is None else {"straight_per_s": straight}),
        "account": _plain_account(found),
        "limits": limited,
        "packets": _means([packets(each, own) for each in machines]),
        "host_cost": {} if limited else _cost(rounds, found, rate),
        **{path: [[tried, reached] for tried, reached in rates[path].items()] for path in rates},
        "errors": {name: dict(stage.get("errors", {})) for name, stage in stages.items()},
        "faults": faults,
        "tls": _tls(mapping(stages, load_search.FULL)),
        "configuration": str(reported.get("configuration", "")),
        "version": str(reported.get("version", "")),
        "said": dict(machine.get("said", {})),
        "origins": origins,
        "outside": {role: list(cpus) for role, cpus in reported["outside"].items()},
        "settings": {
            path: machine["after"][path]
            for name in (*kernel.SETTINGS, kernel.SOCKETS)
            for path in [name.replace(kernel.OWN, own)]
            if path in machine["after"]
        },
        "kernel": kernel_counts,
        "network": network,
        "preparation": {**preparation, "budget": lasting},
        "offered": offered,
        "below": dict(reported.get("below") or {}),
        "warnings": [
            *reported.get("warnings", ()),
            *_slowest_look(rounds),
            *unowned(found),
            *clock_warnings(found),
            *fault_warnings(faults),
            *spent(faults, lasting, len(origins)),
            *scarce(preparation),
            *warnings,
            *_overloaded(offered, rate),
        ],
    }


def _rounds(reported: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the reports once for each round, with only the accounts and the load of that round."""
    stages = mapping(reported, "stages")
    parts = reported.get("rounds") or [{}]
    names = load_search.rounds_of(load_search.FULL, stages)
    return [
        {**reported, **part, "stages": {load_search.FULL: stages[name]}}
        for part, name in zip(parts, names, strict=True)
    ]


def _means(parts: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Return the mean of each figure over the parts that have it."""
    names = dict.fromkeys(name for part in parts for name in part)
    return {name: fmean(part[name] for part in parts if name in part) for name in names}


def _unended_without(rates: Mapping[load_search.Path, Mapping[int, float]], most: int) -> list[str]:
    """Return a warning for each path without the proxy that may be faster than measured."""
    return [
        f"{path}: {words}"
        for path, found in rates.items()
        if path != "proxied"
        for words in unended(found, most)
    ]


def _offered(
    stages: Mapping[str, Any], asked: ProxyParameters | None, rate: float
) -> dict[str, Any]:
    """Return the rate that all arms are offered, and whether it overloads this arm."""
    if asked is None or asked.offered is None or load_search.OFFERED not in stages:
        return {}
    return {"per_s": asked.offered, "overloaded": asked.offered > CARRIED * rate}


def _overloaded(offered: Mapping[str, Any], rate: float) -> list[str]:
    if not offered.get("overloaded"):
        return []
    return [
        f"{format_number(offered['per_s'], 6)} requests/s were offered, and "
        f"{rate:.0f} requests/s are what goes through: the latency there is that of overload; "
        "offer less"
    ]


def _tls(full: Mapping[str, Any]) -> dict[str, Any]:
    """Return what client and proxy agreed on for TLS; empty without TLS."""
    agreed = full.get("tls")
    return dict(agreed) if isinstance(agreed, Mapping) else {}


def _plain_account(found: CpuAccount) -> dict[str, Any]:
    reported = {name: value for name, value in asdict(found).items() if value is not None}
    spent = (asdict(each) for each in found.spent)
    reported["spent"] = [{k: v for k, v in each.items() if v is not None} for each in spent]
    return reported


def _cost(rounds: Sequence[Mapping[str, Any]], found: CpuAccount, rate: float) -> dict[str, float]:
    """Return the machine's cost on the host while the CPUs were observed, in seconds."""
    if found.machine_s is None:
        return {}
    watched = "host" if "host" in rounds[0]["accounts"] else "machine"
    seconds = sum(number(each, ["accounts", watched, "seconds"]) for each in rounds)
    return {"cpu_s": found.machine_s * rate * seconds, "wall_s": seconds}


def _slowest_look(rounds: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return a warning if reading the host's threads took much of the time in any round."""
    hosts = [each["accounts"]["host"] for each in rounds if "host" in each["accounts"]]
    return slow_look(max(hosts, key=_look_s)) if hosts else []


def _look_s(host: Mapping[str, Any]) -> float:
    return float(host.get("look_s", 0.0))


def packets(machine: Mapping[str, Any], interface: str) -> dict[str, float]:
    """Return packets per second and their mean sizes in bytes, of one interface.

    Args:
        machine: The machine's account.
        interface: The name of the interface.

    Raises:
        KeyError: There is no such interface.
        ValueError: The interface's line is damaged, or no time has passed.
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
