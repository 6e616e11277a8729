"""The commands `tare study …`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from tare.outputs import put_for_user

KEY = "KEY"


class _KeyOrCommand(TyperGroup):
    """A group in which every word that is not a command is a key of the study."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Return the command that a word names, or else the command that explains a key."""
        word = args[0]
        if word in self.commands or word.startswith("-"):
            return super().resolve_command(ctx, args)
        return KEY, self.commands[KEY], args


study_app = typer.Typer(
    cls=_KeyOrCommand,
    help="The keys of a study, with every platform and workload that is installed here: `tare "
    "study KEY` explains a key, a platform or a workload.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

Out = Annotated[Path | None, typer.Option(help="Write to this file, not to standard output.")]


@study_app.command()
def schema(out: Out = None) -> None:
    """Write the JSON Schema of study files, for completion and checks in editors."""
    from tare.run.reference import study_schema

    _write(study_schema(), out)


@study_app.command()
def reference(out: Out = None) -> None:
    """Write every key of a study file with its meaning, as Markdown."""
    from tare.run.reference import study_reference

    _write(study_reference(), out)


@study_app.command()
def platforms(out: Out = None) -> None:
    """Write the tables of each platform's features and requirements, as Markdown."""
    from tare.run.reference import platform_tables

    _write(platform_tables(), out)


def _keys(typed: str) -> list[str]:
    from tare.run.reference import study_reference
    from tare.study.reference.explaining import sections_of

    sections = sections_of(study_reference())
    known = {name for each in sections for name in (*each.names, *(row.key for row in each.rows))}
    return sorted(name for name in known if name.startswith(typed))


@study_app.command(KEY)
def key(
    name: Annotated[
        str,
        typer.Argument(
            metavar=KEY,
            help="A key as in a study, with dots; or a platform or workload.",
            autocompletion=_keys,
        ),
    ],
) -> None:
    """Print what a key of a study means, which values it takes, and its default.

    For example: tare study blocks.precision; tare study arms.kvm.hugepages; tare study tick
    """
    from tare.run.reference import study_reference
    from tare.study.reference.explaining import explain

    print(explain(study_reference(), name), end="")


def _write(text: str, out: Path | None) -> None:
    if out is None:
        print(text, end="")
    else:
        put_for_user(out, text, "or choose another file with --out")
