"""Bring files that were built on this computer to the host that boots them."""

from __future__ import annotations

import asyncio
from pathlib import Path, PurePosixPath

from tare.errors import MachineFault
from tare.hosts import Host
from tare.hosts.local import LocalHost
from tare.images.cache import file_digest

_COPY_S = 600.0


async def at_host(host: Host, file: Path) -> Path:
    """Return the path of ``file`` on ``host``, copied there unless the host has it already.

    Copies are named by their content below ``$XDG_CACHE_HOME/tare/shipped`` of the host's user, so
    each version of a file travels once.

    Args:
        host: Where the file is needed.
        file: A file on this computer.

    Raises:
        MachineFault: The host has no room for it, or did not get it as it is.
        OSError: The file cannot be read.
    """
    if isinstance(host, LocalHost):
        return file
    digest = await asyncio.to_thread(file_digest, file)
    folder = await _shipped(host)
    there = folder / f"{digest}-{file.name}"
    if await host.exists(str(there)):
        return Path(there)
    made = await host.run(["mkdir", "-p", "-m", "700", str(folder)], timeout_s=30)
    if not made.ok:
        raise MachineFault(f"{host.name}: {made.words()}", "make room on the host")
    draft = f"{there}.part"
    try:
        await host.write(draft, await asyncio.to_thread(file.read_bytes))
    except OSError as error:
        raise MachineFault(
            f"{host.name}: {file.name} cannot be copied there: {error.strerror or error}",
            "make room on the host",
        ) from error
    said = await host.run(["sha256sum", draft], timeout_s=_COPY_S)
    if said.stdout.split()[:1] != [digest.encode()]:
        raise MachineFault(
            f"{host.name}: {file.name} did not arrive as it was sent", transient=True
        )
    moved = await host.run(["mv", draft, str(there)], timeout_s=30)
    if not moved.ok:
        raise MachineFault(f"{host.name}: {moved.words()}")
    return Path(there)


async def _shipped(host: Host) -> PurePosixPath:
    asked = ["sh", "-c", 'printf %s "${XDG_CACHE_HOME:-$HOME/.cache}"']
    said = await host.run(asked, timeout_s=30)
    return PurePosixPath(said.stdout.decode().strip() or "/var/cache") / "tare" / "shipped"
