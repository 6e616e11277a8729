"""How commands that carried out a study end: a report, the last hash, and an exit status."""

from __future__ import annotations

import gc
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

import typer
from rich.text import Text

from tare.cli.checking import loaded
from tare.cli.compare import settings_of
from tare.cli.listing import piped_or_terminal

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from rich.console import Console

    from tare.analysis.rundata import RunData
    from tare.events import Fold, RunFinished
    from tare.run.setup import Decision
    from tare.study.model import Study

EXIT_FAULT = 1
EXIT_INPUT = 2
EXIT_INTERRUPTED = 130


def decide_on(study: Study, fold: Fold, blocks_done: int) -> Decision:
    """Return whether the study needs another block, by the precision that it asks for."""
    from tare.analysis.stopping import decide, headline_values
    from tare.run.setup import Decision

    judged = decide(
        headline_values(fold.finished.values()),
        baseline=study.baseline,
        blocks_done=blocks_done,
        least=study.blocks.least,
        most=study.blocks.most,
        precision=study.blocks.precision,
        tail_precision=study.blocks.tail_precision,
        confidence=study.confidence,
        method=study.blocks.method,
        margin=study.margin,
        own_baselines={
            arm: base for arm, base in study.own_baselines.items() if fold.platforms[base].usable
        },
    )
    return Decision(judged.go_on, judged.reason)


def write_report(
    directory: Path,
    console: Console,
    references: Sequence[str] = (),
    formats: Sequence[str] = (),
    baseline: str = "",
) -> RunData:
    """Write a run's report, say where it is, and return the run's data.

    Args:
        directory: The run's folder.
        console: Where it is said.
        references: Names of published values to set beside.
        formats: What figures are drawn as beside SVG.
        baseline: Another arm to compare with than the study's.

    Raises:
        InputError: There is no such run, reference or arm, or the report cannot be written.
    """
    from tare.analysis import compare_every_pair
    from tare.report import build_report
    from tare.run.folder import open_folder

    folder = open_folder(directory)
    published = []
    if references:
        from tare.references.published import load_reference

        published = [load_reference(name) for name in dict.fromkeys(references)]
    with _without_collection():
        data = loaded(folder.path)
        comparison = compare_every_pair([data], settings_of(data, baseline))
        page = build_report([data], comparison, folder.path, published, formats)
    console.print(Text(f"report: {page}", "bold"))
    return data


def remember(data: RunData) -> None:
    """Note where a run is, so that `tare history` finds it by its study's name."""
    from tare.run.known_runs import KnownRun, keep_run, names_of_hosts

    name, hosts = str(data.study["study"]), names_of_hosts(data.host)
    where = data.folder.absolute()
    run = KnownRun(data.run, name, hosts, data.started_at, data.ended or "", where)
    try:
        keep_run(run)
    except OSError as error:
        # The run itself is whole; only its history has to be asked for by folders.
        said = f"tare: `tare history {name}` will not find this run: {error}"
        print(said, file=sys.stderr)


@contextmanager
def _without_collection() -> Iterator[None]:
    """Look for no garbage meanwhile.

    What a report is made of lives until it is written; to look for garbage among it again and
    again took a quarter of a big report's time and freed nothing.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


@contextmanager
def says_how_to_go_on(directory: Path) -> Iterator[None]:
    """Say how to go on where Ctrl-C comes while nothing listens for it: at the end, say.

    Raises:
        typer.Exit: It came.
    """
    from tare.run.folder import RunFolder

    try:
        yield
    except KeyboardInterrupt:
        # Before its first event there is no run to go on with.
        if RunFolder(directory).events.is_file():
            piped_or_terminal().print(Text(_going_on(directory), "yellow"), soft_wrap=True)
        raise typer.Exit(EXIT_INTERRUPTED) from None


def _going_on(directory: Path) -> str:
    from tare.events import read_fold
    from tare.run.folder import RunFolder

    ended = read_fold(RunFolder(directory).events).ended
    if ended is not None and ended.status == "complete":
        return f"interrupted; the run is complete, and its report comes by: tare report {directory}"
    return f"interrupted; go on with: tare resume {directory}"


def end(directory: Path, finished: RunFinished | None) -> None:
    """Write the report, say how the run ended, and exit by it; ``finished``: None if interrupted.

    Raises:
        typer.Exit: With the status, unless all went well.
    """
    from tare.events.chain import read_seal
    from tare.run.closing import closing
    from tare.run.folder import RunFolder

    console = piped_or_terminal()
    data = write_report(directory, console)
    if finished is not None:
        remember(data)
    if seal := read_seal(RunFolder(directory).events):
        console.print(Text(f"last hash: {seal.digest}"), soft_wrap=True)
    if finished is None:
        console.print(Text(_going_on(directory), "yellow"), soft_wrap=True)
        raise typer.Exit(EXIT_INTERRUPTED)
    for line, style in closing(finished):
        console.print(Text(line, style))
    if finished.status != "complete" or finished.cells.get("failed"):
        raise typer.Exit(EXIT_FAULT)
