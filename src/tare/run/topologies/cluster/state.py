"""The state of a cluster from its daemons' reports: whether it is ready, and the bytes written."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

# Not `GenericExceptionHandler`: servers log that they have one.
_ERRORS = re.compile("ERROR|FATAL|Exception(?![A-Za-z])|Error:|ailed|FAILED|No space|killed")
DATANODE_BEAN = "Hadoop:service=DataNode,name=DataNodeActivity-*"


def objects_in(text: str) -> Iterator[Mapping[str, Any]]:
    """Yield the JSON objects in a text, one after the other; skip everything else."""
    decoder, start = json.JSONDecoder(), 0
    while (start := text.find("{", start)) >= 0:
        try:
            found, start = decoder.raw_decode(text, start)
        except (ValueError, RecursionError):
            start += 1
            continue
        if isinstance(found, dict):
            yield found


def missing_part(answers: str, slaves: int) -> str:
    """Return the part that a cluster still lacks before it is ready; empty if it is ready.

    Args:
        answers: The NameNode's JMX (``NameNodeInfo``), the ResourceManager's metrics and the
            history server's info, one after the other, as far as they answer.
        slaves: The required number of DataNodes and NodeManagers.
    """
    namenode = _namenode(answers)
    nodes: int | None = None
    history = False
    for answer in objects_in(answers):
        metrics = answer.get("clusterMetrics")
        if isinstance(metrics, Mapping) and isinstance(metrics.get("activeNodes"), int):
            nodes = metrics["activeNodes"]
        history = history or "historyInfo" in answer
    if namenode is None:
        return "the NameNode does not answer"
    alive = _count(namenode.get("LiveNodes"))
    if alive < slaves:
        return f"the NameNode knows {alive} of {slaves} DataNodes with free space"
    if namenode["Safemode"]:
        first = str(namenode["Safemode"]).partition(". ")[0]
        return f"the NameNode has not left safe mode: {first}"
    if nodes is None:
        return "the ResourceManager does not answer"
    if nodes < slaves:
        return f"the ResourceManager knows {nodes} of {slaves} NodeManagers"
    return "" if history else "the history server does not answer"


def is_ready_for_history(answers: str) -> bool:
    """Return whether HDFS accepts new folders, which the history server creates when it starts.

    It creates no files then, so it does not need a DataNode. If it starts too early, it tries again
    after 10 s (``HistoryFileManager.createHistoryDirs``).
    """
    namenode = _namenode(answers)
    return namenode is not None and not namenode["Safemode"]


def _namenode(answers: str) -> Mapping[str, Any] | None:
    """Return the NameNode's report on itself; None: it does not answer."""
    beans = (bean for answer in objects_in(answers) for bean in _list(answer.get("beans")))
    found = [bean for bean in beans if isinstance(bean, Mapping) and "Safemode" in bean]
    return found[-1] if found else None


def written(answers: str) -> int:
    """Return the bytes that DataNodes have written, according to the JMX of each."""
    return sum(
        int(bean["BytesWritten"])
        for answer in objects_in(answers)
        for bean in _list(answer.get("beans"))
        if isinstance(bean, Mapping) and isinstance(bean.get("BytesWritten"), int)
    )


def _list(value: object) -> Sequence[Any]:
    return value if isinstance(value, list) else ()


def _count(nodes: object) -> int:
    """Return the number of DataNodes with free space, from a JSON object in a text.

    A registered DataNode takes no block before its first heartbeat reports its free space.
    """
    try:
        listed = json.loads(nodes) if isinstance(nodes, str) else {}
    except (ValueError, RecursionError):
        return 0
    about = listed.values() if isinstance(listed, dict) else ()
    rooms = (each.get("remaining") for each in about if isinstance(each, dict))
    return sum(isinstance(room, int) and room > 0 for room in rooms)


def error_lines(log: str, most: int = 3) -> str:
    """Return the last lines with errors of a daemon's or client's log, or its last line."""
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    found = [line for line in lines if _ERRORS.search(line)]
    chosen = found[-most:] or lines[-1:]
    return " / ".join(line[:300] for line in chosen)
