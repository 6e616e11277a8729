"""Carry a study out, or go on with it, before the eyes of a user."""

from __future__ import annotations

import secrets
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from rich.console import Console
from rich.text import Text

from tare.errors import InputError
from tare.events import Fold, RunFinished, read_fold
from tare.outputs import put_for_user
from tare.run.catalog import build_catalog
from tare.run.executor import execute, resume
from tare.run.folder import create_folder, open_folder
from tare.run.progress import ProgressView, Tally
from tare.run.session import new_run_id, run_session
from tare.run.setup import Decide, StudySource
from tare.run.toolbox import require_additions
from tare.study.load import restore_study
from tare.study.model import Study


async def carry_out(
    study: Study,
    source: StudySource,
    out: Path,
    seed: int | None,
    decide: Decide,
    console: Console,
    *,
    strict: bool = False,
) -> RunFinished | None:
    """Carry a study out into the new folder ``out``.

    Args:
        study: What to measure.
        source: Where it came from.
        out: A folder that holds nothing yet.
        seed: Overrides the study's own seed; a fresh one is drawn where neither is given.
        decide: Judges after each block whether to go on.
        console: Where progress is shown.
        strict: Whether the run ends as soon as an arm does.

    Returns:
        The last event, or None when the run was interrupted and can be resumed.

    Raises:
        InputError: The folder or the host cannot be used; nothing was started.
    """
    run = new_run_id()
    fold = Fold()
    view = _view(study, fold, console)
    async with run_session(
        run,
        study,
        output=out,
        decide=decide,
        subscribers=(view.take,),
        on_progress=view.progress,
        say=_speaker(console),
    ) as setup:
        await require_additions(setup, setup.context.builder, study, Path(source.path))
        folder = create_folder(out)
        chosen = seed if seed is not None else study.seed
        if chosen is None:
            chosen = secrets.randbits(32)
        with view:
            try:
                written = Path(source.path).read_bytes()
                put_for_user(folder.study, written, "or choose another folder with --out")
                return await execute(
                    replace(setup, strict=strict), study, source, folder, run, chosen, fold
                )
            except InputError:
                if not folder.events.exists():
                    shutil.rmtree(folder.path)
                raise


async def go_on(
    directory: Path,
    decide: Decide,
    console: Console,
    *,
    strict: bool = False,
    accept: bool = False,
) -> RunFinished | None:
    """Go on with the run in ``directory`` at its first unfinished cell.

    Args:
        directory: The run's folder.
        decide: Judges after each block whether to go on.
        console: Where progress is shown.
        strict: Whether the run ends as soon as an arm does.
        accept: Whether to go on though the host or a version has changed since.

    Returns:
        The last event, or None when the run was interrupted again.

    Raises:
        InputError: There is no run, it is complete, or it cannot be gone on with here.
    """
    folder = open_folder(directory)
    fold = read_fold(folder.events)
    if fold.started is None:
        raise InputError(f"{folder.events}: the first event is not run_started", "start anew")
    if fold.ended is not None and fold.ended.status == "complete":
        raise InputError(
            f"the run in {directory} is complete", f"see its report: tare report {directory}"
        )
    study = restore_study(fold.started.study, build_catalog())
    view = _view(study, fold, console)
    async with run_session(
        fold.started.run,
        study,
        output=folder.path,
        decide=decide,
        subscribers=(view.take,),
        on_progress=view.progress,
        say=_speaker(console),
    ) as setup:
        with view:
            strictly = replace(setup, strict=strict)
            return await resume(strictly, study, fold.started, fold, folder, accept=accept)


def _speaker(console: Console) -> Callable[[str], None]:
    return lambda sentence: console.print(Text(sentence, "yellow"))


def _view(study: Study, fold: Fold, console: Console) -> ProgressView:
    return ProgressView(console, Tally(fold, study.blocks.most))
