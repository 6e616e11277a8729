"""Follow a file as it grows."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from tare.hosts.contract import Host


@asynccontextmanager
async def tail(host: Host, path: str | Path) -> AsyncIterator[asyncio.StreamReader]:
    """Follow a file from its beginning, also while it is not there yet.

    Args:
        host: Where the file is.
        path: The file.

    Yields:
        A reader of what is in it and of what is appended; it has no end.
    """
    process = await host.start(["tail", "-c", "+1", "-F", str(path)])
    try:
        yield process.stdout
    finally:
        await process.kill()
