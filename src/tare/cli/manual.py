"""Write the manual page of the command: ``python -m tare.cli.manual [FILE]``."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer

from tare.cli.main import app
from tare.outputs import put

PAGE = Path("wheel/data/share/man/man1/tare.1")
"""Where the page is kept, so that it is installed with the command."""

HELP = "help"
"""The option that every command has, and that is described once."""

EXIT_STATUS = (
    ("0", "Complete."),
    ("1", "Failed, or some cells failed, or none of an arm counts."),
    ("2", "Wrong input: nothing was started. Of compare --gate: see there."),
    ("3", "Waiting, of a study in sessions: the last lines say what to boot, and how to go on."),
    ("130", "Interrupted: the last line says how to go on."),
)
FILES = (
    ("~/.config/tare/hosts.yaml", "Hosts by name."),
    ("~/.cache/tare", "Kernels, images and packages. XDG_CACHE_HOME moves it."),
    (
        "~/.local/state/tare",
        "What is made on a host, for tare clean to undo. XDG_STATE_HOME moves it.",
    ),
)


def manual() -> str:
    """Return the page in the language of ``man``, made of the commands' own help."""
    root: Any = typer.main.get_command(app)
    lines = ['.TH TARE 1 "" "" "Tare"', ".SH NAME"]
    lines += [f"tare \\- {_roff(_first(root.help))}", ".SH SYNOPSIS", ".B tare"]
    lines += ["[\\fIOPTIONS\\fR] \\fICOMMAND\\fR [\\fIARGUMENTS\\fR]"]
    lines += [".SH DESCRIPTION", *_paragraphs(root.help), ".SH OPTIONS"]
    context = root.context_class(root, info_name="tare", **root.context_settings)
    lines += [*_parameters(root, context), ".SH COMMANDS", *_commands(root, context)]
    for title, entries in (("EXIT STATUS", EXIT_STATUS), ("FILES", FILES)):
        lines.append(f".SH {title}")
        for term, words in entries:
            lines += [".TP", f".B {_roff(term)}", _roff(words)]
    return "\n".join(lines) + "\n"


def _commands(group: Any, context: Any) -> Iterator[str]:
    for name, command in group.commands.items():
        inner = command.context_class(command, info_name=name, parent=context)
        if hasattr(command, "commands"):
            yield from _commands(command, inner)
            continue
        usage = " ".join(command.collect_usage_pieces(inner))
        yield f".SS {_roff(inner.command_path)} {_roff(usage)}"
        yield from _paragraphs(command.help)
        yield from _parameters(command, inner, without=HELP)


def _parameters(command: Any, context: Any, without: str = "") -> Iterator[str]:
    for parameter in command.get_params(context):
        record = parameter.get_help_record(context)
        if record is not None and parameter.name != without:
            yield ".TP"
            yield f".B {_roff(record[0])}"
            yield _roff(record[1])


def _paragraphs(text: str) -> Iterator[str]:
    for number, paragraph in enumerate(re.split(r"\n\s*\n", text.strip())):
        if number:
            yield ".PP"
        yield _roff(paragraph)


def _first(text: str) -> str:
    return text.strip().split("\n\n")[0].rstrip(".")


def _roff(text: str) -> str:
    """Return text as nothing but text to ``man``: no escapes, no requests."""
    line = " ".join(text.split()).replace("\\", "\\e").replace("-", "\\-")
    return f"\\&{line}" if line.startswith((".", "'")) else line


if __name__ == "__main__":
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else PAGE
    target.parent.mkdir(parents=True, exist_ok=True)
    put(target, manual())
