"""Find resources that look like Tare's but are in no ledger, such as after a lost state folder.

Only names that Tare gives count. Resources in the ledger of a running process are not listed,
whichever state folder that ledger is in: the kernel shows which ledgers are open.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tare.errors import InputError
from tare.hosts.ledger.ledger import Entry, all_ledgers, boot_id, replay
from tare.hosts.ledger.undoing import PREFIX
from tare.hosts.processes import TOKEN_VARIABLE

_OWN = re.compile(rf"(?<![A-Za-z0-9_-]){PREFIX}[A-Za-z0-9][A-Za-z0-9_.:-]*")
_LEDGER = re.compile(r"/tare/ledgers/[^/]+\.jsonl$")
_NOT_OF_RUNS = re.compile(rf"{PREFIX}(host|test)[.-]")
"""The host's lock, and folders of Tare's own tests."""
_DEPTH = 4


@dataclass(frozen=True)
class FileSystemRoot:
    """The root of a computer's file system; another one in tests."""

    root: Path = Path("/")

    def __truediv__(self, path: str) -> Path:
        return self.root / path


def unlisted(places: FileSystemRoot | None = None) -> tuple[Entry, ...]:
    """Return unlisted resources as entries, in the order in which to undo them."""
    places = FileSystemRoot() if places is None else places
    listed = _listed(places)
    found = (
        *_processes(places),
        *_mounts(places),
        *_loops(places),
        *_named(places, "trace", "path", "sys/kernel/tracing/instances"),
        *_named(places, "link", "name", "sys/class/net"),
        *_named(places, "netns", "name", "run/netns"),
        *_groups(places),
        *_named(places, "directory", "path", "tmp"),
    )
    boot = boot_id()
    return tuple(
        Entry(number, kind, boot, {key: name, **more})
        for number, (kind, key, name, more) in enumerate(found)
        if not _is_listed(more.get("token") or name, listed)
    )


def words_of(entry: Entry) -> str:
    """Return a description of an entry's resource."""
    details = entry.details
    name = details.get("path") or details.get("name") or f"{details['pid']} ({details['command']})"
    kinds = {"link": "network interface", "netns": "network namespace", "loop": "loop device of"}
    kinds |= {"cgroup": "control group", "trace": "tracing instance"}
    return f"{kinds.get(entry.kind, entry.kind)} {name}"


_Found = tuple[str, str, str, dict[str, object]]


def _is_listed(name: object, listed: str) -> bool:
    """Return whether a ledger lists a resource, or the one that contains it."""
    own = _OWN.findall(str(name)) or [str(name)]
    return any(each in listed for each in own)


def _listed(places: FileSystemRoot) -> str:
    """Return all details in ledgers: those of this state folder, and those that are open anywhere.

    A ledger that cannot be parsed is included as plain text.
    """
    paths = {*all_ledgers(), *_open_ledgers(places)}
    texts = []
    for path in paths:
        with contextlib.suppress(OSError):
            content = path.read_bytes()
            try:
                lines = content[: content.rfind(b"\n") + 1].splitlines()
                texts += [
                    json.dumps(dict(each.details)) for each in replay(lines, path)[1].values()
                ]
            except InputError:
                texts.append(content.decode(errors="replace"))
    return "\n".join(texts)


def _open_ledgers(places: FileSystemRoot) -> Iterator[Path]:
    for process in _numbered(places):
        with contextlib.suppress(OSError):
            for entry in (process / "fd").iterdir():
                with contextlib.suppress(OSError):
                    if _LEDGER.search(str(entry.readlink())):
                        # Use the descriptor: its path may belong to another mount namespace.
                        yield entry


def _numbered(places: FileSystemRoot) -> list[Path]:
    return sorted((places / "proc").glob("[0-9]*"))


def _processes(places: FileSystemRoot) -> Iterator[_Found]:
    """Yield processes that Tare started and that outlived it."""
    mark = f"{TOKEN_VARIABLE}=".encode()
    for process in _numbered(places):
        with contextlib.suppress(OSError, ValueError, IndexError):
            environment = (process / "environ").read_bytes().split(b"\0")
            tokens = [word[len(mark) :] for word in environment if word.startswith(mark)]
            if not tokens or int(process.name) == os.getpid():
                continue
            words = (process / "cmdline").read_bytes().split(b"\0")
            more: dict[str, object] = {
                "token": tokens[0].decode(errors="replace"),
                "command": Path(words[0].decode(errors="replace")).name,
            }
            yield "process", "pid", process.name, more


def _mounts(places: FileSystemRoot) -> Iterator[_Found]:
    with contextlib.suppress(OSError):
        for line in reversed((places / "proc/self/mountinfo").read_text().splitlines()):
            fields = line.split()
            point, kind = fields[4], fields[fields.index("-") + 1]
            if any(_is_own(part) for part in Path(point).parts):
                yield "mount", "path", point, {"type": kind}


def _loops(places: FileSystemRoot) -> Iterator[_Found]:
    for backing in sorted((places / "sys/block").glob("loop*/loop/backing_file")):
        with contextlib.suppress(OSError):
            path = backing.read_text().strip()
            if any(_is_own(part) for part in Path(path).parts):
                yield "loop", "path", path, {}


def _named(places: FileSystemRoot, kind: str, key: str, folder: str) -> Iterator[_Found]:
    with contextlib.suppress(OSError):
        for each in sorted((places / folder).iterdir()):
            if not _is_own(each.name) or (kind == "directory" and not _is_own_folder(each)):
                continue
            yield kind, key, each.name if key == "name" else str(each), {}


def _groups(places: FileSystemRoot) -> Iterator[_Found]:
    """Yield Tare's topmost control groups in each hierarchy."""
    left = [(places / "sys/fs/cgroup", 0)]
    while left:
        folder, depth = left.pop()
        with contextlib.suppress(OSError):
            for each in sorted(folder.iterdir()):
                if each.is_symlink() or not each.is_dir():
                    continue
                if _is_own(each.name):
                    yield "cgroup", "path", str(each), {}
                elif depth < _DEPTH:
                    left.append((each, depth + 1))


def _is_own(name: str) -> bool:
    return name.startswith(PREFIX) and not _NOT_OF_RUNS.match(name)


def _is_own_folder(path: Path) -> bool:
    """Return whether a folder is this user's, because any user may use such a name in /tmp."""
    return path.is_dir() and not path.is_symlink() and path.lstat().st_uid == os.geteuid()
