"""Take the pages of a trace buffer from its file, here or on another host, until it is empty."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from tare.hosts.contract import Host

PAGE = 4096
_READ_S = 120.0


def local_pages(path: Path) -> Iterator[bytes]:
    """Yield the pages that are in the buffer; each is taken out of it."""
    source = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        while page := _next_page(source):
            yield page
    finally:
        os.close(source)


def _next_page(source: int) -> bytes:
    try:
        return os.read(source, PAGE)
    except BlockingIOError:
        return b""


async def far_pages(host: Host, path: Path) -> Sequence[bytes]:
    """Return the pages that are in a buffer of another host; they are taken out of it.

    Raises:
        OSError: The host has nothing to read it with.
    """
    # At the end the kernel has it wait, which dd takes for an error: what it read before counts.
    argv = ["dd", f"if={path}", f"bs={PAGE}", "iflag=nonblock", "status=none"]
    done = await host.run(argv, timeout_s=_READ_S)
    if not done.ok and not done.stdout and b"temporarily unavailable" not in done.stderr:
        raise OSError(f"{host.name} cannot read {path}: {done.words()}")
    return [done.stdout[at : at + PAGE] for at in range(0, len(done.stdout), PAGE)]
