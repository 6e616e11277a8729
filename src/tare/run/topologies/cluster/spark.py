"""Spark's event log of a job, read from the master's disk."""

from __future__ import annotations

import base64
import binascii
import bz2
from collections.abc import Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from tare.errors import MachineFault, WorkloadFault
from tare.workloads.mapreduce.configuration import DATA
from tare.workloads.mapreduce.spark import EVENTS as FOLDER
from tare.workloads.mapreduce.spark_history import EVENTS, events_in, job_of_log, lost_tasks

if TYPE_CHECKING:
    from tare.run.topologies.cluster.member import Member

AT_ONCE = 150_000
"""Bytes per request: more would not fit into one answer."""
MOST_BYTES = 512 << 20
"""The most bytes of an unpacked log; a task takes about 4 kB."""
FORGET = f"rm -rf {FOLDER} {FOLDER}.bz2 && mkdir -p {FOLDER}"
"""Removes old logs before a job, so that its log is the only one."""
_PACK = (
    f'cat {FOLDER}/* 2>/dev/null | grep -E \'^."Event":"SparkListener({"|".join(EVENTS)})"\' | '
    f"bzip2 -1 >{FOLDER}.bz2; stat -c %s {FOLDER}.bz2"
)
_READ = f'tail -c +"$1" {FOLDER}.bz2 | head -c {AT_ONCE} | base64 -w 0'
_PACK_S = 600.0
# The last errors of the newest application's containers.
_ERRORS = (
    f"newest=$(ls -td {DATA}/containers/application_* 2>/dev/null | head -n 1); "
    "grep -h ' ERROR ' $newest/*/stderr 2>/dev/null | tail -n 1 | cut -c1-300; :"
)


async def spark_job(master: Member) -> dict[str, Any]:
    """Return the event log's record of the ended job.

    Raises:
        MachineFault: It cannot be read, or has no job that succeeded.
    """
    log = await _log(master)
    try:
        return job_of_log(log)
    except (LookupError, TypeError, ValueError) as error:
        raise MachineFault(f"Spark's event log cannot be read: {error!r}") from error


async def spark_losses(master: Member, slaves: Iterable[Member]) -> tuple[str, ...]:
    """Return a sentence for each lost task and executor.

    The event log has the tasks. An executor that did not start only logs why in its own log.
    """
    losses = [*await _lost_tasks(master)]
    with suppress(MachineFault, WorkloadFault):
        for slave in slaves:
            lines = (await slave.output(_ERRORS)).splitlines()
            losses += [f"{slave.name}: {line}" for line in lines]
    return tuple(losses)


async def _lost_tasks(master: Member) -> tuple[str, ...]:
    try:
        log = await _log(master)
    except (MachineFault, WorkloadFault):
        return ()
    return lost_tasks(
        [event for event in events_in(log) if event["Event"] == "SparkListenerTaskEnd"]
    )


async def _log(master: Member) -> str:
    size = await master.output(_PACK, timeout_s=_PACK_S)
    if not size.strip().isdecimal():
        raise MachineFault(f"Spark's event log cannot be read: {size.strip()[:200]}")
    packed = bytearray()
    while len(packed) < int(size):
        part = await master.output(_READ, str(len(packed) + 1))
        try:
            packed += (got := base64.b64decode(part, validate=True))
        except (binascii.Error, ValueError) as error:
            raise MachineFault(f"Spark's event log cannot be read: {error}") from error
        if not got:
            raise MachineFault("Spark's event log is truncated")
    return unpacked(bytes(packed))


def unpacked(packed: bytes) -> str:
    """Return the text that was packed by bzip2.

    Raises:
        MachineFault: It is damaged, or more than :data:`MOST_BYTES`.
    """
    reader = bz2.BZ2Decompressor()
    try:
        text = reader.decompress(packed, MOST_BYTES)
    except (OSError, EOFError) as error:
        raise MachineFault(f"Spark's event log is damaged: {error}") from error
    if not reader.eof:
        more = len(text) >= MOST_BYTES
        raise MachineFault(f"Spark's event log is {'too large' if more else 'damaged'}")
    return text.decode(errors="replace")
