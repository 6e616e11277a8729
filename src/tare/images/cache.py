"""A cache of built files, in folders that are named after the digest of their inputs.

A folder appears complete, by one rename, with a manifest that holds the SHA-256 digest of every
file in it. A folder whose files no longer agree with its manifest is built again. A folder that
was not used for :data:`KEPT_DAYS` days is removed when something new is built, because each version
of a kernel or of Tare's agent makes images of its own.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from contextvars import ContextVar
from pathlib import Path
from typing import Any, NamedTuple

from tare.errors import InputError
from tare.outputs import unwritable

MANIFEST = "manifest.json"
KEPT_DAYS = 30
KEPT = "kept"
"""A file that protects its folder from removal: an imported folder cannot be built again."""
MOVING = "or set XDG_CACHE_HOME to a folder on another disk"
_LOCK_RETRY_S = 0.02
_TRIAL_S = 10.0

WhileWaiting = Callable[[Path], AbstractAsyncContextManager[None]]
"""A context that is entered with the lock file's path while another process holds the cache."""
_while_waiting: ContextVar[tuple[WhileWaiting, ...]] = ContextVar("while_waiting", default=())


@contextlib.contextmanager
def while_waiting(what: WhileWaiting) -> Iterator[None]:
    """Enter the context ``what`` whenever a call in this block waits for another builder.

    Builders are called through every platform, far below the code that holds a host or shows
    progress. A context variable avoids a parameter in all of these calls.
    """
    before = _while_waiting.set((*_while_waiting.get(), what))
    try:
        yield
    finally:
        _while_waiting.reset(before)


def default_cache() -> Path:
    """Return ``$XDG_CACHE_HOME/tare``, or ``~/.cache/tare``; it need not exist."""
    home = os.environ.get("XDG_CACHE_HOME", "")
    # The XDG base directory specification requires that a relative path is ignored.
    return (Path(home) if home.startswith("/") else Path.home() / ".cache") / "tare"


def file_digest(path: Path) -> str:
    """Return the SHA-256 of a file's content, in hexadecimal; raises OSError."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def key_of(parts: Mapping[str, Any]) -> str:
    """Return the SHA-256 of some inputs, in hexadecimal; their order does not matter."""
    text = json.dumps(parts, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def load(folder: Path) -> dict[str, Any] | None:
    """Return the facts of a cached folder, or None if it is missing, incomplete or altered.

    This marks the folder as used.
    """
    try:
        manifest = json.loads((folder / MANIFEST).read_bytes())
        files: dict[str, str] = manifest["files"]
        facts: dict[str, Any] = manifest["facts"]
        intact = all(file_digest(folder / name) == digest for name, digest in files.items())
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
    if not intact or not isinstance(facts, dict):
        return None
    with contextlib.suppress(OSError):  # The folder may be another user's.
        os.utime(folder)
    return facts


def rebuilding(folder: Path) -> tuple[str, ...]:
    """Return the note that a cached folder is damaged and built again; nothing if it is missing.

    Call it after :func:`load` returned None and before the folder is replaced.
    """
    if not folder.exists():
        return ()
    return (f"{folder} in the cache was damaged, so it was built again",)


def publish(draft: Path, folder: Path, facts: Mapping[str, Any]) -> None:
    """Move a finished draft to its place, replacing what is there.

    Args:
        draft: A folder on the same file system, holding the files; a manifest is added.
        folder: Its place in the cache.
        facts: Plain JSON values to find again with :func:`load`.
    """
    files = {
        path.relative_to(draft).as_posix(): file_digest(path)
        for path in sorted(draft.rglob("*"))
        if path.is_file()
    }
    manifest = {"files": files, "facts": dict(facts)}
    (draft / MANIFEST).write_text(json.dumps(manifest, indent=1, sort_keys=True) + "\n")
    if folder.exists():
        shutil.rmtree(folder)
    folder.parent.mkdir(parents=True, exist_ok=True)
    draft.rename(folder)


@contextlib.asynccontextmanager
async def exclusive(cache: Path) -> AsyncIterator[Path]:
    """Keep out other builders, in this process and others, and provide an empty draft folder.

    The draft is removed afterwards unless it was published.

    Raises:
        InputError: The cache cannot be written.
    """
    try:
        cache.mkdir(parents=True, exist_ok=True, mode=0o755)
        lock = os.open(cache / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise unwritable(cache, error, MOVING) from error
    try:
        await _take(lock, cache / "lock")
        _remove_stale(cache)
        _remove_unused(cache)
        draft = Path(tempfile.mkdtemp(prefix="draft-", dir=cache))
        draft.chmod(0o755)
        try:
            yield draft
        except OSError as error:
            raise unwritable(cache, error, MOVING) from error
        finally:
            shutil.rmtree(draft, ignore_errors=True)
    finally:
        os.close(lock)


class Stored(NamedTuple):
    """A folder of the cache.

    Args:
        facts: Its facts.
        cached: Whether it was in the cache already.
        notes: If it was damaged and built again, the note that says so.
    """

    facts: dict[str, Any]
    cached: bool
    notes: tuple[str, ...] = ()


async def load_or_build(
    cache: Path, folder: Path, build: Callable[[Path], Awaitable[dict[str, Any]]]
) -> Stored:
    """Find a folder in the cache, or build it while other builders are kept out.

    Args:
        cache: The cache.
        folder: The folder in it.
        build: Called with an empty draft folder; publishes the folder and returns its facts.

    Raises:
        InputError: The cache cannot be written, or the folder cannot be built.
    """
    if (facts := await asyncio.to_thread(load, folder)) is not None:
        return Stored(facts, cached=True)
    async with exclusive(cache) as draft:
        # Another builder may have been first.
        if (facts := await asyncio.to_thread(load, folder)) is not None:
            return Stored(facts, cached=True)
        notes = rebuilding(folder)
        return Stored(await build(draft), cached=False, notes=notes)


def require_disk(words: str, place: Path) -> None:
    """Raise InputError if a program that wrote into the cache reports a full disk or quota.

    Args:
        words: What the program printed.
        place: The place that it wrote to.
    """
    for number in (errno.ENOSPC, errno.EDQUOT):
        if os.strerror(number) in words:
            raise unwritable(place, OSError(number, os.strerror(number)), MOVING)


def require_running(draft: Path) -> None:
    """Check that programs can run from a cache, by running one there.

    Args:
        draft: A folder in the cache.

    Raises:
        InputError: They cannot, for example because the file system is mounted noexec.
        OSError: The program cannot be written.
    """
    program = draft / "trial"
    program.write_bytes(b"#!/bin/sh\n")
    program.chmod(0o755)
    try:
        subprocess.run([program], check=False, timeout=_TRIAL_S, stdin=subprocess.DEVNULL)
    except PermissionError as error:
        raise InputError(
            f"programs cannot run from the cache {draft.parent}, and what is built there is run "
            "there once",
            "set XDG_CACHE_HOME to a folder that is not mounted noexec, such as "
            f"XDG_CACHE_HOME=/var/tmp/tare-cache (findmnt -T {draft.parent} shows the mount)",
        ) from error
    except subprocess.TimeoutExpired:
        pass  # The computer is busy. If something else is wrong, the build reports it.
    finally:
        program.unlink(missing_ok=True)


async def _take(lock: int, path: Path) -> None:
    """Take a cache's lock; enter the contexts of waiting while another process holds it."""
    if _taken(lock):
        return
    async with AsyncExitStack() as waiting:
        for what in _while_waiting.get():
            await waiting.enter_async_context(what(path))
        while True:
            if _taken(lock):
                break
            await asyncio.sleep(_LOCK_RETRY_S)


def _taken(lock: int) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _remove_stale(cache: Path) -> None:
    # A draft exists only while its builder holds the lock, unless the builder was killed.
    for draft in cache.glob("draft-*"):
        shutil.rmtree(draft, ignore_errors=True)


def _remove_unused(cache: Path) -> None:
    oldest = time.time() - KEPT_DAYS * 86400
    for manifest in cache.glob(f"*/*/{MANIFEST}"):
        with contextlib.suppress(OSError):
            kept = (manifest.parent / KEPT).exists()
            if not kept and manifest.parent.stat().st_mtime < oldest:
                shutil.rmtree(manifest.parent, ignore_errors=True)
