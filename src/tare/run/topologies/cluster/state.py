"""What Hadoop's daemons say of a cluster: whether it is up, and what was written to it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

# No `GenericExceptionHandler`, of which servers tell that they have one.
_TELLING = re.compile("ERROR|FATAL|Exception(?![A-Za-z])|Error:|ailed|FAILED|No space|killed")
DATANODE_BEAN = "Hadoop:service=DataNode,name=DataNodeActivity-*"


def objects_in(text: str) -> Iterator[Mapping[str, Any]]:
    """Give the JSON objects in a text, one after the other; what is none is passed over."""
    decoder, place = json.JSONDecoder(), 0
    while (place := text.find("{", place)) >= 0:
        try:
            found, place = decoder.raw_decode(text, place)
        except (ValueError, RecursionError):
            place += 1
            continue
        if isinstance(found, dict):
            yield found


def lacking(said: str, slaves: int) -> str:
    """Return what a cluster still lacks before it can be used; empty: nothing.

    Args:
        said: What the NameNode's JMX (``NameNodeInfo``), the ResourceManager's metrics and the
            history server's info say, one after the other, as far as they answer.
        slaves: How many DataNodes and NodeManagers there must be.
    """
    namenode = _namenode(said)
    nodes: int | None = None
    history = False
    for told in objects_in(said):
        metrics = told.get("clusterMetrics")
        if isinstance(metrics, Mapping) and isinstance(metrics.get("activeNodes"), int):
            nodes = metrics["activeNodes"]
        history = history or "historyInfo" in told
    if namenode is None:
        return "the NameNode does not answer"
    alive = _count(namenode.get("LiveNodes"))
    if alive < slaves:
        return f"the NameNode knows {alive} of {slaves} DataNodes with room"
    if namenode["Safemode"]:
        first = str(namenode["Safemode"]).partition(". ")[0]
        return f"the NameNode has not left safe mode: {first}"
    if nodes is None:
        return "the ResourceManager does not answer"
    if nodes < slaves:
        return f"the ResourceManager knows {nodes} of {slaves} NodeManagers"
    return "" if history else "the history server does not answer"


def ready_for_history(said: str) -> bool:
    """Whether HDFS takes new folders, which the history server makes as it starts.

    It makes no files then, so it need not wait for a DataNode. Where it is too early for it, it
    looks again after 10 s (``HistoryFileManager.createHistoryDirs``).
    """
    namenode = _namenode(said)
    return namenode is not None and not namenode["Safemode"]


def _namenode(said: str) -> Mapping[str, Any] | None:
    """Return what the NameNode says of itself; None: it does not answer."""
    beans = (bean for told in objects_in(said) for bean in _list(told.get("beans")))
    found = [bean for bean in beans if isinstance(bean, Mapping) and "Safemode" in bean]
    return found[-1] if found else None


def written(said: str) -> int:
    """Return the bytes that DataNodes have written, out of what their JMX says one by one."""
    return sum(
        int(bean["BytesWritten"])
        for told in objects_in(said)
        for bean in _list(told.get("beans"))
        if isinstance(bean, Mapping) and isinstance(bean.get("BytesWritten"), int)
    )


def _list(value: object) -> Sequence[Any]:
    return value if isinstance(value, list) else ()


def _count(nodes: object) -> int:
    """Return how many DataNodes have room, out of a JSON object that is written as a text.

    One that has registered takes no block before its first heartbeat told how much room it has.
    """
    try:
        told = json.loads(nodes) if isinstance(nodes, str) else {}
    except (ValueError, RecursionError):
        return 0
    about = told.values() if isinstance(told, dict) else ()
    rooms = (each.get("remaining") for each in about if isinstance(each, dict))
    return sum(isinstance(room, int) and room > 0 for room in rooms)


def telling(log: str, most: int = 3) -> str:
    """Return the lines of a daemon's or client's log that say what went wrong; or its last."""
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    found = [line for line in lines if _TELLING.search(line)]
    chosen = found[-most:] or lines[-1:]
    return " / ".join(line[:300] for line in chosen)
