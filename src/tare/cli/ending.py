"""How commands that carried out a study end: a report, the last hash, and an exit status."""

from __future__ import annotations

import gc
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

import typer

from tare.cli.checking import loaded
from tare.cli.compare import settings_of
from tare.cli.telling import lasting_output, tell

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from tare.analysis.data.rundata import RunData
    from tare.analysis.effects.stopping import Value
    from tare.events import Fold, RunFinished, RunStarted, Waiting
    from tare.run.lifecycle.setup import Decision
    from tare.study.model.study import Study

MOST_LINES = 12
"""Lines of the answer that a run ends with."""
EXIT_FAULT = 1
EXIT_INPUT = 2
EXIT_WAITING = 3
EXIT_INTERRUPTED = 130


def decide_on(study: Study, fold: Fold, blocks_done: int) -> Decision:
    """Return whether the study needs another block, by the precision that it asks for."""
    from tare.analysis.effects.stopping import decide, headline_values
    from tare.run.lifecycle.setup import Decision

    values: Iterable[Value] = headline_values(fold.finished.values())
    least, most = study.blocks.least, study.blocks.most
    if study.sessions is not None:
        from tare.analysis.runs.sessions import values_in_rounds

        # A round is one observation of arms of different boots. That enough blocks are done, and
        # not too many, is known before this is asked.
        values, blocks_done = values_in_rounds(values, tuple(fold.sessions.begun.values()))
        least, most = 0, blocks_done + 1
    own_baselines = {
        arm: base for arm, base in study.own_baselines.items() if fold.platforms[base].usable
    }
    baselines = {study.baseline, *own_baselines.values()}
    judged = decide(
        values,
        baseline=study.baseline,
        blocks_done=blocks_done,
        least=least,
        most=most,
        precision=study.blocks.precision,
        tail_precision=study.blocks.tail_precision,
        confidence=study.confidence,
        method=study.blocks.method,
        margin=study.margin,
        own_baselines=own_baselines,
        twins={base: twin for base, twin in study.twins if base in baselines},
    )
    return Decision(judged.go_on, judged.reason)


def write_report(
    directory: Path,
    references: Sequence[str] = (),
    formats: Sequence[str] = (),
    baseline: str = "",
) -> RunData:
    """Write a run's report, print its answer and where it is, and return the run's data.

    Args:
        directory: The run's folder.
        references: Names of published values to show next to the run's.
        formats: What figures are drawn as in addition to SVG.
        baseline: Another arm to compare with than the study's.

    Raises:
        InputError: There is no such run, reference or arm, or the report cannot be written.
    """
    with _without_collection():
        from tare.analysis import compare_every_pair
        from tare.report import answer_lines, build_report
        from tare.run.lifecycle.folder import open_folder

        folder = open_folder(directory)
        published = []
        if references:
            from tare.references.published import load_reference

            published = [load_reference(name) for name in dict.fromkeys(references)]
        data = loaded(folder.path)
        comparison = compare_every_pair([data], settings_of(data, baseline))
        page = build_report([data], comparison, folder.path, published, formats)
        answer = answer_lines(comparison, most=MOST_LINES)
    for line in answer:
        tell(line)
    tell(f"report: {page}", "bold")
    return data


def remember(data: RunData) -> None:
    """Note where a run is, so that `tare history` finds it by its study's name."""
    from tare.run.lifecycle.known_runs import KnownRun, keep_run, names_of_hosts

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

    What a report is made of lives until it is written, and the code that makes it longer; to look
    for garbage among it again and again took a quarter of a big report's time and freed nothing.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


@contextmanager
def says_how_to_go_on(directory: Path, cluster: str = "") -> Iterator[None]:
    """Say how to go on where Ctrl-C comes while nothing listens for it: at the end, say.

    SIGTERM and SIGHUP count as Ctrl-C there.

    Args:
        directory: The run's folder.
        cluster: The cluster that the command names.

    Raises:
        typer.Exit: It came.
    """
    from tare.run.lifecycle.folder import RunFolder
    from tare.run.lifecycle.interrupt import hear_no_more, stopped_in_order

    try:
        with lasting_output(), stopped_in_order():
            yield
    except KeyboardInterrupt:
        hear_no_more()
        # Before its first event there is no run to resume.
        if RunFolder(directory).events.is_file():
            tell(_going_on(directory, cluster), "yellow", wrapped=False)
        raise typer.Exit(EXIT_INTERRUPTED) from None


def _going_on(directory: Path, cluster: str) -> str:
    from tare.events import read_fold
    from tare.run.lifecycle.folder import ANY_CLUSTER, RunFolder, resume_command

    fold = read_fold(RunFolder(directory).events)
    if fold.ended is not None and fold.ended.status == "complete":
        return f"interrupted; the run is complete, and its report comes by: tare report {directory}"
    command = resume_command(directory, fold.started, cluster or ANY_CLUSTER)
    return f"interrupted; {_clearing(fold.started)}go on with: {command}"


def _clearing(started: RunStarted | None) -> str:
    """Return what clears up what could not be undone of a run; empty where nothing is left."""
    from tare.hosts.ledger.left import left_on

    left = () if started is None else left_on(started.run)
    return f"what is left on {' and '.join(left)} goes with: tare clean; " if left else ""


def end(directory: Path, finished: RunFinished | Waiting | None, cluster: str = "") -> None:
    """Write the report, say how the run ended, and exit by it.

    Args:
        directory: The run's folder.
        finished: The last event; what is waited for, in sessions; None if interrupted.
        cluster: The cluster that the command names.

    Raises:
        typer.Exit: With the status, unless all went well.
    """
    from tare.analysis.topics.kernels import different_kernels
    from tare.events.chain import read_seal
    from tare.run.lifecycle.account import summary_lines
    from tare.run.lifecycle.folder import RunFolder
    from tare.study.planning.blocks import SMOKE_RUN

    data = write_report(directory)
    if finished is not None and finished.type != "waiting":
        remember(data)
    if seal := read_seal(RunFolder(directory).events):
        tell(f"last hash: {seal.digest}", wrapped=False)
    if finished is None:
        tell(_going_on(directory, cluster), "yellow", wrapped=False)
        raise typer.Exit(EXIT_INTERRUPTED)
    if finished.type == "waiting":
        said = (finished.swap, f"waiting: then go on with: tare resume {directory}")
        for sentence in said:
            tell(sentence, "bold yellow", wrapped=False)
        raise typer.Exit(EXIT_WAITING)
    silent = uncounted(data)
    for arm, reason in silent.items():
        tell(f"no cell of {arm} counts: {reason}", "bold red")
    lost = lost_arms(data)
    for arm, reason in lost.items():
        tell(f"{arm} is missing although the host can run it: {reason}", "red")
    for sentence in different_kernels(data):
        tell(sentence, "yellow")
    for line, style in summary_lines(finished):
        tell(line, style)
    if (data.study.get("blocks") or {}).get("most") == 1:
        tell(f"this was {SMOKE_RUN}", "yellow")
    if finished.status != "complete" or finished.cells.get("failed") or silent or lost:
        raise typer.Exit(EXIT_FAULT)


def lost_arms(data: RunData) -> dict[str, str]:
    """Return the arms that were left out though no host lacks what they need, each with why."""
    return {
        each.arm: each.reason for each in data.platforms if not each.usable and not each.lasting
    }


def uncounted(data: RunData) -> dict[str, str]:
    """Return the arms of which cells ended and none counts, each with its first cell's reason."""
    counting = {cell.arm for cell in data.cells if cell.status == "ok"}
    found: dict[str, str] = {}
    for cell in data.cells:
        if cell.arm not in counting:
            found.setdefault(cell.arm, cell.reason)
    return found
