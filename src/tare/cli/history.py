"""The command ``history``: changes in the effects over many runs of one study."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from tare.cli.compare import effects_of
from tare.cli.output import lasting
from tare.errors import InputError


class HistoryFormat(StrEnum):
    """How a history is printed."""

    text = "text"
    json = "json"
    svg = "svg"


def history(
    runs: Annotated[
        list[str],
        typer.Argument(
            metavar="STUDY|DIR...",
            help="A study, by name or file, to find its runs on this computer; or folders of runs.",
        ),
    ],
    baseline: Annotated[
        str,
        typer.Option(metavar="ARM", help="Compare with this arm, not with the study's baseline."),
    ] = "",
    host: Annotated[
        str, typer.Option(metavar="NAME", help="Only a study's runs on this host.")
    ] = "",
    form: Annotated[
        HistoryFormat, typer.Option("--format", help="Output format.")
    ] = HistoryFormat.text,
    out: Annotated[
        Path | None,
        typer.Option(help="Write JSON or the picture to this file, not to standard output."),
    ] = None,
) -> None:
    """Show where the effects of many runs of one study changed; runs are in order of their start.

    For example: tare history realtime --host xen1 --format svg --out nightly.svg
    """
    from tare.analysis.runs.history import history as history_of
    from tare.outputs import put_for_user
    from tare.report.terminal.history import history_json, history_svg, render_history

    if out is not None and form is HistoryFormat.text:
        raise InputError("--out does not write text", "add --format json or --format svg")
    found = history_of(effects_of(_folders(runs, host), baseline))
    if form is HistoryFormat.text:
        render_history(found, lasting())
        return
    text = history_json(found) if form is HistoryFormat.json else history_svg(found)
    if out is None:
        print(text, end="")
    else:
        put_for_user(out, text.encode(), "choose another file with --out")


def _folders(given: Sequence[str], host: str) -> list[Path]:
    """Return the folders of the runs that a command line names.

    Raises:
        InputError: No run of that study is known here, or its runs were on several hosts and none
            is named.
    """
    if len(given) != 1 or Path(given[0]).is_dir():
        if host:
            raise InputError("--host is for the runs of a study", "name a study, or leave it out")
        return [Path(each) for each in given]
    from tare.run.lifecycle.known_runs import is_there, known_runs, known_runs_file

    study = _name_in(Path(given[0])) if Path(given[0]).is_file() else given[0]
    known = [run for run in known_runs(study) if run.status == "complete"]
    there = [run for run in known if is_there(run) and (not host or host in run.hosts)]
    if not there:
        raise InputError(
            f"no complete run of {study}{f' on {host}' if host else ''} is known here"
            + (f"; {len(known)} folders are gone or hold other runs" if known and not host else ""),
            f"name folders of runs; finished runs are listed in {known_runs_file()}",
        )
    if gone := sum(not is_there(run) for run in known):
        warning = f"tare: folders of runs of {study} that are gone or hold other runs: {gone}"
        print(warning, file=sys.stderr)
    places = Counter(run.hosts for run in there)
    if len(places) > 1:
        listed = "; ".join(f"{number} on {', '.join(on)}" for on, number in places.items())
        raise InputError(
            f"the runs of {study} were on several hosts: {listed}",
            "name one with --host, or folders of runs",
        )
    return [run.folder for run in there]


def _name_in(file: Path) -> str:
    """Return the name of the study in a file.

    Raises:
        InputError: The file is not a study.
    """
    from tare.study.reading.yamltext import parse

    name = parse(file.read_bytes(), str(file)).data.get("study")
    if not isinstance(name, str):
        raise InputError(f"{file} names no study", "name a study, its file, or folders of runs")
    return name
