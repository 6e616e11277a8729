"""Recovery of a damaged stream up to its last good event, for example after two writers."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from tare.errors import InputError
from tare.events.chain import NO_SEAL, Chain, Sealer, parted, read_seal, seal_path
from tare.events.model import RunStarted
from tare.events.stream import UnreadableStream, read_line
from tare.outputs import put

DAMAGED = "damaged"
"""The suffix of the names of kept damaged streams, before a number."""


@dataclass(frozen=True)
class Repaired:
    """The result of a repair.

    Args:
        kept: The number of good events from the first on.
        lost: The number of lines after them that are removed or missing.
        reason: The error in the first of these; empty if there is none.
        original: The path of the damaged stream; None if nothing was damaged.
    """

    kept: int
    lost: int
    reason: str = ""
    original: Path | None = None


def repair_stream(path: Path) -> Repaired:
    """Cut a stream before the first damaged line; keep the original.

    A line is good if it is an event, has the next number, and its hash follows from all before it.

    Args:
        path: An ``events.jsonl`` file. Nobody else may write to it meanwhile.

    Raises:
        InputError: Its first event is damaged already.
        OSError: It cannot be written; then it is unchanged.
    """
    *whole, torn = path.read_bytes().split(b"\n")
    chain, kept, reason = Chain(read_seal(path)), 0, ""
    for number, line in enumerate(whole, start=1):
        if reason := _wrong(path, number, line, chain):
            break
        kept, good = number, chain.digest
    if not kept:
        raise InputError(
            f"{path}: nothing can be recovered: {reason or 'it holds no whole event'}",
            "restore the folder from a copy, or start a new run",
        )
    doubts = [] if reason else [doubt for doubt in chain.doubts() if doubt != NO_SEAL]
    if not reason and not doubts:
        # Any crash may leave an incomplete last line, which resuming removes.
        return Repaired(kept, 0)
    written = 0 if chain.seal is None else chain.seal.seq + 1
    original = _path_for_original(path)
    os.link(path, original)
    put(path, b"".join(line + b"\n" for line in whole[:kept]))
    seal_path(path).unlink(missing_ok=True)
    if parted(whole[kept - 1])[1]:
        sealer = Sealer(path)
        sealer.keep(kept - 1, good)
        sealer.close()
    lost = max(len(whole) + bool(torn), written) - kept
    return Repaired(kept, lost, reason or f"{path}: {doubts[0]}", original)


def kept_originals(path: Path) -> list[Path]:
    """Return the damaged streams that repairs kept next to a stream, oldest first."""
    return sorted(path.parent.glob(f"{path.stem}.{DAMAGED}-*{path.suffix}"))


def _wrong(path: Path, number: int, line: bytes, chain: Chain) -> str:
    """Return the error in the next line; empty if it has none."""
    try:
        record = read_line(path, number, line)
    except UnreadableStream as error:
        return error.message
    if number == 1 and not isinstance(record.event, RunStarted):
        return f"{path}: line 1: it does not begin the run"
    chain.follow(line)
    if chain.broken:
        return f"{path}: line {number} was changed, or one before it was removed"
    return ""


def _path_for_original(path: Path) -> Path:
    number = len(kept_originals(path)) + 1
    while (free := path.with_name(f"{path.stem}.{DAMAGED}-{number}{path.suffix}")).exists():
        number += 1
    return free
