"""Transfer of the files of a host's part to the run's folder, piece by piece."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from tare.fleet.wire import CHUNK_BYTES, FilePiece, safe_path

OWN = ("events.jsonl", "events.last", "study.yaml")
"""Files that the run's folder has itself."""


class Shipper:
    """Finds new and changed files in a folder.

    Args:
        folder: The folder of a host's part.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._known: dict[Path, tuple[int, int]] = {}

    def news(self) -> Iterator[FilePiece]:
        """Yield each file that has changed since the last call, in pieces."""
        for path in sorted(self._folder.rglob("*")):
            if path.name in OWN or path.is_symlink() or not path.is_file():
                continue
            stat = path.stat()
            now = (stat.st_size, stat.st_mtime_ns)
            if self._known.get(path) != now:
                self._known[path] = now
                yield from _pieces(path, str(path.relative_to(self._folder)))


def _pieces(path: Path, name: str) -> Iterator[FilePiece]:
    first = True
    with path.open("rb") as file:
        while (data := file.read(CHUNK_BYTES)) or first:
            yield FilePiece(path=name, first=first, data=data)
            first = False


def receive(piece: FilePiece, folder: Path) -> None:
    """Write a piece of a file into a run's folder.

    Args:
        piece: The piece.
        folder: The run's folder.

    Raises:
        ValueError: Its path leads out of the folder.
        OSError: It cannot be written.
    """
    path = folder / safe_path(piece.path)
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb" if piece.first else "ab") as file:
        file.write(piece.data)
