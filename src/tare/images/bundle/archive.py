"""The format of a bundle: a tar archive compressed by zstd, whose first member lists all others.

``tar --zstd -tf FILE`` shows one, but Tare does not let a tar library read it. The first member,
``manifest.json``, lists every other member in order, with type, mode, size and SHA-256. The reader
makes the header that each member must have, and compares the bytes. Anything else that a header
could hold (a path out of the folder, a device, an owner, a second copy of a file) is therefore a
difference, and a difference is an error.

The same content gives the same bytes: members are in order, owned by root, with time stamp 0.
"""

from __future__ import annotations

import hashlib
import json
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from tare.errors import InputError
from tare.images.toolbox.recipe import Kind

FORMAT = 1
"""The version of the format. Increase it when an older Tare cannot use a new bundle."""
MANIFEST = "manifest.json"
LICENCES = "LICENCES.txt"
KERNELS, TOOLBOXES = "kernels", "toolbox"

PIECE = 1 << 20
_BLOCK = tarfile.BLOCKSIZE
_LEVEL = 12
_WINDOW_LOG = 27
_MOST_MANIFEST = 64 << 20
_MOST_FILE = 8 << 30
_MOST_LINK = 4096
_DIGEST = r"^[0-9a-f]{64}$"


Name = Annotated[str, Field(pattern=r"^[a-z][a-z0-9+.-]{0,99}$")]


class BundleEntry(BaseModel):
    """One member of a bundle.

    Args:
        path: Its path, relative, with slashes.
        kind: A file, a folder, a symbolic link, or another name of an earlier file (``hardlink``).
            Without hard links, a toolbox's image would have different bytes after import.
        executable: Whether a file may be executed.
        size: Size of a file, in bytes.
        sha256: Digest of a file's content, in hexadecimal.
        target: The target of a symbolic link; for a hard link, the path of the earlier file.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    path: str = Field(min_length=1, max_length=4096)
    kind: Literal["file", "folder", "link", "hardlink"] = "file"
    executable: bool = False
    size: int = Field(default=0, ge=0, le=_MOST_FILE)
    sha256: str = Field(default="", pattern=r"^([0-9a-f]{64})?$")
    target: str = Field(default="", max_length=_MOST_LINK)


class KernelPart(BaseModel):
    """One kernel of a bundle: its key in the cache, its version, and its packages' versions."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    key: str = Field(pattern=_DIGEST)
    version: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._+~-]{0,63}$")
    packages: Mapping[str, str]


class ToolboxPart(BaseModel):
    """One toolbox of a bundle.

    Args:
        key: Its key in the cache.
        recipe: The recipe it was made by; a Tare with another recipe does not use the toolbox.
        digest: SHA-256 of the file system image, which the importing computer makes again.
        packages: Name to version of every package in it.
        notes: What it lacks and why, one sentence each.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    key: str = Field(pattern=_DIGEST)
    recipe: str = Field(max_length=1024)
    digest: str = Field(pattern=_DIGEST)
    packages: Mapping[str, str]
    notes: Sequence[str]


class Manifest(BaseModel):
    """The contents of a bundle.

    Args:
        format: The version of the format.
        made_by: The version of Tare that made it.
        machine: The architecture, as ``uname -m`` prints it.
        kernels: The kernels, by the name that a study writes.
        toolboxes: The toolboxes, by kind.
        entries: Every member after the manifest, in order; a folder comes before its contents.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    format: int
    made_by: str = Field(max_length=200)
    machine: str = Field(pattern=r"^[a-z0-9_]{1,32}$")
    kernels: Mapping[Name, KernelPart]
    toolboxes: Mapping[Kind, ToolboxPart]
    entries: Sequence[BundleEntry]

    @property
    def size(self) -> int:
        """The size of all files together, in bytes."""
        return sum(entry.size for entry in self.entries)


@dataclass(frozen=True)
class BundleMember:
    """An entry, and the file on this computer that holds its content."""

    entry: BundleEntry
    source: Path | None = None


def header_of(entry: BundleEntry) -> bytes:
    """Return the tar header of an entry; the reader accepts no other header for it."""
    info = tarfile.TarInfo(entry.path)
    info.mode = 0o755 if entry.executable or entry.kind == "folder" else 0o644
    match entry.kind:
        case "folder":
            info.type = tarfile.DIRTYPE
        case "link":
            info.type, info.linkname, info.mode = tarfile.SYMTYPE, entry.target, 0o777
        case "hardlink":
            info.type, info.linkname = tarfile.LNKTYPE, entry.target
        case "file":
            info.size = entry.size
    return info.tobuf(tarfile.GNU_FORMAT, "utf-8", "surrogateescape")


def write_bundle(out: IO[bytes], manifest: Manifest,
                 members: Sequence[BundleMember]) -> Iterator[int]:  # fmt: skip
    """Write a bundle piece by piece; yield the number of content bytes written so far.

    Raises:
        OSError: A file cannot be read, or the bundle cannot be written.
        InputError: A file differs from its entry in the manifest.
    """
    text = json.dumps(manifest.model_dump(mode="json"), sort_keys=True, separators=(",", ":"))
    head = text.encode()
    # Loaded only where a bundle is written or read.
    import zstandard

    parameters = zstandard.ZstdCompressionParameters.from_level(
        _LEVEL, window_log=_WINDOW_LOG, enable_ldm=True, write_checksum=True, threads=0
    )
    compressor = zstandard.ZstdCompressor(compression_params=parameters).compressobj()
    done = 0

    def put(data: bytes) -> None:
        out.write(compressor.compress(data))

    put(header_of(BundleEntry(path=MANIFEST, size=len(head))) + head + _padding(len(head)))
    for member in members:
        put(header_of(member.entry))
        if member.source is None:
            continue
        digest, left = hashlib.sha256(), member.entry.size
        with member.source.open("rb") as source:
            while piece := source.read(PIECE):
                digest.update(piece)
                left -= len(piece)
                put(piece)
                done += len(piece)
                yield done
        if left or digest.hexdigest() != member.entry.sha256:
            raise InputError(f"{member.source} changed while it was exported", "try again")
        put(_padding(member.entry.size))
    put(b"\0" * (2 * _BLOCK))
    out.write(compressor.flush())


def _padding(size: int) -> bytes:
    return b"\0" * (-size % _BLOCK)


class BundleReader:
    """Read a bundle from its file, checking every byte.

    Args:
        stream: The open file.
        name: The bundle's name, for messages.

    Raises:
        InputError: The file is not a bundle; or it is damaged, cut short, for another
            architecture, or has a format that this Tare does not read.
    """

    def __init__(self, stream: IO[bytes], name: str) -> None:
        import zstandard

        self._name = name
        # Allow a window as large as the writer's; refuse a file that asks for a larger one.
        decompressor = zstandard.ZstdDecompressor(max_window_size=1 << _WINDOW_LOG)
        self._stream = decompressor.stream_reader(stream, read_across_frames=False)

    def manifest(self, machine: str) -> Manifest:
        """Read and check the manifest.

        Args:
            machine: The architecture that the bundle must be for, as ``uname -m`` prints it.
        """
        try:
            header = self._exactly(_BLOCK)
        except InputError as error:
            raise InputError(
                f"{self._name} is not a bundle of Tare, or its beginning is damaged",
                "make one with `tare image export FILE` on a computer with Debian or Ubuntu",
            ) from error
        size = _octal(header[124:136])
        if size > _MOST_MANIFEST or header != header_of(BundleEntry(path=MANIFEST, size=size)):
            raise InputError(
                f"{self._name} is not a bundle of Tare: its first member is not {MANIFEST}",
                "make one with `tare image export FILE` on a computer with Debian or Ubuntu",
            )
        text = self._exactly(size)
        self._expect(_padding(size))
        return parse_manifest(text, machine, self._name)

    def content(self, entry: BundleEntry) -> Iterator[bytes]:
        """Yield the content of the next entry in pieces, and check it to its end."""
        self._expect(header_of(entry), entry.path)
        digest, left = hashlib.sha256(), entry.size
        while left:
            piece = self._exactly(min(left, PIECE))
            digest.update(piece)
            left -= len(piece)
            yield piece
        self._expect(_padding(entry.size), entry.path)
        if entry.kind == "file" and digest.hexdigest() != entry.sha256:
            raise self._damaged(f"the digest of {entry.path} is wrong")

    def end(self) -> None:
        """Check that nothing follows the last entry."""
        self._expect(b"\0" * (2 * _BLOCK))
        if self._read(1):
            raise self._damaged("something follows its end")

    def _expect(self, wanted: bytes, path: str = "") -> None:
        if self._exactly(len(wanted)) != wanted:
            raise self._damaged(f"it does not hold what it lists{f' ({path})' if path else ''}")

    def _exactly(self, size: int) -> bytes:
        parts: list[bytes] = []
        while size:
            if not (part := self._read(size)):
                raise self._damaged("it is cut short")
            parts.append(part)
            size -= len(part)
        return b"".join(parts)

    def _read(self, size: int) -> bytes:
        import zstandard

        try:
            return self._stream.read(size)
        except zstandard.ZstdError as error:
            raise self._damaged(str(error)) from error

    def _damaged(self, why: str) -> InputError:
        return InputError(
            f"the bundle {self._name} is damaged: {why}",
            "copy it again and compare its SHA-256, or make a new one with `tare image export`",
        )


def parse_manifest(text: bytes, machine: str, name: str) -> Manifest:
    """Return a bundle's manifest.

    Args:
        text: The JSON text.
        machine: The architecture of this computer, as ``uname -m`` prints it.
        name: The bundle's name, for messages.

    Raises:
        InputError: The text is not a manifest; or it has another format, is for another
            architecture, or is unsafe to unpack.
    """
    try:
        content = json.loads(text)
        made_by = str(content["made_by"])[:200]
        number = int(content["format"])
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise InputError(f"the manifest of the bundle {name} is damaged") from error
    if number != FORMAT:
        advice = "update Tare here" if number > FORMAT else "export it again with a newer Tare"
        raise InputError(
            f"the bundle {name} has format {number}, made by {made_by}; this Tare reads {FORMAT}",
            advice,
        )
    try:
        manifest = Manifest.model_validate_json(text)
    except ValidationError as error:
        where = ".".join(map(str, error.errors()[0]["loc"]))
        raise InputError(
            f"the manifest of the bundle {name} is damaged at {where or 'its start'}"
        ) from error
    if manifest.machine != machine:
        raise InputError(
            f"the bundle {name} is for {manifest.machine}, and this computer is {machine}",
            f"make one on a computer of {machine}",
        )
    if problem := _unsafe(manifest):
        raise InputError(f"the bundle {name} is refused: {problem}", "export it again")
    return manifest


def _unsafe(manifest: Manifest) -> str:
    """Describe the first problem of the entries; return an empty text if they are safe.

    Each entry must be below the folder of a listed kernel or toolbox. Each of its parent folders
    must be an earlier entry, so that unpacking never follows a link.
    """
    tops = {f"{KERNELS}/{part.key}" for part in manifest.kernels.values()}
    boxes = {f"{TOOLBOXES}/{part.key}" for part in manifest.toolboxes.values()}
    folders: set[str] = set()
    files: set[str] = set()
    seen: set[str] = set()
    for entry in manifest.entries:
        path = entry.path
        parts = path.split("/")
        if path in seen:
            return f"it lists {path!r} twice"
        seen.add(path)
        if not {"", ".", ".."}.isdisjoint(parts) or "\0" in path or not path.isprintable():
            return f"the path {path!r} leads out of it"
        if entry.kind != "file" and (entry.size or entry.sha256 or entry.executable):
            return f"{path!r} is not a file, and yet has content"
        linked = entry.kind in ("link", "hardlink")
        if (entry.kind == "file") != bool(entry.sha256) or linked != bool(entry.target):
            return f"{path!r} lacks its digest or target"
        if path == LICENCES and entry.kind == "file":
            continue
        top = "/".join(parts[:2])
        if top not in tops | boxes:
            return f"{path!r} belongs to no kernel or toolbox of it"
        if path != top and "/".join(parts[:-1]) not in folders:
            return f"the folder of {path!r} is not listed before it"
        if path == top and entry.kind != "folder":
            return f"{path!r} is not a folder"
        if entry.kind == "folder":
            folders.add(path)
        if entry.kind == "file":
            files.add(path)
        if entry.kind == "hardlink" and not (
            entry.target in files and entry.target.startswith(f"{top}/")
        ):
            return f"{path!r} is another name of {entry.target!r}, which is no earlier file"
        if entry.kind == "link" and (top not in boxes or _leads_out(parts[2:], entry.target)):
            return f"the link {path!r} leads out of it ({entry.target!r})"
    if missing := sorted((tops | boxes) - folders):
        return f"{missing[0]!r} is not in it"
    return ""


def _leads_out(inside: Sequence[str], target: str) -> bool:
    """Return whether a relative link of a tree leads above the tree's top, ``inside[0]``."""
    if "\0" in target:
        return True
    # An absolute link starts at the tree's own root, because programs in it run with that root.
    if target.startswith("/"):
        return False
    depth = len(inside) - 2
    for part in target.split("/"):
        depth += (part not in ("", ".")) if part != ".." else -1
        if depth < 0:
            return True
    return False


def _octal(field: bytes) -> int:
    try:
        return int(field.rstrip(b"\0 ") or b"0", 8)
    except ValueError:
        return _MOST_MANIFEST + 1
