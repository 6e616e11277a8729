"""Keep what a measured program itself wrote, so that anyone can check what was made of it."""

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
"""Of each log; what a guest says without end is kept from its end."""


def save_output(
    folder: RunFolder, cell: str, workload: Workload[Any], result: Mapping[str, Any]
) -> str:
    """Write what the program of a cell wrote into the run's folder.

    Args:
        folder: The run's folder.
        cell: The cell's identity.
        workload: What the cell measured; it says where a result has its program's own words.
        result: The agent's result.

    Returns:
        The file's path relative to the folder; empty where no program wrote anything.
    """
    key = workload.own_words
    said = result.get(key)
    if not said:
        return ""
    plain = isinstance(said, str)
    path = folder.outputs / f"{file_stem(cell, 'subject', key)}.{'txt' if plain else 'json'}"
    path.parent.mkdir(exist_ok=True)
    text = said if plain else json.dumps(said, indent=1)
    put(path, str(text).encode(errors="replace"))
    return folder.relative(path)


def digests(folder: RunFolder, names: Iterable[str]) -> dict[str, str]:
    """Return the SHA-256, in hexadecimal, of each file that is there by now.

    Args:
        folder: The run's folder.
        names: Files, and folders with all that is in them, relative to it.
    """
    found: dict[str, str] = {}
    for name in names:
        place = folder.path / name
        for path in [place] if place.is_file() else sorted(place.rglob("*")):
            # A file that cannot be read costs no cell; it is then one that nobody vouches for.
            with suppress(OSError):
                if path.is_file() and not path.is_symlink():
                    with path.open("rb") as file:
                        digest = hashlib.file_digest(file, "sha256").hexdigest()
                    found[folder.relative(path)] = digest
    return found


def logs_and_files(folder: RunFolder, names: tuple[str, ...]) -> dict[str, Any]:
    """Return the fields by which the end of a cell names its logs, with their digests."""
    written = [name for name in names if (folder.path / name).is_file()]
    return {"logs": names, "files": digests(folder, written)}


async def save_logs(host: Host, workdir: Path, kept: Path) -> None:
    """Copy the logs of a machine, each as far as :data:`MOST_LOG_BYTES` from its end.

    Args:
        host: Where the machine ran.
        workdir: Its folder there.
        kept: The folder in the run's folder that they go to; made where there are any.

    Raises:
        MachineFault: The host does not answer.
    """
    for log, end in (await host.ends(workdir, "*.log", MOST_LOG_BYTES)).items():
        # A log that cannot be kept costs no cell.
        with suppress(OSError):
            kept.mkdir(exist_ok=True)
            (kept / log.name).write_bytes(end)
