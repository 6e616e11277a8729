"""Run or resume a study in the terminal, with live progress."""

from __future__ import annotations

import secrets
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.text import Text

from tare.errors import InputError
from tare.events import Fold, RunFinished, RunStarted, Waiting, read_fold
from tare.outputs import put_for_user
from tare.run.catalog import build_catalog
from tare.run.lifecycle.executor import execute, resume
from tare.run.lifecycle.folder import (
    ANY_CLUSTER,
    RunFolder,
    create_folder,
    is_shared,
    open_folder,
    resume_command,
)
from tare.run.lifecycle.only_writer import only_writer
from tare.run.lifecycle.session import new_run_id, run_session
from tare.run.lifecycle.setup import Decide, StudySource
from tare.run.lifecycle.versions import run_versions
from tare.run.preflight.host_access import require_allowed
from tare.run.preflight.toolbox import require_additions
from tare.run.ui.progress import ProgressView, Tally
from tare.study.model.study import Study
from tare.study.reading.load import restore_study

if TYPE_CHECKING:
    from tare.run.sessions.session_loop import RunInSessions


async def run_study(
    study: Study,
    source: StudySource,
    out: Path,
    seed: int | None,
    decide: Decide,
    console: Console,
    *,
    strict: bool = False,
    wait: bool = False,
    host_access: bool = False,
) -> RunFinished | Waiting | None:
    """Run a study into the new folder ``out``.

    Args:
        study: The study to run.
        source: The origin of the study.
        out: A new or empty folder.
        seed: Overrides the study's own seed; without either, a random seed is drawn.
        decide: Decides after each block whether to continue.
        console: Shows progress.
        strict: Whether the run ends as soon as an arm does.
        wait: For a study in sessions: whether to wait for a boot that is not up.
        host_access: Whether the command line allows raw arguments that may act on hosts.

    Returns:
        The last event; None if the run was interrupted and can be resumed; or, for a study in
        sessions, the boot that it waits for.

    Raises:
        InputError: The folder or the host cannot be used; nothing was started.
    """
    require_allowed(study, Path(source.path), allowed=host_access)
    _require_sessions(study, wait=wait)
    run = new_run_id()
    fold = Fold()
    view = _view(study, fold, console)
    if study.sessions is not None:
        # Imported here and below, because few studies have sessions.
        from tare.run.sessions.session_loop import RunInSessions

        folder, chosen = create_folder(out), _seed_of(study, seed)
        _keep_study(source, folder)
        sessions = RunInSessions(
            study, run, chosen, folder, fold, _begin(study, source, run, chosen), decide,
            (view.take,), view.progress, _speaker(console), strict=strict, wait=wait,
        )  # fmt: skip
        with only_writer(folder.path), view:
            return await _run_sessions(sessions)
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
        chosen = _seed_of(study, seed)
        with only_writer(folder.path), view:
            try:
                _keep_study(source, folder)
                return await execute(
                    replace(setup, strict=strict), study, source, folder, run, chosen, fold
                )
            except InputError:
                if not folder.events.exists():
                    shutil.rmtree(folder.path)
                raise


async def resume_run(
    directory: Path,
    decide: Decide,
    console: Console,
    *,
    strict: bool = False,
    accept: bool = False,
    wait: bool = False,
    host_access: bool = False,
) -> RunFinished | Waiting | None:
    """Resume the run in ``directory`` at its first unfinished cell.

    Args:
        directory: The run's folder.
        decide: Decides after each block whether to continue.
        console: Shows progress.
        strict: Whether the run ends as soon as an arm does.
        accept: Whether to resume though the host or a version has changed since.
        wait: For a study in sessions: whether to wait for a boot that is not up.
        host_access: Whether the command line allows raw arguments that may act on hosts.

    Returns:
        The last event; None if the run was interrupted again; or, for a study in sessions, the
        boot that it waits for.

    Raises:
        InputError: There is no run, it is complete, another process writes to it, or it cannot
            be resumed here.
    """
    folder = open_folder(directory)
    with only_writer(folder.path):
        fold, started = _unfinished(directory, folder)
        study = restore_study(started.study, build_catalog())
        require_allowed(study, folder.study, allowed=host_access)
        _require_sessions(study, wait=wait)
        view = _view(study, fold, console)
        if study.sessions is not None:
            from tare.run.sessions.session_loop import RunInSessions

            sessions = RunInSessions(
                study, started.run, started.seed, folder, fold, None, decide, (view.take,),
                view.progress, _speaker(console), strict=strict, accept=accept, wait=wait,
            )  # fmt: skip
            with view:
                return await sessions.execute()
        async with run_session(
            started.run,
            study,
            output=folder.path,
            decide=decide,
            subscribers=(view.take,),
            on_progress=view.progress,
            say=_speaker(console),
        ) as setup:
            with view:
                strictly = replace(setup, strict=strict)
                return await resume(strictly, study, started, fold, folder, accept=accept)


def _unfinished(directory: Path, folder: RunFolder) -> tuple[Fold, RunStarted]:
    """Return the fold of a run's events and the first event, if this computer can resume it.

    Raises:
        InputError: It cannot: the first event is missing, the run is complete, or hosts share it.
    """
    fold = read_fold(folder.events)
    if fold.started is None:
        raise InputError(
            f"{folder.events} lacks the run's first event, so the run cannot be resumed",
            "start a new run in another folder: tare run STUDY --out FOLDER",
        )
    if fold.ended is not None and fold.ended.status == "complete":
        raise InputError(
            f"the run in {directory} is complete", f"see its report: tare report {directory}"
        )
    if is_shared(fold.started):
        raise InputError(
            f"hosts of a cluster share the run in {directory}: this computer alone cannot resume "
            "it",
            f"run: {resume_command(directory, fold.started)}, where {ANY_CLUSTER} is that of their "
            "scheduler, such as tcp://10.0.0.1:8786",
        )
    return fold, fold.started


def _begin(study: Study, source: StudySource, run: str, seed: int) -> RunStarted:
    """Return the first event of a run in sessions; each session records its own hosts."""
    return RunStarted(
        run=run,
        study=study.model_dump(mode="json"),
        study_path=source.path,
        study_sha256=source.sha256,
        seed=seed,
        host={},
        versions=run_versions(),
        changes=source.changes,
    )


async def _run_sessions(sessions: RunInSessions) -> RunFinished | Waiting | None:
    """Run a study in sessions; remove the folder if no session could start."""
    try:
        return await sessions.execute()
    except InputError:
        progress = sessions.fold.sessions
        if not progress.begun and progress.waiting is None:
            shutil.rmtree(sessions.folder.path)
        raise


def _require_sessions(study: Study, *, wait: bool) -> None:
    """Check that ``--wait`` applies to the study.

    Raises:
        InputError: The study has no sessions.
    """
    if wait and study.sessions is None:
        raise InputError(
            "--wait applies to studies with `sessions`, and this study has none",
            "remove --wait",
        )


def _seed_of(study: Study, wanted: int | None) -> int:
    chosen = study.seed if wanted is None else wanted
    return secrets.randbits(32) if chosen is None else chosen


def _keep_study(source: StudySource, folder: RunFolder) -> None:
    """Copy the study's file unchanged into the run's folder."""
    written = Path(source.path).read_bytes()
    put_for_user(folder.study, written, "or choose another folder with --out")


def _speaker(console: Console) -> Callable[[str], None]:
    return lambda sentence: console.print(Text(sentence, "yellow"))


def _view(study: Study, fold: Fold, console: Console) -> ProgressView:
    blocks = study.blocks
    return ProgressView(console, Tally(fold, blocks.most, blocks.least, blocks.budget))
