"""Carry a study out, or go on with it, before the eyes of a user."""

from __future__ import annotations

import secrets
import shutil
from collections.abc import Callable
from pathlib import Path

from rich.console import Console
from rich.text import Text

from tare.errors import InputError
from tare.events import RunFinished, read_events
from tare.run.bench import Decide
from tare.run.catalog import build_catalog
from tare.run.executor import execute, resume
from tare.run.folder import create_folder, open_folder
from tare.run.progress import ProgressView, Tally
from tare.run.session import new_run_id, run_session, study_source
from tare.run.state import fold
from tare.study.load import load_study, restore_study
from tare.study.model import Study


async def carry_out(
    study_path: Path, out: Path, seed: int | None, decide: Decide, console: Console
) -> RunFinished | None:
    """Carry the study at ``study_path`` out into the new folder ``out``.

    Args:
        study_path: A study as YAML.
        out: A folder that holds nothing yet.
        seed: Overrides the study's own seed; a fresh one is drawn where neither is given.
        decide: Judges after each block whether to go on.
        console: Where progress is shown.

    Returns:
        The last event, or None when the run was interrupted and can be resumed.

    Raises:
        InputError: The study, the folder or the host cannot be used; nothing was started.
    """
    study = load_study(study_path, build_catalog())
    run = new_run_id()
    view = _view(study, console)
    async with run_session(
        run,
        study,
        output=out,
        decide=decide,
        subscribers=(view.take,),
        on_progress=view.progress,
        say=_speaker(console),
    ) as bench:
        folder = create_folder(out)
        shutil.copyfile(study_path, folder.study)
        chosen = seed if seed is not None else study.seed
        if chosen is None:
            chosen = secrets.randbits(32)
        with view:
            try:
                return await execute(bench, study, study_source(study_path), folder, run, chosen)
            except InputError:
                if not folder.events.exists():
                    shutil.rmtree(folder.path)
                raise


async def go_on(directory: Path, decide: Decide, console: Console) -> RunFinished | None:
    """Go on with the run in ``directory`` at its first unfinished cell.

    Returns:
        The last event, or None when the run was interrupted again.

    Raises:
        InputError: There is no run, it is complete, or it cannot be gone on with here.
    """
    folder = open_folder(directory)
    records = read_events(folder.events)
    state = fold(records)
    if state.started is None:
        raise InputError(f"{folder.events}: the first event is not run_started", "start anew")
    if state.finished is not None and state.finished.status == "complete":
        raise InputError(
            f"the run in {directory} is complete", f"see its report: tare report {directory}"
        )
    study = restore_study(state.started.study, build_catalog())
    view = _view(study, console)
    for record in records:
        view.tally.take(record.event)
    async with run_session(
        state.started.run,
        study,
        output=folder.path,
        decide=decide,
        subscribers=(view.take,),
        on_progress=view.progress,
        say=_speaker(console),
    ) as bench:
        with view:
            return await resume(bench, study, state.started, state, folder)


def _speaker(console: Console) -> Callable[[str], None]:
    return lambda sentence: console.print(Text(sentence, "yellow"))


def _view(study: Study, console: Console) -> ProgressView:
    return ProgressView(console, Tally(blocks=study.blocks.most))
