"""The commands `tare study …`; thin."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tare.outputs import put_for_user

study_app = typer.Typer(
    help="What a study may say, with every platform and workload that is installed here.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

Out = Annotated[Path | None, typer.Option(help="A file; standard output otherwise.")]


@study_app.command()
def schema(out: Out = None) -> None:
    """Write the JSON Schema of study files, by which editors complete and check them."""
    _write("study.schema.json", out)


@study_app.command()
def reference(out: Out = None) -> None:
    """Write every key of a study file with its meaning, as Markdown."""
    _write("study.md", out)


@study_app.command()
def platforms(out: Out = None) -> None:
    """Write the tables of what each platform offers and needs, as Markdown."""
    _write("platforms.md", out)


def _write(name: str, out: Path | None) -> None:
    from tare.run.reference import generated

    text = generated()[name]
    if out is None:
        print(text, end="")
    else:
        put_for_user(out, text, "or choose another file with --out")
