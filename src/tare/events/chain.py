"""Each line of a stream carries a hash of all before it, so that what was changed later shows.

The hash of a line is SHA-256 over the hash of the line before and the line without its own; the
first follows :data:`BEGINNING`. Lines of before 2026-11-23 carry none, but count for those behind
them. The last hash is kept in a file beside the stream, and told at the end of a run: who has it
from there can tell even a stream that was written anew as a whole.
"""

from __future__ import annotations

import hashlib
import os
import re
from dataclasses import dataclass, field
from pathlib import Path

BEGINNING = hashlib.sha256(b"tare events").digest()
NO_SEAL = "what was kept of its end is missing, so that nothing shows whether it was shortened"
_CLAIM = re.compile(rb',"chain":"([0-9a-f]{64})"\}')
_MARK = b',"chain":"'
_CLAIM_AT = -(64 + len(b'"}'))
_MARK_AT = _CLAIM_AT - len(_MARK)
_MOST_TOLD = 20
_SEAL = re.compile(rb"(\d{1,19}) ([0-9a-f]{64}) *\n")
_SEAL_BYTES = 19 + 1 + 64 + 1


@dataclass(frozen=True)
class Seal:
    """The last event that was known to be on the disk: its number, and its hash."""

    seq: int
    digest: str


@dataclass
class Chain:
    """Follows the lines of a stream, whoever wrote them.

    Args:
        seal: What was kept of the stream's end; None: nothing.

    Attributes:
        lines: How many lines were followed.
        plain: How many at the beginning carry no hash.
        broken: The first lines whose hash does not follow, counted from 1.
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
        """Take the next line, without its end."""
        if line[_MARK_AT:_CLAIM_AT] == _MARK:
            hashed = hashlib.sha256(self._digest + line[:_MARK_AT])
            if hashed.hexdigest().encode() == line[_CLAIM_AT:-2]:
                # As good as every line, so nothing else is looked at.
                self._take(hashed.digest())
                return
        body, claim = parted(line)
        self._doubt(hashlib.sha256(self._digest + body).digest(), claim)

    def _doubt(self, digest: bytes, claim: bytes) -> None:
        """Take a line without a hash, or with one that does not follow."""
        if not claim and self.plain == self.lines:
            self.plain += 1
        elif len(self.broken) < _MOST_TOLD:
            self.broken.append(self.lines + 1)
        # From here on only what was changed as well is told.
        self._take(claim or digest)

    def _take(self, digest: bytes) -> None:
        self._digest = digest
        self.lines += 1
        if self.seal is not None and self.seal.seq == self.lines - 1:
            self._sealed = self.digest

    def chaining(self, body: bytes) -> tuple[bytes, bytes]:
        """Return a new line with its hash, from one without, and the hash for :meth:`add`."""
        hashed = hashlib.sha256(self._digest + body[:-1])
        return b'%s,"chain":"%s"}' % (body[:-1], hashed.hexdigest().encode()), hashed.digest()

    def add(self, digest: bytes) -> None:
        """Count a line with this hash, now that it is written."""
        self._take(digest)

    @property
    def chained(self) -> bool:
        """Whether any line carries a hash."""
        return self.lines > self.plain

    def doubts(self) -> list[str]:
        """Return what shows that the stream is not as it was written, one sentence each."""
        found = [
            f"line {number} was changed, or one before it was taken out" for number in self.broken
        ]
        if self.seal is None:
            return [*found, NO_SEAL] if self.chained else found
        if self.seal.seq >= self.lines:
            lost = self.seal.seq + 1 - self.lines
            found.append(f"it was shortened: the last {lost} of {self.seal.seq + 1} events miss")
        elif self.seal.seq < self.plain:
            found.append("its hashes were taken out")
        elif self._sealed != self.seal.digest:
            found.append(f"event {self.seal.seq} is not the one whose hash was kept beside it")
        return found


def parted(line: bytes) -> tuple[bytes, bytes]:
    """Return what a line's hash is made of, and the hash that it carries; empty without one."""
    claim = _CLAIM.fullmatch(line[_MARK_AT:])
    if claim is None:
        return line[:-1], b""
    return line[:_MARK_AT], bytes.fromhex(claim[1].decode())


def seal_path(stream: Path) -> Path:
    """Return where the last hash of a stream is kept: beside it, as ``events.last``."""
    return stream.with_name(f"{stream.stem}.last")


def read_seal(stream: Path) -> Seal | None:
    """Return what is kept of a stream's end; None where there is nothing that can be read."""
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
        """Write it over the one before; always as long, and within one sector of any disk.

        It need not reach the disk at once: an older one says less, and nothing wrong.

        Raises:
            OSError: It cannot be written.
        """
        line = f"{seq} {digest}".ljust(_SEAL_BYTES - 1) + "\n"
        os.pwrite(self._file, line.encode(), 0)

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)
