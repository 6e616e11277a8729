"""A run through a proxy with values chosen for tests; none of them was measured."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from report.report_run_begin import BLOCKS, begin
from tare.events import (
    BlockFinished,
    BlockStarted,
    CellFinished,
    CellStarted,
    EventLog,
    Observed,
    PlatformChecked,
    RunFinished,
)

SIZES = (0, 8192)
RATES = {"bare": 40_000.0, "kvm": 20_000.0, "tcg": 1000.0}
LIMIT = "client used 98 % of their CPU time"
"""In the first block; in each that follows it is one percent less."""
SPENT: dict[str, tuple[tuple[str, str, float], ...]] = {
    "bare": (
        ("host", "haproxy kernel", 0.34),
        ("host", "haproxy user", 0.06),
        ("host", "idle", 0.6),
        ("inside", "system", 1.0),
    ),
    "kvm": (
        ("host", "netback", 0.5),
        ("host", "the machine’s vCPUs", 0.2),
        ("host", "processes below 1 %: sh, cat", 0.3),
        ("inside", "softirq", 1.0),
    ),
    "tcg": (("host", "the machine’s vCPUs", 1.0), ("inside", "user", 1.0)),
}


INFO = "Name: HAProxy\nNbthread: 2\nIdle_pct: 3\nNode: n\n"
"""What HAProxy says of itself in each cell."""
OFFERED_S = {"bare": 0.001, "kvm": 0.002, "tcg": 0.02}
"""How long an answer takes at the rate that all are offered."""


def write_proxied_run(folder: Path, limited: tuple[str, ...] = (), **about: Any) -> Path:
    """Write a run in which ``kvm`` lets half through of what ``bare`` does.

    Args:
        folder: Where to.
        limited: Arms whose client was the limit.
        about: Further entries in the record of each proxied cell.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with EventLog(folder / "events.jsonl") as log:
        begin(
            log,
            "invented-2",
            "load-balancer",
            cpus=2,
            memory=1 << 28,
            arms=RATES,
            scenarios={"proxied": {"subject": {"cpus": "pinned"}}},
            workload="proxy",
        )
        for arm in RATES:
            checked: dict[str, Any] = {
                "arm": arm,
                "platform": "bare",
                "options": {},
                "usable": True,
            }
            log.append(PlatformChecked(**checked, emulated=arm == "tcg"))
        for block in range(1, BLOCKS + 1):
            log.append(BlockStarted(block=block, order=()))
            for arm in RATES:
                for size in SIZES:
                    _cell(log, block, arm, size, arm in limited, about)
            log.append(BlockFinished(block=block))
        log.append(RunFinished(status="complete", wall_s=9.0))
    return folder


def _cell(
    log: EventLog, block: int, arm: str, size: int, limited: bool, about: dict[str, Any]
) -> None:
    cell = f"b{block:03d}/{arm}/proxied/proxy[size={size}]"
    # What a block has in common cancels out of every loss.
    rate = RATES[arm] * (1 + 0.1 * block) / (1 + size / 8192)
    where: dict[str, Any] = {"block": block, "arm": arm, "scenario": "proxied", "workload": "proxy"}
    log.append(CellStarted(cell=cell, parameters={"size": size}, **where))
    least = "-at-least" if limited else ""
    values = {
        f"requests{least}": (rate, "1/s"),
        f"bandwidth{least}": (rate * size, "B/s"),
        "concurrency": (8.0 * (1 + block % 2), "1"),
        "direct": (3 * rate, "1/s"),
        "straight": (4 * rate, "1/s"),
        "packets-in": (10 * rate, "1/s"),
        "packet-in": (size / 10, "B"),
        "packets-out": (5 * rate, "1/s"),
        "packet-out": (size / 5 + 60, "B"),
        "cpu-per-request": (1 / rate, "s"),
        "response-offered-median": (OFFERED_S[arm] * (1 + 0.1 * block), "s"),
    }
    for metric, (value, unit) in values.items():
        better = "neither" if least or metric not in ("requests", "bandwidth") else "higher"
        better = "lower" if metric.startswith("response") else better
        event: dict[str, Any] = {"metric": metric, "unit": unit, "better": better, "value": value}
        headline = metric in ("requests", "cpu-per-request")
        log.append(Observed(cell=cell, role="subject", kind="typical", headline=headline, **event))
    spent = [
        {"where": where, "who": who, "share": share, "per_request_s": share / rate}
        for where, who, share in SPENT[arm]
    ]
    account = {"spent": spent, "cpus": 2, "softirq": 0.1 / rate, "hardirq": 0.01 / rate}
    limits = [LIMIT.replace("98", str(99 - block))] * limited
    facts = {
        "proxy": {
            "size": size,
            "limits": limits,
            "account": account,
            "said": {"show info": INFO},
            "offered": {"per_s": 50.0, "overloaded": False},
            **about,
        },
        "host_cost": {},
    }
    log.append(CellFinished(cell=cell, status="ok", measured_s=1.0, facts=facts))
