"""The messages between the controller of a run and its hosts."""

from __future__ import annotations

import asyncio
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from tare.events import Event, HostJoined

if TYPE_CHECKING:
    from distributed import Queue

CHUNK_BYTES = 1 << 20
"""Files are sent in pieces of this size, so that neither side holds a whole series."""


class Message(BaseModel):
    """The base class of all messages: immutable, without unknown fields."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Assignment(Message):
    """A host's part of a run.

    Args:
        run: The identity in the names of its machines; each attempt has its own.
        study: The study, as stored in events.
        source_path: The origin of the study.
        source_sha256: SHA-256 of the file's bytes.
        seed: Determines the sequence of everything.
        host: The worker's host in the form of a study; None: as the study defines it.
        bound: The host's name if the study's arms name their hosts; empty: it has all arms.
        before: The host's event when it last joined the run; None: it is new.
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
    """Measure a block, except for settled cells and ended arms."""

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
    """The worker of an assignment, and its versions."""

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
    """The progress of a cell."""

    kind: Literal["progress"] = "progress"
    cell: str
    done: float
    fields: dict[str, Any]


class Notice(Message):
    """A sentence for the user."""

    kind: Literal["said"] = "said"
    sentence: str


class Ended(Message):
    """The host's part is over: as requested, or for a reason.

    ``final``: trying again does not help; ``taken``: another run has locked the host for a while.
    """

    kind: Literal["ended"] = "ended"
    reason: str = ""
    hint: str = ""
    final: bool = False
    taken: bool = False


FromHost = Annotated[
    Hello | Happened | FilePiece | Progress | Notice | Ended, Field(discriminator="kind")
]
ToHost = Annotated[Block | End | StillThere, Field(discriminator="kind")]
FROM_HOST: TypeAdapter[FromHost] = TypeAdapter(FromHost)
TO_HOST: TypeAdapter[ToHost] = TypeAdapter(ToHost)


def safe_path(path: str) -> PurePosixPath:
    """Return a path that stays inside a run's folder.

    Raises:
        ValueError: It leads out of the folder.
    """
    found = PurePosixPath(path)
    if found.is_absolute() or not found.parts or ".." in found.parts or "\0" in path:
        raise ValueError(f"{path!r} is not a path inside a run's folder")
    return found


class Inbox:
    """The messages of one side.

    Dask's own time-outs cause an error in the scheduler's log. Here one request stays open until
    there is a message.

    Args:
        queue: Their queue, with no other reader.
    """

    def __init__(self, queue: Queue) -> None:
        self._queue = queue
        self._asked: asyncio.Task[Any] | None = None

    async def ready(self, patience_s: float) -> bool:
        """Return whether there is a message within the time limit."""
        if self._asked is None:
            self._asked = asyncio.ensure_future(self._queue.get())
        done, _ = await asyncio.wait({self._asked}, timeout=patience_s)
        return bool(done)

    async def take(self) -> list[Any]:
        """Wait for the first message, and return all that are in the queue.

        Raises:
            OSError: The scheduler is gone.
        """
        await self.ready(0)
        assert self._asked is not None
        first = await self._asked
        self._asked = None
        return [first, *await self._queue.get(batch=True)]

    def close(self) -> None:
        """Stop waiting for messages."""
        if self._asked is not None:
            self._asked.cancel()
