"""The hash chain of an event stream, which makes later changes visible.

The hash of a line is SHA-256 over the hash of the line before and the line without its own hash;
the first follows :data:`BEGINNING`. Lines from before 2026-11-23 have no hash, but are included in
those of later lines. The last hash is kept in a file next to the stream, and shown at the end of a
run: with that copy, even a stream that was rewritten as a whole can be detected.
"""

from __future__ import annotations

import hashlib
import os
import re
from dataclasses import dataclass, field
from pathlib import Path

BEGINNING = hashlib.sha256(b"tare events").digest()
NO_SEAL = "the record of its end is missing, so it is unknown whether it was shortened"
_CLAIM = re.compile(rb',"chain":"([0-9a-f]{64})"\}')
_MARK = b',"chain":"'
_CLAIM_AT = -(64 + len(b'"}'))
_MARK_AT = _CLAIM_AT - len(_MARK)
_MOST_LISTED = 20
_SEAL = re.compile(rb"(\d{1,19}) ([0-9a-f]{64}) *\n")
_SEAL_BYTES = 19 + 1 + 64 + 1


@dataclass(frozen=True)
class Seal:
    """The number and the hash of the last event that was known to be on the disk."""

    seq: int
    digest: str


@dataclass
class Chain:
    """Checks the hashes of a stream's lines.

    Args:
        seal: The record of the stream's end; None: there is none.

    Attributes:
        lines: The number of checked lines.
        plain: The number of lines at the beginning without a hash.
        broken: The first lines whose hash is wrong, counted from 1.
    """

    seal: Seal | None = None
    lines: int = 0
    plain: int = 0
    broken: list[int] = field(default_factory=list)
    _digest: bytes = BEGINNING
    _sealed: str = ""

    @property
    def digest(self) -> str:
        """The hash of the last line."""
        return self._digest.hex()

    def follow(self, line: bytes) -> None:
        """Check the next line, without its newline."""
        if line[_MARK_AT:_CLAIM_AT] == _MARK:
            hashed = hashlib.sha256(self._digest + line[:_MARK_AT])
            if hashed.hexdigest().encode() == line[_CLAIM_AT:-2]:
                # This is the case for almost every line.
                self._take(hashed.digest())
                return
        body, claim = parted(line)
        self._doubt(hashlib.sha256(self._digest + body).digest(), claim)

    def _doubt(self, digest: bytes, claim: bytes) -> None:
        """Take a line without a hash, or with a wrong one."""
        if not claim and self.plain == self.lines:
            self.plain += 1
        elif len(self.broken) < _MOST_LISTED:
            self.broken.append(self.lines + 1)
        # Later lines are checked against this line, so only further changes are reported.
        self._take(claim or digest)

    def _take(self, digest: bytes) -> None:
        self._digest = digest
        self.lines += 1
        if self.seal is not None and self.seal.seq == self.lines - 1:
            self._sealed = self.digest

    def chaining(self, body: bytes) -> tuple[bytes, bytes]:
        """Return a new line with its hash appended, and the hash for :meth:`add`."""
        hashed = hashlib.sha256(self._digest + body[:-1])
        return b'%s,"chain":"%s"}' % (body[:-1], hashed.hexdigest().encode()), hashed.digest()

    def add(self, digest: bytes) -> None:
        """Count a line with this hash, now that it is written."""
        self._take(digest)

    @property
    def chained(self) -> bool:
        """Whether any line has a hash."""
        return self.lines > self.plain

    def doubts(self) -> list[str]:
        """Return the signs that the stream was changed, one sentence each."""
        found = [
            f"line {number} was changed, or one before it was removed" for number in self.broken
        ]
        if self.seal is None:
            return [*found, NO_SEAL] if self.chained else found
        if self.seal.seq >= self.lines:
            lost = self.seal.seq + 1 - self.lines
            found.append(f"it was shortened: the last {lost} of {self.seal.seq + 1} events miss")
        elif self.seal.seq < self.plain:
            found.append("its hashes were removed")
        elif self._sealed != self.seal.digest:
            found.append(f"event {self.seal.seq} does not have the hash that was kept next to it")
        return found


def parted(line: bytes) -> tuple[bytes, bytes]:
    """Return the hashed part of a line, and its hash; empty if it has none."""
    claim = _CLAIM.fullmatch(line[_MARK_AT:])
    if claim is None:
        return line[:-1], b""
    return line[:_MARK_AT], bytes.fromhex(claim[1].decode())


def seal_path(stream: Path) -> Path:
    """Return the file with the last hash of a stream: ``events.last``, next to it."""
    return stream.with_name(f"{stream.stem}.last")


def read_seal(stream: Path) -> Seal | None:
    """Return the record of a stream's end; None if it cannot be read."""
    try:
        with seal_path(stream).open("rb") as file:
            kept = _SEAL.fullmatch(file.read(2 * _SEAL_BYTES))
    except OSError:
        return None
    return Seal(int(kept[1]), kept[2].decode()) if kept else None


class Sealer:
    """Keeps the hash of the newest event that is on the disk."""

    def __init__(self, stream: Path) -> None:
        self._file = os.open(seal_path(stream), os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o666)

    def keep(self, seq: int, digest: str) -> None:
        """Overwrite the former hash, always with the same length, within one sector of any disk.

        It need not reach the disk at once: an older hash is still correct.

        Raises:
            OSError: It cannot be written.
        """
        line = f"{seq} {digest}".ljust(_SEAL_BYTES - 1) + "\n"
        os.pwrite(self._file, line.encode(), 0)

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)
