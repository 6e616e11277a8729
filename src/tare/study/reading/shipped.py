"""The studies that come with Tare: found by name, wherever Tare is installed."""

from __future__ import annotations

import difflib
import re
from pathlib import Path

from tare.errors import InputError

RENAMED = {f"{each}-short": f"{each}-smoke" for each in ("components", "interference", "mapreduce")}
"""Names of an earlier version, which still find their studies. Those with too few blocks for any
verdict are smoke tests."""
_PLAIN_TITLE = re.compile(rb"^title: ([A-Za-z](?:[\w ,.'-])*)$", re.MULTILINE | re.ASCII)
"""A title on one line that is plain text in YAML."""
FOLDER = Path(__file__).parents[2] / "studies"
"""Their folder, with the files that some of them use."""


def shipped_studies() -> dict[str, Path]:
    """Return the files of the studies that come with Tare, in the order of their names."""
    return {path.stem: path for path in sorted(FOLDER.glob("*.yaml"))}


def title_of(study: Path) -> str:
    """Return a study's title; empty if it has none.

    Args:
        study: A study's file.
    """
    content = study.read_bytes()
    if plain := _PLAIN_TITLE.search(content):
        return plain[1].decode()
    # Imported here, because no title of a study that comes with Tare needs it.
    from tare.study.reading.yamltext import parse

    title = parse(content, str(study)).data.get("title", "")
    return title if isinstance(title, str) else ""


def find_study(given: Path) -> Path:
    """Return the file of a study.

    Args:
        given: A path, or the bare name of a study that comes with Tare. A file of that name in the
            working folder takes precedence.

    Raises:
        InputError: It is neither; the message lists the names. The caller checks paths.
    """
    known = shipped_studies()
    if given.suffix or len(given.parts) != 1:
        return given
    # Longer names are not possible in file systems, and exists() would raise an error.
    there = len(given.name) < 256 and given.exists()
    if there and not given.is_dir():
        return given
    name = RENAMED.get(given.name, given.name)
    if name in known:
        return known[name]
    if there:
        return given
    close = difflib.get_close_matches(given.name, known, n=1, cutoff=0.6)
    meant = f"did you mean {close[0]}? " if close else ""
    raise InputError(
        f"{given}: no study of this name comes with Tare, and there is no such file",
        f"{meant}name a YAML file, or one of: {', '.join(known)}",
    )
