"""The commands; thin."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.text import Text

from tare.cli_image import image_app
from tare.cli_lab import lab_app
from tare.errors import InputError, TareError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tare.events import Record, RunFinished
    from tare.run.bench import Decision
    from tare.study.model import Study

EXIT_FAULT = 1
EXIT_INPUT = 2
EXIT_INTERRUPTED = 130

app = typer.Typer(
    name="tare",
    help="Measures what virtualization costs, against the bare machine, with honest error bars.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
app.add_typer(lab_app, name="lab")
app.add_typer(image_app, name="image")

StudyFile = Annotated[Path, typer.Argument(metavar="STUDY", help="A study, as a YAML file.")]
RunDir = Annotated[Path, typer.Argument(metavar="DIR", help="The folder of a run.")]


class Format(StrEnum):
    """What observations can be exported as."""

    csv = "csv"
    parquet = "parquet"
    json = "json"


@app.command()
def doctor(as_json: Annotated[bool, typer.Option("--json", help="As JSON.")] = False) -> None:
    """Say what this host offers, platform by platform, why not, and what to do."""
    from tare.platforms.doctor import examine
    from tare.platforms.tracing_check import examine_tracing
    from tare.run.session import host_facts, local_bench

    with local_bench() as bench:
        findings = asyncio.run(examine(bench.context))
        tracing = asyncio.run(examine_tracing(bench.context))
    if as_json:
        facts = {
            "host": host_facts(),
            "tracing": tracing.model_dump(mode="json"),
            "platforms": [f.model_dump(mode="json") for f in findings],
        }
        print(json.dumps(facts, indent=2))
        return
    console = _console()
    for finding in findings:
        emulated = " [emulated]" if finding.emulated else ""
        name = " ".join(part for part in (finding.platform, finding.variant) if part)
        _found(console, f"{name}{emulated}", finding.usable, finding.reason, finding.hint)
    _found(console, "host tracing", tracing.usable, tracing.reason, tracing.hint)


def _found(console: Console, name: str, usable: bool, reason: str, hint: str) -> None:
    mark, style = ("✓", "green") if usable else ("✗", "yellow")
    console.print(Text(f"{mark} {name}: {reason}", style))
    if hint and not usable:
        console.print(Text(f"    {hint}"))


@app.command()
def plan(
    study: StudyFile,
    seed: Annotated[int | None, typer.Option(help="Seed of the random order.")] = None,
    pilot: Annotated[
        Path | None, typer.Option(help="The folder of a run that advises on blocks and repeats.")
    ] = None,
) -> None:
    """Show the blocks and cells that would run, with a time estimate; start nothing."""
    from tare.run.planning import plan_here, show_plan

    planned = asyncio.run(plan_here(study, seed))
    show_plan(planned, _console())
    if pilot is not None:
        from tare.analysis import advise, load_run
        from tare.report import render_advice

        blocks = planned.study.blocks
        advice = advise(load_run(pilot), blocks.precision, planned.study.confidence)
        render_advice(advice, blocks.precision, _console())


@app.command()
def run(
    study: StudyFile,
    out: Annotated[Path | None, typer.Option(help="A new folder for the run.")] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of the random order.")] = None,
) -> None:
    """Carry a study out, with live progress, and write its report."""
    from tare.run.carry import carry_out

    folder = out or Path("runs") / f"{study.stem}-{time.strftime('%Y%m%d-%H%M%S')}"
    _end(folder, asyncio.run(carry_out(study, folder, seed, _decide, _console())))


@app.command()
def resume(directory: RunDir) -> None:
    """Go on after a crash, kill or Ctrl-C, at the first unfinished cell."""
    from tare.run.carry import go_on

    _end(directory, asyncio.run(go_on(directory, _decide, _console())))


@app.command()
def report(
    directory: RunDir,
    reference: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Set published values beside the run's own."),
    ] = None,
) -> None:
    """Build the report anew, from the events alone."""
    _write_report(directory, _console(), reference or ())


@app.command()
def export(
    directory: RunDir,
    as_format: Annotated[Format, typer.Option("--format", help="File format.")] = Format.csv,
    out: Annotated[Path | None, typer.Option(help="A file; standard output otherwise.")] = None,
) -> None:
    """Write tidy observations, one row each."""
    from tare.analysis import export_observations, load_run

    if as_format is Format.parquet and out is None and sys.stdout.isatty():
        raise InputError("Parquet is binary", "name a file with --out")
    data = export_observations(load_run(directory), as_format.value)
    if out is None:
        sys.stdout.buffer.write(data)
    else:
        out.write_bytes(data)


@app.command()
def compare(
    directories: Annotated[list[Path], typer.Argument(metavar="DIR...", help="Folders of runs.")],
) -> None:
    """Show estimates and tests as a table."""
    from tare.analysis import compare_runs, load_run
    from tare.report import render_comparison

    runs = [load_run(directory) for directory in directories]
    render_comparison(compare_runs(runs), _console())


@app.command()
def clean() -> None:
    """Remove whatever a killed run left behind; its ledger says what."""
    from tare.hosts.cleanup import clean_all
    from tare.hosts.local import LocalHost
    from tare.hosts.lock import host_lock
    from tare.run.session import agent_path, reach

    with host_lock("clean"):
        done = asyncio.run(clean_all(LocalHost(agent_path()), reach))
    for sentence in done:
        print(sentence)
    print("clean" if not done else f"{len(done)} things cleaned")


@app.command()
def version() -> None:
    """Print the version."""
    from tare.run.versions import tare_version

    print(tare_version())


def _console() -> Console:
    return Console(highlight=False)


def _decide(study: Study, records: Sequence[Record], blocks_done: int) -> Decision:
    from tare.analysis.stopping import decide, headline_values
    from tare.run.bench import Decision

    judged = decide(
        headline_values(records),
        baseline=study.baseline,
        blocks_done=blocks_done,
        least=study.blocks.least,
        most=study.blocks.most,
        precision=study.blocks.precision,
        confidence=study.confidence,
    )
    return Decision(judged.go_on, judged.reason)


def _write_report(directory: Path, console: Console, references: Sequence[str] = ()) -> None:
    from tare.analysis import compare_runs, load_run
    from tare.analysis.references import load_reference
    from tare.report import build_report
    from tare.run.folder import open_folder

    folder = open_folder(directory)
    published = [load_reference(name) for name in dict.fromkeys(references)]
    data = load_run(folder.path)
    page = build_report([data], compare_runs([data]), folder.path, published)
    console.print(Text(f"report: {page}", "bold"))


def _end(directory: Path, finished: RunFinished | None) -> None:
    console = _console()
    _write_report(directory, console)
    if finished is None:
        console.print(Text(f"interrupted; go on with: tare resume {directory}", "yellow"))
        raise typer.Exit(EXIT_INTERRUPTED)
    if finished.status != "complete":
        raise typer.Exit(EXIT_FAULT)


def main() -> int:
    """Run the command line; return its exit status."""
    try:
        app(standalone_mode=True)
    except InputError as error:
        return _say_error(error, EXIT_INPUT)
    except TareError as error:
        return _say_error(error, EXIT_FAULT)
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        return EXIT_FAULT
    return 0


def _say_error(error: TareError, status: int) -> int:
    print(f"tare: {error.message}", file=sys.stderr)
    if error.hint:
        print(f"      {error.hint}", file=sys.stderr)
    return status
