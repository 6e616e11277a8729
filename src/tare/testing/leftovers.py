"""Find what a machine that has ended left on its host, which should be nothing."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from tare.hosts.contract import Host
from tare.hosts.ledger.ledger import Ledger
from tare.hosts.loops import attached, mounted
from tare.hosts.processes import find_by_token
from tare.platforms.contract import MachineSpec

NETWORK = frozenset({"link", "netns"})
"""Kinds of ledger entries that belong to a machine's network, not to the machine."""
_LOOK_S = 30.0
# The name is passed by standard input; on the command line, grep would find itself.
_BY_NAME = """
name=$(cat)
find /sys/fs/cgroup -depth -type d -name "*$name*" -printf 'the control group %p\\n' 2>/dev/null
printf %s "$name" | grep -F -f - /proc/mounts | sed 's/^/the mount /'
printf %s "$name" | grep -lsF -f - /proc/[0-9]*/cmdline | sed 's/^/the process /'
"""


async def remains_of(host: Host, spec: MachineSpec) -> list[str]:
    """Return descriptions of a machine's remains: control groups, mounts, processes, its folder."""
    looked = await host.run(["sh", "-c", _BY_NAME], input=spec.name.encode(), timeout_s=_LOOK_S)
    found = looked.stdout.decode(errors="replace").splitlines()
    if await host.exists(spec.workdir):
        found.append(f"the directory {spec.workdir}")
    return found


async def remains_in(
    host: Host, ledger: Ledger, numbers: Iterable[int], ignored: frozenset[str] = frozenset()
) -> list[str]:
    """Return ledger entries that are open, and closed ones whose object still exists.

    Args:
        host: The host of the entries' objects.
        ledger: The ledger.
        numbers: The entries' numbers.
        ignored: Kinds of entries to skip.
    """
    wanted = frozenset(numbers)
    listed = [
        f"the ledger's entry {entry.kind} {dict(entry.details)}"
        for entry in ledger.open_entries()
        if entry.number in wanted and entry.kind not in ignored
    ]
    for line in map(json.loads, ledger.path.read_text(encoding="utf-8").splitlines()):
        if line.get("entry") not in wanted or line["kind"] in ignored:
            continue
        is_there = _IS_THERE.get(line["kind"])
        if is_there is not None and await is_there(host, line["details"]):
            listed.append(f"the {line['kind']} {line['details']}")
    return listed


async def _process(host: Host, details: Mapping[str, Any]) -> bool:
    return bool(await find_by_token(host, details["token"]))


async def _path(host: Host, details: Mapping[str, Any]) -> bool:
    return await host.exists(details["path"])


async def _mount(host: Host, details: Mapping[str, Any]) -> bool:
    return await mounted(host, Path(details["path"]))


async def _loop(host: Host, details: Mapping[str, Any]) -> bool:
    return bool(await attached(host, Path(details["path"])))


async def _link(host: Host, details: Mapping[str, Any]) -> bool:
    return await host.exists(f"/sys/class/net/{details['name']}")


async def _netns(host: Host, details: Mapping[str, Any]) -> bool:
    return await host.exists(f"/run/netns/{details['name']}")


_IS_THERE: Mapping[str, Callable[[Host, Mapping[str, Any]], Awaitable[bool]]] = {
    "process": _process,
    "cgroup": _path,
    "directory": _path,
    "file": _path,
    "mount": _mount,
    "loop": _loop,
    "link": _link,
    "netns": _netns,
}
"""Functions that check whether an entry's object exists, by kind, without platforms' kinds."""
