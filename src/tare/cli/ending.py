"""The end of commands that run a study: a report, the last hash, and an exit status."""

from __future__ import annotations

import gc
import shutil
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from tare.cli.checking import loaded
from tare.cli.compare import settings_of
from tare.cli.output import lasting_output, print_line

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from tare.analysis.data.rundata import RunData
    from tare.analysis.effects.stopping import StoppingValue
    from tare.events import Fold, RunFinished, RunStarted, Waiting
    from tare.run.lifecycle.setup import Decision
    from tare.study.model.study import Study

MOST_LINES = 12
"""The most lines of the answer that a run prints at its end."""
EXIT_FAULT = 1
EXIT_INPUT = 2
EXIT_WAITING = 3
EXIT_INTERRUPTED = 130


def decide_on(study: Study, fold: Fold, blocks_done: int) -> Decision:
    """Decide whether the study needs another block to reach its precision."""
    from tare.analysis.effects.stopping import decide, headline_values
    from tare.run.lifecycle.setup import Decision

    values: Iterable[StoppingValue] = headline_values(fold.finished.values())
    least, most = study.blocks.least, study.blocks.most
    if study.sessions is not None:
        from tare.analysis.runs.sessions import values_in_rounds

        # One round is one observation of arms of different boots. The caller has already checked
        # the least and the most number of blocks.
        values, blocks_done = values_in_rounds(values, tuple(fold.sessions.begun.values()))
        least, most = 0, blocks_done + 1
    if study.blocks.method == "sequential" and least <= blocks_done < most:
        return _decide_by_verdicts(study, fold, blocks_done)
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
        method="precision" if study.blocks.method == "sequential" else study.blocks.method,
        own_baselines=own_baselines,
        twins={base: twin for base, twin in study.twins if base in baselines},
        trimmed=study.blocks.average == "trimmed",
    )
    return Decision(judged.continues, judged.reason)


def _decide_by_verdicts(study: Study, fold: Fold, blocks_done: int) -> Decision:
    """Decide whether a group-sequential study needs another block, by the verdicts so far."""
    from tare.analysis.data.load import run_data
    from tare.analysis.effects.compare import compare
    from tare.analysis.effects.stopping import TAIL_FACTOR, PrecisionTarget, decide_by_verdicts
    from tare.run.lifecycle.setup import Decision

    wanted, tails = study.blocks.precision, study.blocks.tail_precision
    tail_share = wanted / (tails or TAIL_FACTOR * wanted)
    asked = PrecisionTarget(study.baseline, {}, study.confidence, wanted, tail_share)
    effects = compare(run_data(Path(), fold)).effects
    judged = decide_by_verdicts(effects, asked, blocks_done)
    return Decision(judged.continues, judged.reason)


def write_report(
    directory: Path,
    references: Sequence[str] = (),
    formats: Sequence[str] = (),
    baseline: str = "",
) -> RunData:
    """Write a run's report, print its answer and its path, and return the run's data.

    Args:
        directory: The run's folder.
        references: Names of published values to show next to the run's own.
        formats: Picture formats to write in addition to SVG.
        baseline: Another baseline than the study's.

    Raises:
        InputError: There is no such run, reference or arm, or the report cannot be written.
    """
    with _without_collection():
        from tare.analysis import compare_every_pair
        from tare.report import build_report, ending_lines
        from tare.run.lifecycle.folder import open_folder

        folder = open_folder(directory)
        published = []
        if references:
            from tare.references.published import load_reference

            published = [load_reference(name) for name in dict.fromkeys(references)]
        data = loaded(folder.path)
        comparison = compare_every_pair([data], settings_of(data, baseline))
        page = build_report([data], comparison, folder.path, published, formats)
        # A file or another program gets one line for each arm.
        width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
        answer = ending_lines(comparison, MOST_LINES, max(width, 20) if width else None)
    for line in answer:
        print_line(line)
    print_line(f"report: {page}", "bold")
    return data


def remember(data: RunData) -> None:
    """Record a run's folder, so that `tare history` finds it by its study's name."""
    from tare.run.lifecycle.known_runs import KnownRun, keep_run, names_of_hosts

    name, hosts = str(data.study["study"]), names_of_hosts(data.host)
    where = data.folder.absolute()
    run = KnownRun(data.run, name, hosts, data.started_at, data.ended or "", where)
    try:
        keep_run(run)
    except OSError as error:
        # The run is intact; `tare history` still finds it by its folder.
        warning = f"tare: `tare history {name}` will not find this run: {error}"
        print(warning, file=sys.stderr)


@contextmanager
def _without_collection() -> Iterator[None]:
    """Pause garbage collection.

    A report's objects live until it is written. Collecting among them again and again took a
    quarter of a large report's time and freed nothing.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


@contextmanager
def resume_hint_on_interrupt(directory: Path, cluster: str = "") -> Iterator[None]:
    """Print how to resume if Ctrl-C arrives while nothing handles it, such as at the end of a run.

    SIGTERM and SIGHUP are treated like Ctrl-C.

    Args:
        directory: The run's folder.
        cluster: The cluster that the command names.

    Raises:
        typer.Exit: The command was interrupted.
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
            print_line(_resume_hint(directory, cluster), "yellow", wrapped=False)
        raise typer.Exit(EXIT_INTERRUPTED) from None


def _resume_hint(directory: Path, cluster: str) -> str:
    from tare.events import read_fold
    from tare.run.lifecycle.folder import ANY_CLUSTER, RunFolder, resume_command

    fold = read_fold(RunFolder(directory).events)
    if fold.ended is not None and fold.ended.status == "complete":
        return f"interrupted; the run is complete. To write its report: tare report {directory}"
    command = resume_command(directory, fold.started, cluster or ANY_CLUSTER)
    return f"interrupted; {_cleanup_hint(fold.started)}to resume: {command}"


def _cleanup_hint(started: RunStarted | None) -> str:
    """Return how to remove what a run could not undo; empty if nothing is left."""
    from tare.hosts.ledger.nested import left_on

    left = () if started is None else left_on(started.run)
    return f"to remove what is left on {' and '.join(left)}: tare clean; " if left else ""


def end(directory: Path, finished: RunFinished | Waiting | None, cluster: str = "") -> None:
    """Write the report, print how the run ended, and exit with the matching status.

    Args:
        directory: The run's folder.
        finished: The last event; for sessions, the boot that the run waits for; None if
            interrupted.
        cluster: The cluster that the command names.

    Raises:
        typer.Exit: The status is not 0.
    """
    from tare.analysis.topics.kernels import different_kernels
    from tare.events.chain import read_seal
    from tare.run.lifecycle.cell_counts import summary_lines
    from tare.run.lifecycle.folder import RunFolder
    from tare.study.planning.blocks import SMOKE_RUN

    data = write_report(directory)
    if finished is not None and finished.type != "waiting":
        remember(data)
    if seal := read_seal(RunFolder(directory).events):
        print_line(f"last hash: {seal.digest}", wrapped=False)
    if finished is None:
        print_line(_resume_hint(directory, cluster), "yellow", wrapped=False)
        raise typer.Exit(EXIT_INTERRUPTED)
    if finished.type == "waiting":
        messages = (finished.swap, f"waiting: then resume with: tare resume {directory}")
        for sentence in messages:
            print_line(sentence, "bold yellow", wrapped=False)
        raise typer.Exit(EXIT_WAITING)
    silent = uncounted(data)
    for arm, reason in silent.items():
        print_line(f"{arm} has no valid cell: {reason}", "bold red")
    lost = lost_arms(data)
    for arm, reason in lost.items():
        print_line(f"{arm} is missing although the host can run it: {reason}", "red")
    for sentence in different_kernels(data):
        print_line(sentence, "yellow")
    for line, style in summary_lines(finished):
        print_line(line, style)
    if (data.study.get("blocks") or {}).get("most") == 1:
        print_line(f"this was {SMOKE_RUN}", "yellow")
    if finished.status != "complete" or finished.cells.get("failed") or silent or lost:
        raise typer.Exit(EXIT_FAULT)


def lost_arms(data: RunData) -> dict[str, str]:
    """Return the arms that were skipped although their host can run them, with the reasons."""
    return {
        each.arm: each.reason for each in data.platforms if not each.usable and not each.lasting
    }


def uncounted(data: RunData) -> dict[str, str]:
    """Return the arms without a single valid cell, with the reason of each one's first cell."""
    counting = {cell.arm for cell in data.cells if cell.status == "ok"}
    found: dict[str, str] = {}
    for cell in data.cells:
        if cell.arm not in counting:
            found.setdefault(cell.arm, cell.reason)
    return found
