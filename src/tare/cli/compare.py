"""The command ``compare``: one run by itself, run against run, and gates."""

from __future__ import annotations

import sys
import traceback
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tare.cli.checking import loaded
from tare.cli.telling import lasting
from tare.errors import InputError, TareError
from tare.outputs import put_for_user

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rich.console import Console

    from tare.analysis.data.rundata import RunData
    from tare.analysis.data.settings import Settings
    from tare.analysis.effects.comparison import Comparison
    from tare.analysis.runs.gates import Outcome

EXIT = {"holds": 0, "fails": 1, "open": 3}
"""Exit statuses of gates; 2 is wrong input, as everywhere."""
BISECT = {"holds": 0, "fails": 1, "open": 125}
"""What ``git bisect run`` takes for good, bad, and a commit to be left out."""
ABORT = 128
"""What ends ``git bisect run``: any lower status would call a commit bad that was not judged."""


ELSEWHERE = "or choose another file with --out"
MOST_BASELINES = 12
"""Further baselines that a page of two runs offers: each is one more comparison."""


class As(StrEnum):
    """How gates are printed."""

    text = "text"
    markdown = "markdown"
    junit = "junit"
    bmf = "bmf"
    github = "github"
    openmetrics = "openmetrics"


def compare(
    directories: Annotated[list[Path], typer.Argument(metavar="DIR...", help="Folders of runs.")],
    baseline: Annotated[
        str, typer.Option(metavar="ARM", help="Another arm to compare with than the study's.")
    ] = "",
    pairs: Annotated[
        bool, typer.Option("--pairs", help="Every arm against every other, and their ranks.")
    ] = False,
    gate: Annotated[
        list[str] | None,
        typer.Option(help="A limit on a change, such as 'switch latency-median < +5 %'."),
    ] = None,
    gates: Annotated[Path | None, typer.Option(help="A YAML file with a list of gates.")] = None,
    floor: Annotated[
        list[str] | None,
        typer.Option(
            metavar="METRIC=FLOOR",
            help="A change that never matters to a gate, such as 'latency-median=1 %'; without % "
            "in the metric's own unit.",
        ),
    ] = None,
    form: Annotated[As, typer.Option("--format", help="How gates are printed.")] = As.text,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Where gates or tables are written; standard output otherwise."
        ),
    ] = None,
    bisect: Annotated[
        bool,
        typer.Option(
            "--bisect",
            help="Exit as `git bisect run` wants: 0 good, 1 bad, 125 to be skipped, 128 to stop.",
        ),
    ] = False,
    html: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Of two runs, a page of all changes, one file."),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="The effects or changes as JSON, for other programs.")
    ] = False,
    accept_unfit: Annotated[
        bool,
        typer.Option(
            "--accept-unfit",
            help="Decide gates although a run's host was not fit for measuring.",
        ),
    ] = False,
) -> None:
    """Show the effects of one run, or how those of a second differ from those of the first.

    For two runs, the output starts with what differs between them besides their results, then
    shows how each effect against the baseline changed; for more, what the runs say together. Raw
    values of different runs are never compared. With gates the exit status is 0 if all hold, 1 if
    one fails, and 3 if one is open: more blocks are needed, or a run's host was not fit for
    measuring (see --accept-unfit). With --bisect it is 125 instead of 3.
    For example: tare compare before after --gate 'switch latency-median < +5 %'
    """
    with _for_bisect(bisect):
        if bisect and not (gate or gates):
            raise InputError("--bisect is about gates", "name a gate by --gate or --gates")
        if accept_unfit and not (gate or gates):
            raise InputError("--accept-unfit is about gates", "name a gate by --gate or --gates")
        told = (tuple(gate or ()), gates, tuple(floor or ()))
        outcome = _compare(
            directories, baseline, told, Shown(pairs, form, out, html, accept_unfit, as_json)
        )
    if outcome is not None:
        raise typer.Exit((BISECT if bisect else EXIT)[outcome])


@contextmanager
def _for_bisect(asked: bool) -> Iterator[None]:
    """Have whatever goes wrong end a bisection, not call its commit bad.

    Raises:
        typer.Exit: Something went wrong, and was reported.
    """
    try:
        yield
    except Exception as error:
        if not asked:
            raise
        if isinstance(error, TareError | OSError):
            print(f"tare: {error}", file=sys.stderr)
        else:
            # Python would end with 1, which calls the commit bad.
            traceback.print_exc()
        raise typer.Exit(ABORT) from None


@dataclass(frozen=True)
class Shown:
    """How a comparison is shown, as the command line says."""

    pairs: bool
    form: As
    out: Path | None
    html: Path | None
    accept_unfit: bool = False
    as_json: bool = False


def _compare(
    directories: Sequence[Path],
    baseline: str,
    told: tuple[tuple[str, ...], Path | None, tuple[str, ...]],
    shown: Shown,
) -> Outcome | None:
    """Compare and show; return what came out of the gates, None where there are none."""
    from rich.console import Console

    limits, gates, floors = told
    _require_fitting(len(directories), bool(limits or gates), floors, shown)
    console = lasting()
    if shown.html is not None or limits or gates:
        runs = [loaded(directory) for directory in directories]
        _require_different([run.run for run in runs])
        if shown.html is not None:
            _page(runs, baseline, shown.html, console)
        if limits or gates:
            before, after = (compared_with(run, baseline) for run in runs)
            return _gate(before, after, told, shown, console)
    if shown.as_json:
        text_of_all = _as_json(directories, baseline)
        if shown.out is None:
            print(text_of_all, end="")
        else:
            put_for_user(shown.out, text_of_all, ELSEWHERE)
        return None
    if shown.out is None:
        _tables(directories, baseline, console, pairs=shown.pairs)
        return None
    text = StringIO()
    plain = Console(file=text, highlight=False, force_terminal=False)
    _tables(directories, baseline, plain, pairs=shown.pairs)
    put_for_user(shown.out, text.getvalue(), ELSEWHERE)
    console.print(f"wrote {shown.out}", markup=False, soft_wrap=True)
    return None


def _require_fitting(runs: int, gated: bool, floors: tuple[str, ...], shown: Shown) -> None:
    """See that options are given with what they are about.

    Raises:
        InputError: One is not.
    """
    if floors and not gated:
        raise InputError("a floor is a gate's", "name a gate by --gate or --gates")
    if shown.form is not As.text and not gated:
        raise InputError(
            f"--format {shown.form.value} is for gates",
            "name a gate by --gate or --gates, or leave it",
        )
    if gated and runs != 2:
        raise InputError("gates are about two runs", "name the run before and the run after")
    if shown.html is not None and runs != 2:
        raise InputError("--html is about two runs", "name the run before and the run after")
    if shown.as_json and (gated or shown.pairs or shown.html is not None):
        raise InputError(
            "--json is of effects and changes alone",
            "leave --gate, --pairs and --html out; gates have --format json",
        )
    if shown.pairs and runs != 1:
        raise InputError("--pairs is about the arms of one run", "name one run")


def _tables(directories: Sequence[Path], baseline: str, console: Console, *, pairs: bool) -> None:
    """Tell what there is to tell without gates: of one run, of two, or of more."""
    from tare.report import render_comparison
    from tare.report.terminal.between import render_changes, render_pooled

    if pairs:
        _pairs(loaded(directories[0]), baseline, console)
        return
    if len(directories) > 2:
        render_pooled(effects_of(directories, baseline), console)
        return
    runs = [loaded(directory) for directory in directories]
    _require_different([run.run for run in runs])
    compared = [compared_with(run, baseline) for run in runs]
    if len(compared) == 1:
        render_comparison(compared[0], console)
    else:
        render_changes(compared[0], compared[1], console)


def _as_json(directories: Sequence[Path], baseline: str) -> str:
    """Return the same as plain values, for other programs."""
    from tare.report.compare.as_json import changes_json, effects_json, json_text, pooled_json

    if len(directories) > 2:
        return json_text(pooled_json(effects_of(directories, baseline)))
    runs = [loaded(directory) for directory in directories]
    _require_different([run.run for run in runs])
    compared = [compared_with(run, baseline) for run in runs]
    return json_text(effects_json(*compared) if len(compared) == 1 else changes_json(*compared))


def effects_of(directories: Sequence[Path], baseline: str) -> list[Comparison]:
    """Return the effects of many runs, of which no more than one is in memory at a time.

    Raises:
        InputError: There is no run in one of the folders, or the same in two, or no such arm.
    """
    from tare.analysis.runs.run_changes import effects_alone

    found = []
    for directory in directories:
        found.append(effects_alone(compared_with(loaded(directory), baseline)))
    _require_different([comparison.runs[0].run for comparison in found])
    return found


def _require_different(runs: Sequence[str]) -> None:
    if len(set(runs)) < len(runs):
        raise InputError("the same run is given twice", "name each run once")


def compared_with(run: RunData, baseline: str) -> Comparison:
    """Return a run's effects against its baseline, or against another arm of it.

    Raises:
        InputError: It has no such arm.
    """
    from tare.analysis import compare_runs

    return compare_runs(run, settings_of(run, baseline))


def _pairs(run: RunData, baseline: str, console: Console) -> None:
    from tare.analysis import compare_every_pair
    from tare.report.terminal.comparison import render_pairs

    settings = settings_of(run, baseline)
    render_pairs(compare_every_pair(run, settings, most=None), console)


def _page(runs: Sequence[RunData], baseline: str, path: Path, console: Console) -> None:
    """Write the page of two runs, which compares with any arm that both have."""
    from tare.report.compare.changes import write_changes

    chosen = settings_of(runs[0], baseline).baseline
    shared = [arm for arm in runs[0].arms if arm in runs[1].arms and arm != chosen]
    before, after = (
        {name: compared_with(run, name) for name in (chosen, *shared[:MOST_BASELINES])}
        for run in runs
    )
    write_changes(before, after, chosen, path)
    console.print(f"wrote {path}", markup=False, soft_wrap=True)


def settings_of(run: RunData, baseline: str) -> Settings:
    """Return how a run is compared, with another baseline than its study's if one is named.

    Raises:
        InputError: The run has no such arm.
    """
    from tare.analysis.data.settings import Settings

    settings = Settings.of([run])
    if not baseline or baseline == settings.baseline:
        return settings
    try:
        return settings.against(baseline, run.arms)
    except InputError as error:
        raise InputError(f"{run.folder}: {error.message}", error.hint) from None


def _gate(
    before: Comparison,
    after: Comparison,
    told: tuple[tuple[str, ...], Path | None, tuple[str, ...]],
    shown: Shown,
    console: Console,
) -> Outcome:
    from tare.analysis.runs.gate_files import read_gates, with_floors
    from tare.analysis.runs.gates import check, parse_gate, worst
    from tare.report.compare.gates import FORMATS
    from tare.report.compare.run_doubts import doubts_of

    texts, path, floors = told
    asked = (*map(parse_gate, texts), *(read_gates(path) if path is not None else ()))
    asked = with_floors(asked, floors)
    checked = check(before, after, asked, accept_unfit=shown.accept_unfit)
    doubts = doubts_of(before, after)
    text = FORMATS[shown.form.value](checked, doubts)
    if shown.out is None:
        console.print(text, markup=False, soft_wrap=True, end="")
    else:
        put_for_user(shown.out, text.encode(), ELSEWHERE)
    for doubt in doubts if not _read_twice(shown) else ():
        # Next to what other programs read, not in it.
        print(f"tare: note: {doubt}", file=sys.stderr)
    return worst(checked)


def _read_twice(shown: Shown) -> bool:
    """Return whether a reader sees both outputs on one terminal, of which one has the notes."""
    both = sys.stdout.isatty() and sys.stderr.isatty()
    return both and shown.out is None and shown.form in (As.text, As.markdown, As.junit)
