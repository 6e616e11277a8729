"""Agents' results of a proxied load, built from a few numbers: the material of its tests."""

from __future__ import annotations

from typing import Any

HERTZ = 100
DEVICES = "Inter-|\n face |\n  eth0: {} {} 0 0 0 0 0 0 {} {} 0 0 0 0 0 0\n"


def stat(*cpus: dict[str, int]) -> str:
    """Return a /proc/stat of these CPUs."""
    kinds = ("user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal")
    lines = [f"cpu{n} " + " ".join(str(c.get(k, 0)) for k in kinds) for n, c in enumerate(cpus)]
    return "\n".join(["cpu  1 2 3", *lines, "ctxt 5"])


def task(pid: int, process: str, seconds: float, **more: Any) -> list[Any]:
    """Return a row of an account: a thread of ``process`` that ran for so long."""
    ticks = round(seconds * HERTZ)
    user = more.get("user", 0)
    row = [pid, more.get("tid", pid), process, more.get("name", process), user, ticks - user]
    return [*row, more.get("guest", 0), round(seconds * 1e9)]


def account(
    seconds: float, before: str, after: str, tasks: list[list[Any]], **more: Any
) -> dict[str, Any]:
    """Return an account of a stretch of time."""
    texts = more.get("texts", ({}, {}))
    return {
        "seconds": seconds,
        "hertz": HERTZ,
        "before": {"/proc/stat": before, **texts[0]},
        "after": {"/proc/stat": after, **texts[1]},
        "tasks": tasks,
        "parents": more.get("parents", []),
        "said": {},
    }


def stage(rate: float, **more: Any) -> dict[str, Any]:
    """Return a client's result of a load."""
    found = {
        "requests_per_s": rate,
        "connections_per_s": rate,
        "bytes_per_s": rate,
        "connections_used": rate,
        "failed_share": rate,
        "total": {"median_s": rate, "p99_s": rate},
        "errors": {"reset": 0},
    }
    return {**found, **more}


def proxied_result(rate: float = 100.0, direct: float = 1000.0, **more: Any) -> dict[str, Any]:
    """Return all results of the agents: two CPUs for 10 s, the machine a process on the second.

    The client takes 2 s and the origin 1 s of the first CPU; HAProxy 4 s of the second,
    including 1 s of its own; an editor that has nothing to do with it takes 3 s of the first.
    """
    before = stat({}, {})
    after = stat(
        {"user": 100, "system": 500, "idle": 400},
        {"user": 100, "system": 250, "softirq": 50, "idle": 600},
    )
    tasks = [
        task(20, "tare-agent", 2.0),
        task(31, "nginx", 1.0),
        task(11, "haproxy", 4.0, user=100),
        task(99, "editor", 3.0),
    ]
    texts = (
        {"/proc/net/dev": DEVICES.format(0, 0, 0, 0)},
        {"/proc/net/dev": DEVICES.format(60_000, 1000, 30_000, 500)},
    )
    host = account(10.0, before, after, tasks, parents=[[11, 10], [31, 30], [99, 1]])
    probed = {name: stage(rate) for name in ("at-50", "at-70", "at-90", "offered", "probe")}
    return {
        "stages": {
            "straight-4": stage(1.2 * direct),
            "direct-4": stage(direct),
            "proxied-4": stage(rate),
            **probed,
            "full": stage(rate),
        },
        "accounts": {"host": host, "machine": account(10.0, before, after, [], texts=texts)},
        "owners": {
            "machine": [10],
            "client": [20],
            "origin": [30],
            "tare": [5],
            "server": "haproxy",
        },
        "cost": {"cpu_s": 4.0, "wall_s": 10.0},
        "interface": "eth0",
        "outside": {"client": [0], "origin": [0]},
        "cpus": [1],
        "shared": True,
        **more,
    }


def under_xen(**more: Any) -> dict[str, Any]:
    """Return the results of a Xen guest on four CPUs; dom0's kernel sees two of them.

    For 10 s dom0 had 1.3 CPUs (its threads show 1.2), the guest 0.5, another domain 0.2.
    """
    below = {"domain": 3, "cpus": 4, "machine": 0.5, "host": 1.3, "others": {"neighbour-1": 0.2}}
    found = proxied_result(shared=False, below={**below, **more})
    found["owners"] = {"machine": [61], "client": [20], "origin": [30], "tare": [5]}
    found["cost"] = {"cpu_s": 5.0, "wall_s": 10.0}
    busy = {"user": 200, "system": 400, "idle": 300, "steal": 100}
    found["accounts"]["host"]["after"]["/proc/stat"] = stat(busy, {**busy, "idle": 400})
    found["accounts"]["host"]["tasks"] = [
        task(20, "tare-agent", 2.0),
        task(31, "nginx", 1.0),
        task(90, "vif3.0-q0-guest-rx"[:15], 6.0),
        task(91, "vif9.0-q0-guest-rx"[:15], 1.0),
        task(60, "qemu-system-i38", 2.0, tid=61),
    ]
    return found
