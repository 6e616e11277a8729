"""A record of everything that Tare creates, written before creation, so that nothing is lost.

A ledger is a file of JSON lines. The first is ``{"ledger": 1}``, with the ``host`` unless that is
this computer, and with ``reach``, how to reach it (without secrets). Each later line records an
entry, amends one, or marks one as done. Every line is on the disk before the call returns. A torn
last line, as after a crash, is ignored.
"""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tare.errors import InputError

LEDGER_VERSION = 1
LOCAL = "local"
LAB = "lab"
"""The name of the background lab's ledger."""
_KIND = re.compile(r"[a-z][a-z-]{0,39}")


class LedgerInUse(InputError):
    """A running process holds the ledger."""


@dataclass(frozen=True)
class Entry:
    """One resource that Tare created or changed.

    Args:
        number: The entry's position in the ledger, from 0.
        kind: The entry's kind, which decides how it is undone; see
            :mod:`tare.hosts.ledger.cleanup`.
        boot: The boot id of the host when the entry was recorded; processes end with their boot.
        details: The data that undoing it needs.
    """

    number: int
    kind: str
    boot: str
    details: Mapping[str, Any] = field(default_factory=dict)


def state_dir() -> Path:
    """Return the folder of Tare's state, ``$XDG_STATE_HOME/tare``, creating it."""
    home = os.environ.get("XDG_STATE_HOME", "")
    # The XDG specification requires that relative paths there are ignored.
    base = Path(home) if home.startswith("/") else Path.home() / ".local" / "state"
    path = base / "tare"
    path.mkdir(parents=True, exist_ok=True, mode=0o700)
    return path


def ledger_path(run: str) -> Path:
    """Return the file of a run's ledger, creating its directory."""
    folder = state_dir() / "ledgers"
    folder.mkdir(exist_ok=True, mode=0o700)
    return folder / f"{run}.jsonl"


def all_ledgers() -> tuple[Path, ...]:
    """Return the ledger files of all runs, finished or not, by name."""
    return tuple(sorted((state_dir() / "ledgers").glob("*.jsonl")))


class Ledger:
    """The ledger of one run; while it is open, no other process can open it.

    Args:
        path: The ledger's file; it is created if missing.
        host: The name of the host of its entries; a name in the file takes precedence.
        boot: Returns the id of that host's boot.
        reach: The data to reach that host for cleanup; plain JSON, without secrets.

    Raises:
        InputError: Another process holds it; the file is damaged other than by a torn last line; or
            a newer Tare wrote it.
    """

    def __init__(
        self,
        path: Path,
        *,
        host: str = LOCAL,
        boot: Callable[[], str] | None = None,
        reach: Mapping[str, Any] | None = None,
    ) -> None:
        self.path = path
        self.host = host
        self.reach: Mapping[str, Any] | None = reach
        self.guard = asyncio.Lock()
        """Held while reading open entries and acting on them."""
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        try:
            self._lock()
            self._entries, self._open = self._load()
        except BaseException:
            os.close(self._fd)
            raise
        self._boot = boot or boot_id

    def _lock(self) -> None:
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise LedgerInUse(
                f"another running Tare uses the ledger {self.path}",
                "wait for that run, or stop it with Ctrl-C",
            ) from None

    def _load(self) -> tuple[int, dict[int, Entry]]:
        content = self.path.read_bytes()
        whole = content.rfind(b"\n") + 1
        if whole < len(content):
            os.ftruncate(self._fd, whole)
        lines = content[:whole].splitlines()
        if not lines:
            named = {} if self.host == LOCAL else {"host": self.host}
            way = {"reach": dict(self.reach)} if self.reach is not None else {}
            self._append({"ledger": LEDGER_VERSION, **named, **way})
            _sync_directory(self.path.parent)
        found = replay(lines, self.path)
        if lines:
            first = json.loads(lines[0])
            self.host = str(first.get("host", LOCAL))
            way = first.get("reach")
            self.reach = way if isinstance(way, dict) else None
        return found

    def record(self, kind: str, **details: Any) -> Entry:
        """Record a resource before it is created; on return the record is on the disk.

        Args:
            kind: The resource's kind; see :mod:`tare.hosts.ledger.cleanup` for the details of each
                kind.
            **details: Plain JSON values.
        """
        entry = Entry(self._entries, kind, self._boot(), details)
        self._append({"entry": entry.number, "kind": kind, "boot": entry.boot, "details": details})
        self._entries += 1
        self._open[entry.number] = entry
        return entry

    def amend(self, entry: Entry, **details: Any) -> Entry:
        """Add details that are known after creation, such as a process id; return the new entry."""
        self._append({"amend": entry.number, "details": details})
        amended = Entry(entry.number, entry.kind, entry.boot, {**entry.details, **details})
        self._open[entry.number] = amended
        return amended

    def done(self, entry: Entry) -> None:
        """Mark an entry as removed or restored; marking it again does nothing."""
        if entry.number in self._open:
            self._append({"done": entry.number})
            del self._open[entry.number]

    @property
    def next_number(self) -> int:
        """The number of the next entry."""
        return self._entries

    def open_entries(self) -> tuple[Entry, ...]:
        """Return the entries that are not done, oldest first."""
        return tuple(self._open[number] for number in sorted(self._open))

    def close(self) -> None:
        """Close the file, so that another process may open it."""
        os.close(self._fd)

    def discard(self) -> None:
        """Remove the file of a ledger without open entries, and close it."""
        if not self._open:
            self.path.unlink(missing_ok=True)
        self.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _append(self, line: Mapping[str, Any]) -> None:
        data = json.dumps(line, separators=(",", ":")).encode() + b"\n"
        start = os.fstat(self._fd).st_size
        try:
            while data:
                data = data[os.write(self._fd, data) :]
            os.fsync(self._fd)
        except OSError:
            os.ftruncate(self._fd, start)
            raise


def replay(lines: Iterable[bytes], path: Path) -> tuple[int, dict[int, Entry]]:
    """Replay a ledger's complete lines.

    Args:
        lines: The lines, without their ends and without a torn last one.
        path: The file, for messages.

    Returns:
        The number of recorded entries, and the open ones by number.

    Raises:
        InputError: A line is not a ledger line, or a newer Tare wrote it; names file and line.
    """
    count = 0
    entries: dict[int, Entry] = {}
    for number, text in enumerate(lines, start=1):
        try:
            line = json.loads(text)
            if number == 1:
                _check_version(int(line["ledger"]), path)
            elif "entry" in line:
                entry = _entry(line)
                entries[entry.number] = entry
                count = max(count, entry.number + 1)
            elif "amend" in line:
                known = entries[line["amend"]]
                details = {**known.details, **line["details"]}
                entries[known.number] = Entry(known.number, known.kind, known.boot, details)
            else:
                entries.pop(line["done"], None)
        except (ValueError, KeyError, TypeError) as error:
            raise InputError(
                f"{path}: line {number}: damaged ledger ({error})",
                "read the file, remove by hand what it lists, then remove the file",
            ) from error
    return count, entries


def _entry(line: Mapping[str, Any]) -> Entry:
    kind = line["kind"]
    if not isinstance(kind, str) or not _KIND.fullmatch(kind):
        raise ValueError(f"{kind!r} is not a kind")
    return Entry(int(line["entry"]), kind, str(line["boot"]), dict(line["details"]))


def _check_version(version: int, path: Path) -> None:
    if version > LEDGER_VERSION:
        raise InputError(
            f"{path}: written by ledger version {version}, this Tare reads up to {LEDGER_VERSION}",
            "use the newer Tare that wrote it",
        )


def boot_id() -> str:
    """Return the id of this boot, or an empty string if the kernel gives none."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def _sync_directory(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
