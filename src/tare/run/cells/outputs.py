"""Output and logs of measured programs, kept so that anyone can check the values."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tare.outputs import put
from tare.run.cells.series import file_stem

if TYPE_CHECKING:
    from tare.hosts import Host
    from tare.run.lifecycle.folder import RunFolder
    from tare.workloads.contract import Workload

MOST_LOG_BYTES = 4 << 20
"""The most bytes of each log; the end of a longer log is kept."""


def save_output(
    folder: RunFolder, cell: str, workload: Workload[Any], result: Mapping[str, Any]
) -> str:
    """Write the output of a cell's program into the run's folder.

    Args:
        folder: The run's folder.
        cell: The cell's identity.
        workload: The cell's workload; it names the key of the program's output in a result.
        result: The agent's result.

    Returns:
        The file's path relative to the folder; empty if there is no output.
    """
    key = workload.own_words
    output = result.get(key)
    if not output:
        return ""
    plain = isinstance(output, str)
    path = folder.outputs / f"{file_stem(cell, 'subject', key)}.{'txt' if plain else 'json'}"
    path.parent.mkdir(exist_ok=True)
    text = output if plain else json.dumps(output, indent=1)
    put(path, str(text).encode(errors="replace"))
    return folder.relative(path)


def digests(folder: RunFolder, names: Iterable[str]) -> dict[str, str]:
    """Return the SHA-256, in hexadecimal, of each file that exists.

    Args:
        folder: The run's folder.
        names: Files, and folders with all their files, relative to it.
    """
    found: dict[str, str] = {}
    for name in names:
        root = folder.path / name
        for path in [root] if root.is_file() else sorted(root.rglob("*")):
            # An unreadable file does not fail the cell; it just has no digest.
            with suppress(OSError):
                if path.is_file() and not path.is_symlink():
                    with path.open("rb") as file:
                        digest = hashlib.file_digest(file, "sha256").hexdigest()
                    found[folder.relative(path)] = digest
    return found


def logs_and_files(folder: RunFolder, names: tuple[str, ...]) -> dict[str, Any]:
    """Return the fields of a cell's last event that name its logs, with their digests."""
    written = [name for name in names if (folder.path / name).is_file()]
    return {"logs": names, "files": digests(folder, written)}


async def save_logs(host: Host, workdir: Path, kept: Path) -> None:
    """Copy the last :data:`MOST_LOG_BYTES` of each log of a machine.

    Args:
        host: The host of the machine.
        workdir: Its folder there.
        kept: The target in the run's folder; created if there are logs.

    Raises:
        MachineFault: The host does not answer.
    """
    for log, end in (await host.ends(workdir, "*.log", MOST_LOG_BYTES)).items():
        # A log that cannot be written does not fail the cell.
        with suppress(OSError):
            kept.mkdir(exist_ok=True)
            (kept / log.name).write_bytes(end)
