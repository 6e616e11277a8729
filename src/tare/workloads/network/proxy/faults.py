"""List the faults while the proxy forwarded requests: each with its name and its count."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from typing import Any

from tare.workloads.network.ends import ORIGIN
from tare.workloads.network.proxy import kernel_text as kernel
from tare.workloads.network.proxy.preparation import PORTS, SCARCE

CLIENT, MACHINE, PROXY, SWITCH = "client", "machine", "haproxy", "switch"
_WORDS = {
    "ListenOverflows": "connections that found the queue of a listener full",
    "TCPReqQFullDrop": "connections that found no room for their first packet",
    "TCPAbortOnMemory": "connections given up for want of memory",
    "insert_failed": "connections that connection tracking could not take in",
    "drop": "packets that connection tracking dropped",
    "early_drop": "connections that connection tracking gave up for new ones",
    PORTS: "connections in TIME_WAIT, which may have left no port to connect from",
    "econ": "connections to the origin that could not be made",
    "eresp": "answers of the origin that broke off or were none",
    "hrsp_5xx": "answers of HAProxy’s own that say it could not pass a request",
}
_COUNTERS = ("ListenOverflows", "TCPReqQFullDrop", "TCPAbortOnMemory")
_TRACKED = ("insert_failed", "drop", "early_drop")
_SERVER, _FRONTEND = ("econ", "eresp"), ("hrsp_5xx",)


def faults_of(
    stages: Mapping[str, Mapping[str, Any]],
    machine: Mapping[str, Any],
    grew: Mapping[str, int],
    network: Mapping[str, Any] | None = None,
) -> list[dict[str, Any]]:
    """Return each fault: its place (``where``), ``stage``, name (``what``) and ``count``.

    HAProxy's own counts cover its whole run. The counts of the machine's kernel cover the time in
    which the CPUs were observed.

    Args:
        stages: The client's results, by stage.
        machine: The account of the machine.
        grew: The increase of each counter of the machine's kernel meanwhile.
        network: The network of the machines; ``tracked`` has what its switch tracked and lost.
    """
    found = [
        _fault(CLIENT, name, what, count)
        for name, stage in stages.items()
        for what, count in _counts(stage.get("errors")).items()
    ]
    found += [_fault(MACHINE, "full", name, grew.get(f"TcpExt:{name}", 0)) for name in _COUNTERS]
    before, after = machine.get("before", {}), machine.get("after", {})
    first, last = (kernel.tracked(texts.get(kernel.TRACKED, "")) for texts in (before, after))
    found += [
        _fault(MACHINE, "full", name, last.get(name, 0) - first.get(name, 0)) for name in _TRACKED
    ]
    answers = machine.get("said", {})
    rows = _rows(str(answers.get("show stat", ""))) if isinstance(answers, Mapping) else []
    origins = [row for row in rows if row.get("svname", "").startswith(ORIGIN)]
    unconnected = _sum(origins, "econ")
    ports = kernel.waiting_ports(after)
    # The kernel's count includes connections on a listener's port, which use up no port. They are
    # therefore a fault only if connections could not be made.
    if unconnected and ports is not None and ports[0] >= SCARCE * ports[1] * len(origins) > 0:
        found.append(_fault(MACHINE, "full", PORTS, ports[0]))
    fronts = [row for row in rows if row.get("svname") == "FRONTEND"]
    for asked, columns in ((origins, _SERVER), (fronts, _FRONTEND)):
        found += [_fault(PROXY, "", what, _sum(asked, what)) for what in columns]
    found += [_fault(SWITCH, "", what, count) for what, count in _lost(network or {}).items()]
    return [each for each in found if each["count"] > 0]


def _lost(network: Mapping[str, Any]) -> dict[str, int]:
    """Return the packets that a switch's connection tracking lost, by the reason's name."""
    tracked = network.get("tracked")
    return _counts(tracked.get("lost")) if isinstance(tracked, Mapping) else {}


def fault_warnings(faults: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return a warning for each fault that the machine's kernel or HAProxy counted.

    Clients and switches report their faults in warnings of their own.
    """
    return [
        f"{each['where']}: {each['count']} {_WORDS.get(each['what'], each['what'])}"
        for each in faults
        if each["where"] in (MACHINE, PROXY)
    ]


def _fault(where: str, stage: str, what: str, count: int) -> dict[str, Any]:
    return {"where": where, "stage": stage, "what": what, "count": count}


def _counts(errors: Any) -> dict[str, int]:
    if not isinstance(errors, Mapping):
        return {}
    return {str(what): int(count) for what, count in errors.items() if count}


def _rows(text: str) -> list[dict[str, str]]:
    """Return the rows of HAProxy's statistics (CSV; its management guide, 9.1)."""
    lines = csv.reader(io.StringIO(text.removeprefix("# ")))
    try:
        names, *rest = list(lines) or [[]]
    except csv.Error:
        return []
    return [dict(zip(names, row, strict=False)) for row in rest]


def _sum(rows: Sequence[dict[str, str]], column: str) -> int:
    counts = (row.get(column, "") for row in rows)
    return sum(int(text) for text in counts if text.isdecimal() and text.isascii())
