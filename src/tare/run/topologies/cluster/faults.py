"""Known faults of a cluster, recognised by Hadoop's messages.

Source of the messages: clients and daemons of Hadoop 3.4.2.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

MOST_LINES, MOST_LETTERS = 2, 300


@dataclass(frozen=True)
class Fault:
    """A known fault.

    Args:
        words: Its name in Tare's messages.
        signs: Parts of Hadoop's messages that show it.
        daemon: The daemon with the most relevant log.
    """

    words: str
    signs: tuple[str, ...]
    daemon: str


FAULTS = (
    Fault(
        "a slave's disk is full",
        (
            "No space left on device",
            "DiskOutOfSpaceException",
            "Out of space",
            "could only be written to 0 of",
            "NotEnoughReplicas",
            "no space available in any of the configured local directories",
            "Could not find any valid local directory",
        ),
        "datanode",
    ),
    Fault(
        "the job was killed",
        ("failed with state KILLED", "Kill job job_", "was killed by user", "Job state is KILLED"),
        "resourcemanager",
    ),
    Fault(
        "a NodeManager was lost",
        ("Container released on a *lost* node", "on a lost node", "as it is now LOST"),
        "resourcemanager",
    ),
    Fault(
        "a task ran out of memory",
        ("java.lang.OutOfMemoryError", "beyond the 'PHYSICAL' memory limit", "exit code 137"),
        "nodemanager",
    ),
    Fault(
        "HDFS lost blocks",
        ("BlockMissingException", "Could not obtain block", "MissingBlocksException"),
        "namenode",
    ),
)
"""The known faults, the most certain first."""


def fault_in(text: str) -> Fault | None:
    """Return the known fault in the output of a client or daemon; None: there is none."""
    return next((fault for fault in FAULTS if any(sign in text for sign in fault.signs)), None)


def fault_in_logs(logs: Mapping[str, str]) -> Fault | None:
    """Return the known fault in daemons' logs, if the client's output has none.

    A full disk may keep a job from recording its own end, and its client then reports nothing.

    Args:
        logs: Text by file name.
    """
    return next(
        (each for each in FAULTS if any(lines_of(each, log) for log in logs.values())), None
    )


def lines_of(fault: Fault, log: str) -> str:
    """Return the last lines of a log that show a fault; empty: there are none."""
    found = [
        line.strip()[:MOST_LETTERS]
        for line in log.splitlines()
        if any(sign in line for sign in fault.signs)
    ]
    return " / ".join(list(dict.fromkeys(found))[-MOST_LINES:])
