"""The command `tare help`: the pages of docs/, which are installed with Tare."""

from __future__ import annotations

import difflib
from pathlib import Path
from typing import Annotated

import typer

from tare.errors import InputError

FOLDER = Path(__file__).parents[1] / "manual"
"""A link to docs/ in a checkout."""
KINDS = {
    "tutorials": "Learn",
    "how-to": "Do",
    "reference": "Look up",
    "explanation": "Understand",
}


def pages() -> dict[str, Path]:
    """Return every page by its topic, in the order of kinds and names."""
    found = [path for kind in KINDS for path in sorted((FOLDER / kind).glob("*.md"))]
    return {path.stem: path for path in found}


def title_of(page: Path) -> str:
    """Return the title of a page."""
    with page.open(encoding="utf-8") as lines:
        return next((line[2:].strip() for line in lines if line.startswith("# ")), page.stem)


def find_page(topic: str) -> Path:
    """Return the page about a topic.

    Args:
        topic: The name of its file, with or without folder and ending.

    Raises:
        InputError: There is no such page; the message names similar ones.
    """
    known = pages()
    name = Path(topic.strip().casefold().replace(" ", "-")).name.removesuffix(".md")
    if name in known:
        return known[name]
    near = difflib.get_close_matches(name, known, n=2)
    meant = f"; did you mean {' or '.join(near)}?" if near else ""
    raise InputError(
        f"there is no topic {topic!r}{meant}",
        "`tare help` lists all topics; `tare study KEY` describes a key of a study, a platform or "
        "a workload",
    )


def list_topics() -> str:
    """Return every topic with its title, grouped by kind."""
    lines = []
    for kind, purpose in KINDS.items():
        lines.append(f"{purpose}:")
        lines += [
            f"  {topic:<18}{title_of(page)}"
            for topic, page in pages().items()
            if page.parent.name == kind
        ]
    return "\n".join(lines)


def complete_topic(typed: str) -> list[str]:
    """Return the topics that begin with what was typed."""
    return [topic for topic in pages() if topic.startswith(typed)]


def help_about(
    topic: Annotated[
        str,
        typer.Argument(
            help="The name of a page. Default: list all pages.",
            autocompletion=complete_topic,
        ),
    ] = "",
) -> None:
    """Print a page of the documentation, or list all pages.

    For example: tare help; tare help my-vm; tare help statistics | less
    """
    print(find_page(topic).read_text(encoding="utf-8") if topic else list_topics(), end="\n")
