"""The command ``history``: where the effects of many runs of one study changed."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from tare.cli.compare import effects_of
from tare.cli.telling import lasting
from tare.errors import InputError


class As(StrEnum):
    """How a history is printed."""

    text = "text"
    json = "json"
    svg = "svg"


def history(
    runs: Annotated[
        list[str],
        typer.Argument(
            metavar="STUDY|DIR...",
            help="A study, by name or file, whose runs here are found; or folders of runs.",
        ),
    ],
    baseline: Annotated[
        str, typer.Option(metavar="ARM", help="Another arm to compare with than the study's.")
    ] = "",
    host: Annotated[
        str, typer.Option(metavar="NAME", help="Of a study's runs only those on this host.")
    ] = "",
    form: Annotated[As, typer.Option("--format", help="How it is printed.")] = As.text,
    out: Annotated[
        Path | None,
        typer.Option(help="A file to write JSON or a picture to; standard output otherwise."),
    ] = None,
) -> None:
    """Show where the effects of many runs of one study changed; the order is that of their start.

    For example: tare history realtime --host xen1 --format svg --out nightly.svg
    """
    from tare.analysis.runs.history import history as history_of
    from tare.outputs import put_for_user
    from tare.report.terminal.history import history_json, history_svg, render_history

    if out is not None and form is As.text:
        raise InputError("text is for the terminal", "write --format json or svg beside --out")
    found = history_of(effects_of(_folders(runs, host), baseline))
    if form is As.text:
        render_history(found, lasting())
        return
    text = history_json(found) if form is As.json else history_svg(found)
    if out is None:
        print(text, end="")
    else:
        put_for_user(out, text.encode(), "choose another file with --out")


def _folders(said: Sequence[str], host: str) -> list[Path]:
    """Return the folders of the runs that a command line names.

    Raises:
        InputError: There is no such study among the runs carried out from here, or its runs were
            on several hosts and none is named.
    """
    if len(said) != 1 or Path(said[0]).is_dir():
        if host:
            raise InputError("--host is for the runs of a study", "name a study, or leave it out")
        return [Path(each) for each in said]
    from tare.run.lifecycle.known_runs import is_there, known_runs, known_runs_file

    study = _name_in(Path(said[0])) if Path(said[0]).is_file() else said[0]
    known = [run for run in known_runs(study) if run.status == "complete"]
    there = [run for run in known if is_there(run) and (not host or host in run.hosts)]
    if not there:
        raise InputError(
            f"no complete run of {study}{f' on {host}' if host else ''} is known here"
            + (
                f"; the folders of {len(known)} are gone or hold others"
                if known and not host
                else ""
            ),
            f"name folders of runs; those that end are noted in {known_runs_file()}",
        )
    if gone := sum(not is_there(run) for run in known):
        said = f"tare: the folders of {gone} runs of {study} are gone or hold others"
        print(said, file=sys.stderr)
    places = Counter(run.hosts for run in there)
    if len(places) > 1:
        listed = "; ".join(f"{number} on {', '.join(on)}" for on, number in places.items())
        raise InputError(
            f"the runs of {study} were on several hosts: {listed}",
            "name one with --host, or folders of runs",
        )
    return [run.folder for run in there]


def _name_in(file: Path) -> str:
    """Return what a study's file calls it.

    Raises:
        InputError: It is not a study.
    """
    from tare.study.reading.yamltext import parse

    name = parse(file.read_bytes(), str(file)).data.get("study")
    if not isinstance(name, str):
        raise InputError(f"{file} names no study", "name a study, its file, or folders of runs")
    return name
