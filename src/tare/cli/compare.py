"""The command ``compare``: the effects of one run, changes between runs, and gates."""

from __future__ import annotations

import sys
import traceback
from contextlib import contextmanager
from dataclasses import dataclass, replace
from enum import StrEnum
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tare.cli.checking import loaded
from tare.cli.output import lasting
from tare.errors import InputError, TareError
from tare.outputs import put_for_user

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rich.console import Console

    from tare.analysis.data.rundata import RunData
    from tare.analysis.data.settings import Settings
    from tare.analysis.effects.comparison import Comparison
    from tare.analysis.runs.gates import Outcome
    from tare.analysis.runs.run_variation import RunVariation

EXIT = {"holds": 0, "fails": 1, "open": 3}
"""Exit statuses of gates; 2 means wrong input, as for every command."""
BISECT = {"holds": 0, "fails": 1, "open": 125}
"""Exit statuses by which ``git bisect run`` marks a commit as good, marks it as bad, or skips it.
"""
ABORT = 128
"""The exit status that stops ``git bisect run``: a lower one would mark an untested commit as bad.
"""


ELSEWHERE = "or choose another file with --out"
MOST_REPEATS = 12
"""The most runs of a host's history, the newest first, from which the variation between runs is
estimated."""
MOST_BASELINES = 12
"""The most further baselines on a page of two runs: each is one more comparison."""


class PrintFormat(StrEnum):
    """How gates are printed."""

    text = "text"
    markdown = "markdown"
    junit = "junit"
    bmf = "bmf"
    github = "github"
    openmetrics = "openmetrics"


def compare(
    directories: Annotated[
        list[Path], typer.Argument(metavar="DIR...", help="The folders of runs.")
    ],
    baseline: Annotated[
        str,
        typer.Option(metavar="ARM", help="Compare with this arm, not with the study's baseline."),
    ] = "",
    pairs: Annotated[
        bool, typer.Option("--pairs", help="Compare every arm with every other, and rank them.")
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
            help="A change that is always too small to fail a gate, such as 'latency-median=1 %'; "
            "without % in the metric's unit.",
        ),
    ] = None,
    form: Annotated[
        PrintFormat, typer.Option("--format", help="Output format of gates.")
    ] = PrintFormat.text,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Write gates or tables to this file, not to standard output."
        ),
    ] = None,
    bisect: Annotated[
        bool,
        typer.Option(
            "--bisect",
            help="Exit status for `git bisect run`: 0 good, 1 bad, 125 skip, 128 stop.",
        ),
    ] = False,
    html: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Write a page of all changes between two runs, as one file."
        ),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the effects or changes as JSON.")
    ] = False,
    accept_unfit: Annotated[
        bool,
        typer.Option(
            "--accept-unfit",
            help="Decide gates even if a run's host was unfit for measuring.",
        ),
    ] = False,
    repeat_run: Annotated[
        list[Path] | None,
        typer.Option(
            "--repeat-run",
            metavar="DIR",
            help="A repetition of the first run. With three or more, gates use the measured "
            "variation between runs. Default: the runs of this study in this host's history.",
        ),
    ] = None,
    run_variation: Annotated[
        str,
        typer.Option(
            metavar="SHARE",
            help="Variation between runs of one set-up (standard deviation) that gates assume "
            "where it was not measured, such as 0.5 %. Default: 1 %.",
        ),
    ] = "",
) -> None:
    """Show the effects of one run, or how the effects of two or more runs differ.

    For two runs, the output starts with what else differs between them, then shows how each effect
    against the baseline changed. Three or more runs are pooled. Raw values of different runs are
    never compared. With gates the exit status is 0 if all hold, 1 if one fails, and 3 if one is
    open: it needs more blocks, or a run's host was unfit for measuring (see --accept-unfit). With
    --bisect it is 125 instead of 3.
    For example: tare compare before after --gate 'switch latency-median < +5 %'
    """
    with _for_bisect(bisect):
        if bisect and not (gate or gates):
            raise InputError("--bisect needs a gate", "name a gate by --gate or --gates")
        if accept_unfit and not (gate or gates):
            raise InputError("--accept-unfit needs a gate", "name a gate by --gate or --gates")
        for option, value in (("--repeat-run", repeat_run), ("--run-variation", run_variation)):
            if value and not (gate or gates):
                raise InputError(f"{option} needs a gate", "name a gate by --gate or --gates")
        limits = (tuple(gate or ()), gates, tuple(floor or ()))
        repeats = tuple(repeat_run or ())
        outcome = _compare(
            directories,
            baseline,
            limits,
            ShowOptions(pairs, form, out, html, accept_unfit, as_json, repeats, run_variation),
        )
    if outcome is not None:
        raise typer.Exit((BISECT if bisect else EXIT)[outcome])


@contextmanager
def _for_bisect(asked: bool) -> Iterator[None]:
    """End a bisection on any error, instead of marking its commit as bad.

    Raises:
        typer.Exit: There was an error; it was reported.
    """
    try:
        yield
    except Exception as error:
        if not asked:
            raise
        if isinstance(error, TareError | OSError):
            print(f"tare: {error}", file=sys.stderr)
        else:
            # Python would exit with 1, which marks the commit as bad.
            traceback.print_exc()
        raise typer.Exit(ABORT) from None


@dataclass(frozen=True)
class ShowOptions:
    """The options of the command line on how to show a comparison."""

    pairs: bool
    form: PrintFormat
    out: Path | None
    html: Path | None
    accept_unfit: bool = False
    as_json: bool = False
    repeats: tuple[Path, ...] = ()
    run_variation: str = ""


def _compare(
    directories: Sequence[Path],
    baseline: str,
    limits: tuple[tuple[str, ...], Path | None, tuple[str, ...]],
    shown: ShowOptions,
) -> Outcome | None:
    """Compare and show; return the outcome of the gates, or None without gates."""
    from rich.console import Console

    texts, gates, floors = limits
    _require_fitting(len(directories), bool(texts or gates), floors, shown)
    console = lasting()
    if shown.html is not None or texts or gates:
        runs = [loaded(directory) for directory in directories]
        _require_different([run.run for run in runs])
        if shown.html is not None:
            _page(runs, baseline, shown.html, console)
        if texts or gates:
            before, after = (compared_with(run, baseline) for run in runs)
            variation = _variation(runs, before, baseline, shown)
            return _gate(before, after, limits, shown, console, variation)
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


def _require_fitting(runs: int, gated: bool, floors: tuple[str, ...], shown: ShowOptions) -> None:
    """Check that the options fit the number of runs and each other.

    Raises:
        InputError: An option does not fit.
    """
    if floors and not gated:
        raise InputError("--floor needs a gate", "name a gate by --gate or --gates")
    if shown.form is not PrintFormat.text and not gated:
        raise InputError(
            f"--format {shown.form.value} needs a gate",
            "name a gate by --gate or --gates, or remove --format",
        )
    if gated and runs != 2:
        raise InputError(
            "gates compare two runs",
            "name two runs: the one before the change, then the one after it",
        )
    if shown.html is not None and runs != 2:
        raise InputError(
            "--html compares two runs",
            "name two runs: the one before the change, then the one after it",
        )
    if shown.as_json and (gated or shown.pairs or shown.html is not None):
        raise InputError(
            "--json prints effects and changes only",
            "remove --gate, --pairs and --html; for gates, use --format bmf or junit",
        )
    if shown.pairs and runs != 1:
        raise InputError("--pairs compares the arms of one run", "name one run")


def _tables(directories: Sequence[Path], baseline: str, console: Console, *, pairs: bool) -> None:
    """Print the tables without gates: effects of one run, changes of two, or a pool of more."""
    from tare.report import render_comparison
    from tare.report.terminal.run_changes import render_changes, render_pooled

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
    """Return the effects or changes as JSON."""
    from tare.report.compare.as_json import changes_json, effects_json, json_text, pooled_json

    if len(directories) > 2:
        return json_text(pooled_json(effects_of(directories, baseline)))
    runs = [loaded(directory) for directory in directories]
    _require_different([run.run for run in runs])
    compared = [compared_with(run, baseline) for run in runs]
    return json_text(effects_json(*compared) if len(compared) == 1 else changes_json(*compared))


def effects_of(directories: Sequence[Path], baseline: str) -> list[Comparison]:
    """Return the effects of many runs, with one run in memory at a time.

    Raises:
        InputError: A folder holds no run, two hold the same, or a run lacks the arm.
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
    """Return a run's effects against its baseline, or against another of its arms.

    Raises:
        InputError: It lacks that arm.
    """
    from tare.analysis import compare_runs

    return compare_runs(run, settings_of(run, baseline))


def _pairs(run: RunData, baseline: str, console: Console) -> None:
    from tare.analysis import compare_every_pair
    from tare.report.terminal.comparison import render_pairs

    settings = settings_of(run, baseline)
    render_pairs(compare_every_pair(run, settings, most=None), console)


def _page(runs: Sequence[RunData], baseline: str, path: Path, console: Console) -> None:
    """Write the page of two runs, with each arm that both have as a possible baseline."""
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
    """Return the settings of a comparison, with the named baseline or else the study's.

    Raises:
        InputError: The run lacks that arm.
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
    limits: tuple[tuple[str, ...], Path | None, tuple[str, ...]],
    shown: ShowOptions,
    console: Console,
    variation: RunVariation,
) -> Outcome:
    from tare.analysis.runs.gate_files import read_gates, with_floors
    from tare.analysis.runs.gates import check, parse_gate, worst
    from tare.report.compare.gates import FORMATS
    from tare.report.compare.run_doubts import doubts_of

    texts, path, floors = limits
    asked = (*map(parse_gate, texts), *(read_gates(path) if path is not None else ()))
    asked = with_floors(asked, floors)
    checked = check(before, after, asked, accept_unfit=shown.accept_unfit, variation=variation)
    doubts = doubts_of(before, after)
    text = FORMATS[shown.form.value](checked, doubts)
    if shown.out is None:
        console.print(text, markup=False, soft_wrap=True, end="")
    else:
        put_for_user(shown.out, text.encode(), ELSEWHERE)
    for doubt in doubts if not _read_twice(shown) else ():
        # On standard error, so that the output stays machine-readable.
        print(f"tare: note: {doubt}", file=sys.stderr)
    return worst(checked)


def _variation(
    runs: Sequence[RunData], before: Comparison, baseline: str, shown: ShowOptions
) -> RunVariation:
    """Return the variation between runs of one set-up, from named or earlier runs, or assumed.

    Raises:
        InputError: A named run cannot be compared, or the assumed share is not one.
    """
    from tare.analysis.runs.run_variation import repeated_runs, share_of

    if shown.repeats:
        repeats = effects_of(shown.repeats, baseline)
        _require_different([*(run.run for run in runs), *(one.runs[0].run for one in repeats)])
        source = "named with --repeat-run"
    else:
        repeats = effects_of(_history_of(runs), baseline)
        source = "from this host's history"
    variation = repeated_runs([before, *repeats], source) if repeats else repeated_runs([], "")
    if not shown.run_variation:
        return variation
    return replace(variation, share=share_of(shown.run_variation), asked=True)


def _history_of(runs: Sequence[RunData]) -> list[Path]:
    """Return the folders of the newest other runs of this study on this host.

    There are none if the two runs are of different hosts or studies.
    """
    from tare.analysis.effects.detectable import SAME_HOST
    from tare.run.lifecycle.known_runs import is_there, known_runs, names_of_hosts

    first, second = runs
    study = str(first.study.get("study", ""))
    hosts = names_of_hosts(first.host)
    same = all(first.host.get(name) == second.host.get(name) for name in SAME_HOST)
    deterministic = first.counts_instructions and second.counts_instructions
    if deterministic or not same or second.study.get("study") != study:
        return []
    known = [
        run.folder
        for run in known_runs(study)
        if run.status == "complete"
        and run.hosts == hosts
        and run.run not in (first.run, second.run)
        and is_there(run)
    ]
    return known[-MOST_REPEATS:]


def _read_twice(shown: ShowOptions) -> bool:
    """Return whether both outputs go to one terminal, where the notes would appear twice."""
    both = sys.stdout.isatty() and sys.stderr.isatty()
    return (
        both
        and shown.out is None
        and shown.form in (PrintFormat.text, PrintFormat.markdown, PrintFormat.junit)
    )
