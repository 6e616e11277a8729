"""Copy files that were built on this computer to the host that boots them."""

from __future__ import annotations

import asyncio
import contextlib
import zlib
from pathlib import Path

from tare.errors import MachineFault
from tare.hosts import Host, Process
from tare.images.cache import KEPT_DAYS, file_digest

COPY_S = 900.0
"""Seconds that one copy may take; a silent connection is noticed much earlier."""
_PIECE = 1 << 18
_GZIP = 31
"""The window bits with which zlib writes gzip's format (zlib.h, deflateInit2)."""

_CACHE_HOME = """
home=${XDG_CACHE_HOME:-$HOME/.cache}
case $home in /*) ;; *) home=/var/cache ;; esac
"""

# One script, because each further step would cost a round trip. If two copies of the same file run
# at once, the second waits for the first and finds its file. An interrupted copy leaves a draft,
# which the next one overwrites.
_RECEIVE = (
    """
exec 2>&1
digest=$1 name=$2 size=$3
"""
    + _CACHE_HOME
    + """
folder=$home/tare/shipped
umask 077
mkdir -p "$folder" && cd "$folder" || exit 1
draft=.$digest.part
if command -v flock >/dev/null; then exec 9>".$digest.lock" && flock 9; else draft=$draft.$$; fi
path=$digest-$name
whole() { [ "$1" = read ] || [ "$(sha256sum "$path" | cut -d" " -f1)" = "$digest" ]; }
if [ -f "$path" ] && [ "$(wc -c <"$path")" -eq "$size" ] && whole "$5"; then
    touch "$path"
    echo "have $folder/$path"
    exit 0
fi
find . -maxdepth 1 -type f -mtime +"$4" -exec rm -f {} + 2>/dev/null
trap 'rm -f "$draft"' EXIT
if command -v gzip >/dev/null; then
    echo "send packed"
    gzip -dc >"$draft" || exit 1
elif command -v busybox >/dev/null; then
    echo "send packed"
    busybox gzip -dc >"$draft" || exit 1
else
    echo send
    cat >"$draft" || exit 1
fi
[ "$(sha256sum "$draft" | cut -d" " -f1)" = "$digest" ] || { echo damaged; exit 3; }
mv -f "$draft" "$path" || exit 1
trap - EXIT
echo "have $folder/$path"
"""
)


async def copy_to_host(host: Host, file: Path) -> Path:
    """Return the path of ``file`` on ``host``, copied there unless the host has it already.

    A copy is named by the digest of its content, in ``$XDG_CACHE_HOME/tare/shipped`` of the host's
    user. Each version of a file is therefore sent once, in pieces. An existing copy is verified
    once while the host is held, and replaced if it is damaged. A copy that was not used for
    :data:`KEPT_DAYS` days is removed when a new one arrives.

    Args:
        host: The host that needs the file.
        file: A file on this computer.

    Raises:
        MachineFault: The host has no room for it, or received it damaged.
        OSError: The file cannot be read.
    """
    if host.local:
        return file
    digest = await asyncio.to_thread(file_digest, file)
    read = "read" if digest in host.read_copies else ""
    words = [digest, file.name, str(file.stat().st_size), str(KEPT_DAYS), read]
    process = await host.start(["sh", "-c", _RECEIVE, "sh", *words])
    try:
        async with asyncio.timeout(COPY_S):
            answer = await _hand_over(process, file)
            code = await process.wait()
    except TimeoutError:
        raise MachineFault(
            f"{host.name}: {file.name} was not there after {COPY_S:g} s", transient=True
        ) from None
    finally:
        if process.returncode is None:
            await process.kill()
    if code == 0 and answer.startswith("have "):
        host.read_copies.add(digest)
        return Path(answer.removeprefix("have "))
    if answer == "damaged":
        raise MachineFault(f"{host.name}: {file.name} did not arrive unchanged", transient=True)
    raise MachineFault(
        f"{host.name}: {file.name} cannot be copied there: {answer or f'status {code}'}",
        "make room on the host",
    )


async def host_cache(host: Host, here: Path) -> Path:
    """Return a host's folder for Tare's cache.

    Args:
        host: The host.
        here: The cache on this computer.
    """
    if host.local:
        return here
    answer = await host.run(["sh", "-c", _CACHE_HOME + 'printf %s "$home/tare"'], timeout_s=30)
    return Path(answer.stdout.decode())


async def _hand_over(process: Process, file: Path) -> str:
    """Send the file if the host wants it; return the last line that the host printed."""
    line = (await process.stdout.readline()).decode(errors="replace").strip()
    if line not in ("send", "send packed"):
        rest = (await process.stdout.read()).decode(errors="replace").strip()
        return rest.splitlines()[-1] if rest else line
    # If the connection breaks, the host's last line has the reason.
    with contextlib.suppress(ConnectionError):
        with file.open("rb") as source:
            # Compression makes a kernel four times smaller; encryption costs an emulated host more.
            pack = zlib.compressobj(1, wbits=_GZIP) if line == "send packed" else None
            while piece := await asyncio.to_thread(source.read, _PIECE):
                sent = piece if pack is None else await asyncio.to_thread(pack.compress, piece)
                process.stdin.write(sent)
                await process.stdin.drain()
            if pack is not None:
                process.stdin.write(pack.flush())
                await process.stdin.drain()
        process.stdin.close()
    lines = (await process.stdout.read()).decode(errors="replace").strip().splitlines()
    return lines[-1] if lines else ""
