"""The command `tare verify`, and loading of a run with its warnings."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tare.cli.output import print_line

if TYPE_CHECKING:
    from tare.analysis.data.rundata import RunData
    from tare.events.results import FinishedCell

DAMAGED = 1


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(verify)


def verify(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="The folder of a run.")],
    last: Annotated[
        str, typer.Option(metavar="HASH", help="The last hash, as the run printed it at its end.")
    ] = "",
    repair: Annotated[
        bool,
        typer.Option(
            "--repair", help="Recover damaged events up to the last good one; keep the original."
        ),
    ] = False,
) -> None:
    """Check that a run's folder is as the run wrote it: no event, series or log has changed."""
    if repair:
        _repair(directory)
    from tare.analysis.data.verify import verify_run
    from tare.run.lifecycle.folder import open_folder
    from tare.run.ui.progress import calibration_lines

    found = verify_run(open_folder(directory).path, last)
    print_line(f"{found.events} events, {found.series} series, {found.files} logs and outputs")
    if found.last:
        print_line(f"last hash: {found.last}", wrapped=False)
    for each in found.calibrated:
        for line in calibration_lines(each):
            print_line(line, wrapped=False)
    for note in found.notes:
        print_line(f"– {note}", wrapped=False)
    for sentence in found.damage:
        print_line(f"✗ {sentence}", "red", wrapped=False)
    if found.damage:
        raise typer.Exit(DAMAGED)
    print_line("✓ unchanged since the run wrote it", "green")


def _repair(directory: Path) -> None:
    """Recover a run's events, and print the number of kept and lost events."""
    from tare.events.repair import repair_stream
    from tare.outputs import unwritable
    from tare.run.lifecycle.folder import open_folder
    from tare.run.lifecycle.only_writer import only_writer

    folder = open_folder(directory)
    with only_writer(folder.path):
        try:
            done = repair_stream(folder.events)
        except OSError as error:
            raise unwritable(folder.events, error, "then try again") from error
    if done.original is None:
        print_line("the events are undamaged: nothing to repair")
        return
    print_line(done.reason, wrapped=False)
    print_line(f"repaired: {done.kept} events kept, {done.lost} lost", "yellow")
    print_line(f"the damaged original is {done.original}", wrapped=False)


def loaded(directory: Path) -> RunData:
    """Load a run, and warn on standard error if its folder has changed since the run.

    Raises:
        InputError: As :func:`tare.analysis.load_run` does.
    """
    from tare.analysis import load_run

    data = load_run(directory)
    for doubt in data.doubts:
        print(f"tare: {doubt}", file=sys.stderr)
    if data.doubts:
        print(f"      for the details, run: tare verify {directory}", file=sys.stderr)
    return with_resources(data)


def with_resources(run: RunData) -> RunData:
    """Return a run whose headline metrics name their resources.

    Runs recorded before workloads declared a resource get it from the installed workloads. If a
    workload is not installed, its metrics stay without one.
    """
    missing = {
        done.result.workload
        for done in run.counted
        if any(seen.metric.headline and seen.metric.resource is None for seen in done.observed)
    }
    if not missing:
        return run
    from tare.registry import installed

    workloads = installed().workloads
    known = {name: workloads[name].resource for name in missing if name in workloads}

    def completed(done: FinishedCell) -> FinishedCell:
        resource = known.get(done.result.workload)
        if resource is None:
            return done
        seen = [
            each
            if each.metric.resource
            else each._replace(metric=each.metric._replace(resource=resource))
            for each in done.observed
        ]
        return replace(done, observed=tuple(seen))

    return replace(run, counted=tuple(map(completed, run.counted)))
