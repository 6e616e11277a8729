"""What the controller of a run and its hosts say to each other."""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from tare.events import Event, HostJoined

CHUNK_BYTES = 1 << 20
"""Files travel in pieces of this size, so that neither side holds a whole series."""


class Message(BaseModel):
    """What all messages share: they hold, and refuse what they do not know."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Assignment(Message):
    """What a host is given of a run.

    Args:
        run: The identity that its machines are named by; each attempt has its own.
        study: The study, as stored in events.
        source_path: Where the study came from.
        source_sha256: Of the file's bytes.
        seed: Determines the order of everything.
        host: What the worker's host is, as a study says it; None: as the study says.
        bound: The host's name in a study whose arms say which host they are on; empty: it has all.
        before: What the host reported when it joined the run the last time; None: it is new.
    """

    run: str
    study: dict[str, Any]
    source_path: str
    source_sha256: str
    seed: int
    host: dict[str, Any] | None = None
    bound: str = ""
    before: HostJoined | None = None


class Block(Message):
    """Measure a block, but for the cells that are settled and the arms that have ended."""

    kind: Literal["block"] = "block"
    number: int = Field(ge=1)
    settled: tuple[str, ...] = ()
    ended: tuple[str, ...] = ()


class End(Message):
    """There are no more blocks; or finish the current cell (``finish``), or stop now (``stop``)."""

    kind: Literal["end", "finish", "stop"] = "end"


class StillThere(Message):
    """The controller is alive; sent every few seconds."""

    kind: Literal["still-there"] = "still-there"


class Hello(Message):
    """Who carries an assignment out, and with what."""

    kind: Literal["hello"] = "hello"
    worker: str
    versions: dict[str, str]


class Happened(Message):
    """An event of the host's part."""

    kind: Literal["event"] = "event"
    event: Event


class FilePiece(Message):
    """A piece of a file in the run's folder; the first one replaces it."""

    kind: Literal["file"] = "file"
    path: str
    first: bool
    data: bytes


class Progress(Message):
    """How far a cell is."""

    kind: Literal["progress"] = "progress"
    cell: str
    done: float
    fields: dict[str, Any]


class Said(Message):
    """A sentence for the user."""

    kind: Literal["said"] = "said"
    sentence: str


class Ended(Message):
    """The host's part is over: as requested, or for a reason.

    ``final``: for good; ``taken``: because another run holds the host, which passes.
    """

    kind: Literal["ended"] = "ended"
    reason: str = ""
    hint: str = ""
    final: bool = False
    taken: bool = False


FromHost = Annotated[
    Hello | Happened | FilePiece | Progress | Said | Ended, Field(discriminator="kind")
]
ToHost = Annotated[Block | End | StillThere, Field(discriminator="kind")]
FROM_HOST: TypeAdapter[FromHost] = TypeAdapter(FromHost)
TO_HOST: TypeAdapter[ToHost] = TypeAdapter(ToHost)


def safe_path(path: str) -> PurePosixPath:
    """Return a path that stays inside a run's folder.

    Raises:
        ValueError: It does not.
    """
    found = PurePosixPath(path)
    if found.is_absolute() or not found.parts or ".." in found.parts or "\0" in path:
        raise ValueError(f"{path!r} is not a path inside a run's folder")
    return found
