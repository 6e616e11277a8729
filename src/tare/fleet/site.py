"""One host's part of a run, as a process of its own: ``python -m tare.fleet.site FOLDER``.

It reads an assignment and then blocks from its standard input, one line each, and writes messages
to its standard output. If its input ends unexpectedly, its parent is gone: it then stops, and
cleans up.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, TextIO

from tare.errors import InputError, TareError
from tare.events import Fold, Record
from tare.fleet.wire import (
    TO_HOST,
    Assignment,
    Block,
    End,
    Ended,
    Happened,
    Message,
    Notice,
    Progress,
    StillThere,
)
from tare.hosts.lock import HostHeld
from tare.platforms.vendors.offer import keeps_general
from tare.registry import installed
from tare.run.catalog import build_catalog
from tare.run.lifecycle.block_schedule import AssignedBlock, RunPart
from tare.run.lifecycle.executor import execute
from tare.run.lifecycle.folder import create_folder
from tare.run.lifecycle.resume_checks import HostChanged
from tare.run.lifecycle.session import run_session
from tare.run.lifecycle.setup import Decision, StudySource
from tare.run.preflight.toolbox import require_additions, study_additions
from tare.study.model.study import Study
from tare.study.planning.baselines import part_on
from tare.study.planning.plan import PLAIN_KERNEL
from tare.study.reading.hosting import HostSpec
from tare.study.reading.load import restore_study

CPUS = "TARE_SITE_CPUS"
"""The environment variable with the CPUs of the host, if the worker is bound to some of them."""
LONGEST_LINE = 1 << 26
LAB_FILES = ("xen", "kernel", "qemu")
MOST_NAMED = 5


class FilesMissing(InputError):
    """A worker's computer lacks files that the study names."""


def files_booted(stored: Mapping[str, Any]) -> Iterator[Path]:
    """Yield the kernels, hypervisors and emulators that a stored study names by their paths.

    They are not sent to workers, and have to exist at the same path there.

    Args:
        stored: The study, as in a run's events.
    """
    lab = stored.get("lab") or {}
    arms = stored.get("arms", {}).values()
    named = [stored.get("kernel"), *(arm.get("kernel") for arm in arms)]
    if isinstance(lab, Mapping):
        named += [lab.get(each) for each in LAB_FILES]
    for each in named:
        if isinstance(each, str) and "/" in each:
            yield Path(each)


def require_here(files: Iterable[Path]) -> None:
    """Check that files of a study exist on this computer.

    Raises:
        FilesMissing: Some do not.
    """
    missing = [str(path) for path in dict.fromkeys(files) if not path.exists()]
    if missing:
        more = len(missing) - MOST_NAMED
        names = ", ".join(missing[:MOST_NAMED]) + (f" and {more} more" if more > 0 else "")
        raise FilesMissing(
            f"the study names files that the worker's computer lacks: {names}",
            "put them at the same paths there; they are not sent",
        )


class Site:
    """Runs an assignment.

    Args:
        folder: The folder of this part's events and files.
        lines: The messages of the worker.
        out: The output for messages to it.
    """

    def __init__(self, folder: Path, lines: asyncio.StreamReader, out: TextIO) -> None:
        self._folder = folder
        self._lines = lines
        self._out = out
        self._orders: asyncio.Queue[Block | None] = asyncio.Queue()

    async def run(self) -> None:
        """Measure the assigned blocks until there are no more."""
        assignment = Assignment.model_validate_json(await self._lines.readline())
        listening = asyncio.create_task(self._listen())
        try:
            await self._measure(assignment)
        except (HostChanged, FilesMissing) as error:
            self._write(Ended(reason=error.message, hint=error.hint, final=True))
        except TareError as error:
            taken = isinstance(error, HostHeld)
            self._write(Ended(reason=error.message, hint=error.hint, taken=taken))
        else:
            self._write(Ended())
        finally:
            listening.cancel()

    async def _measure(self, assignment: Assignment) -> None:
        require_here(files_booted(assignment.study))
        study = study_there(assignment)
        source = StudySource(assignment.source_path, assignment.source_sha256)
        fold = Fold()
        async with run_session(
            assignment.run,
            study,
            output=self._folder,
            decide=_never,
            subscribers=(self._happened,),
            on_progress=self._progress,
            say=lambda sentence: self._write(Notice(sentence=sentence)),
        ) as setup:
            for _, added in study_additions(setup, study):
                require_here(added.files.values())
            await require_additions(setup, setup.context.builder, study, Path(source.path))
            folder = create_folder(self._folder)
            part = RunPart(assignment.before, self._blocks())
            finished = await execute(
                setup, study, source, folder, assignment.run, assignment.seed, fold, part
            )
        if finished is not None and finished.status != "complete":
            raise TareError(finished.reason)

    async def _blocks(self) -> AsyncIterator[AssignedBlock]:
        while (order := await self._orders.get()) is not None:
            yield AssignedBlock(order.number, frozenset(order.settled), frozenset(order.ended))

    async def _listen(self) -> None:
        while line := await self._lines.readline():
            order = TO_HOST.validate_json(line)
            match order:
                case Block():
                    self._orders.put_nowait(order)
                case End():
                    self._orders.put_nowait(None)
                    _interrupt(order)
                    if order.kind != "finish":
                        return
                case StillThere():
                    pass
        os.kill(os.getpid(), signal.SIGTERM)

    def _happened(self, record: Record) -> None:
        self._write(Happened(event=record.event))

    def _progress(self, cell: str, done: float, fields: Mapping[str, Any]) -> None:
        self._write(Progress(cell=cell, done=done, fields=dict(fields)))

    def _write(self, message: Message) -> None:
        self._out.write(message.model_dump_json() + "\n")
        self._out.flush()


def _interrupt(order: End) -> None:
    if order.kind != "end":
        os.kill(os.getpid(), signal.SIGINT if order.kind == "finish" else signal.SIGTERM)


def study_there(assignment: Assignment) -> Study:
    """Return an assignment's study as its host runs it.

    Raises:
        InputError: This version of Tare does not know parts of it.
    """
    stored = {**assignment.study, "spread": None}
    if not assignment.bound:
        if assignment.host is not None:
            stored["host"] = assignment.host
        return restore_study(stored, build_catalog())
    study = restore_study(stored, build_catalog())
    changed: dict[str, Any] = {}
    if assignment.host is not None:
        changed["host"] = HostSpec.model_validate(assignment.host)
    if _boots_plain(study, assignment.bound):
        changed["kernel"] = study.kernel or PLAIN_KERNEL
    return part_on(study, assignment.bound).model_copy(update=changed)


def _boots_plain(study: Study, host: str) -> bool:
    """Return whether an arm on another host requires the plain kernel for all arms.

    All compared arms boot one kernel; the plan considers those on this host.
    """
    parts = installed()
    stated = (
        parts.platforms[arm.platform].stated(arm.options)
        for name, arm in study.arms.items()
        if study.host_of(name) != host
    )
    realtime = any(parts.workloads[each.workload].realtime for each in study.workloads.values())
    return realtime and any(map(keeps_general, stated))


def _never(study: Study, fold: Fold, blocks_done: int) -> Decision:
    return Decision(continues=False, reason="the controller of the run decides")


async def _main(folder: Path, out: TextIO) -> None:
    reader = asyncio.StreamReader(limit=LONGEST_LINE)
    protocol = asyncio.StreamReaderProtocol(reader)
    await asyncio.get_running_loop().connect_read_pipe(lambda: protocol, sys.stdin)
    await Site(folder, reader, out).run()


def main() -> None:
    """Run one host's part of a run."""
    if cpus := json.loads(os.environ.get(CPUS, "[]")):
        os.sched_setaffinity(0, cpus)
    # Other output must not mix with the messages.
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    asyncio.run(_main(Path(sys.argv[1]), out))


if __name__ == "__main__":
    main()
