"""Find one key's part of the reference, for ``tare study KEY`` and for messages that name a key.

The reference is the Markdown that :mod:`tare.study.reference.pages` generates. An installed Tare,
which has no ``docs/``, prints what ``tare help study`` contains.
"""

from __future__ import annotations

import difflib
import re
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING

from tare.errors import InputError
from tare.study.reading.yamltext import Path, Problem, dotted

if TYPE_CHECKING:
    from tare.study.model.study import Catalog

COMMAND = "tare study"
EVERY_KEY = f"`{COMMAND} reference` describes every key"
UNKNOWN = "unknown key"
"""The start of messages about keys that the reference cannot have."""
_HEADING = re.compile(r"^(#{1,4}) (.*)$")
_NAME = re.compile(r"`([^`]+)`")
_INDEX = re.compile(r"\[[^\]]*\]")
_LINK = re.compile(r"\[([^\]]+)\]\([^)]*\)")
_CELL = re.compile(r"(?<!\\)\|")
_WIDTH = 98
_TITLES = {"the study file": "introduction", "the study": "study"}


@dataclass(frozen=True)
class ReferenceRow:
    """One line of a table of the reference: a key or a metric, and its description."""

    key: str
    header: tuple[str, ...]
    cells: tuple[str, ...]


@dataclass
class Section:
    """One part of the reference, below its heading.

    Args:
        title: The heading.
        level: The depth of the heading, from 1.
        parents: The names of the sections that contain it.
    """

    title: str
    level: int
    parents: frozenset[str]
    text: list[str] = field(default_factory=list)
    rows: list[ReferenceRow] = field(default_factory=list)

    @property
    def names(self) -> tuple[str, ...]:
        """The names that find the section: those in its heading, or the heading itself."""
        title = self.title.casefold()
        return tuple(_NAME.findall(self.title)) or (_TITLES.get(title, title),)

    def show(self) -> str:
        """Return the section for reading in a terminal."""
        heading = self.title.replace("`", "")
        parts = [heading, "=" * len(heading), *_paragraphs(self.text)]
        return "\n".join([*parts, *(show_row(row) for row in self.rows)]).rstrip() + "\n"


@lru_cache(maxsize=2)
def sections_of(markdown: str) -> tuple[Section, ...]:
    """Return the sections of the reference, in order, cached because callers ask for many keys."""
    found: list[Section] = []
    above: list[Section] = []
    header: tuple[str, ...] = ()
    fenced = False
    for line in markdown.splitlines():
        fenced ^= line.startswith("```")
        heading = None if fenced else _HEADING.match(line)
        if heading:
            level = len(heading[1])
            above = [each for each in above if each.level < level]
            parents = frozenset(name for each in above for name in each.names)
            found.append(Section(heading[2], level, parents))
            above.append(found[-1])
            header = ()
        elif found and not fenced and line.startswith("| "):
            cells = tuple(cell.strip().replace("\\|", "|") for cell in _CELL.split(line)[1:-1])
            if not header:
                header = cells
            elif not set(cells[0]) <= {"-"}:
                found[-1].rows.append(ReferenceRow(cells[0].strip("*`"), header, cells))
        elif found:
            header = ()
            if not line.startswith("<!--"):
                found[-1].text.append(line)
    return tuple(found)


def show_row(row: ReferenceRow) -> str:
    """Return a key, the values it takes, its default, and its meaning, wrapped."""
    columns = dict(zip(row.header[1:], row.cells[1:], strict=False))
    meaning = columns.pop("meaning", "")
    facts = [
        f"{name} {value}" if name in ("default", "better") else value
        for name, value in columns.items()
        if value
    ]
    first = _plain(f"{row.key}: {'; '.join(facts)}" if facts else row.key)
    indent = " " * 4
    wrapped = textwrap.fill(
        _plain(meaning), _WIDTH, initial_indent=indent, subsequent_indent=indent
    )
    return "\n".join(filter(None, [textwrap.fill(first, _WIDTH, subsequent_indent="  "), wrapped]))


def explain(markdown: str, key: str) -> str:
    """Return the part of the reference about a key, a platform or a workload.

    Args:
        markdown: The reference.
        key: The key as in a study, with dots: ``blocks``, ``shape.memory``, ``arms.kvm.cpu``,
            ``tick``.

    Raises:
        InputError: There is no such key; the message suggests others.
    """
    sections = sections_of(markdown)
    parts = _parts(key)
    # A metric's name may contain dots.
    found = _found(sections, [key]) or _found(sections, parts)
    if found is None:
        raise InputError(f"there is no key {key!r} in a study{_meant(sections, parts)}", EVERY_KEY)
    return found


def hint_for(problems: Iterable[Problem], catalog: Catalog) -> str:
    """Return the command that describes the wrong keys of a study.

    Args:
        problems: The errors of the study; the first ones have priority.
        catalog: The available platforms and workloads.
    """
    sections = _described(catalog)
    keys = dict.fromkeys(filter(None, (described_key(sections, each) for each in problems)))
    if not keys:
        return EVERY_KEY
    first, *others = keys
    more = f" (likewise {', '.join(others[:2])})" if others else ""
    return f"`{COMMAND} {first}` describes that key{more}; {EVERY_KEY}"


@lru_cache(maxsize=8)
def _described(catalog: Catalog) -> tuple[Section, ...]:
    """Return the reference of a catalog in sections, cached because rendering it is slow."""
    from tare.study.reference.pages import render_markdown

    return sections_of(render_markdown(catalog, {}))


def described_key(sections: Sequence[Section], problem: Problem) -> str:
    """Return the key nearest to a problem that the reference describes, or an empty string."""
    path: Path = problem.path
    if problem.message.startswith(UNKNOWN):
        path = path[:-1]
    while path:
        # Names of arms and the like are the user's own, and are not in the reference.
        if _found(sections, _parts(dotted(path))) is not None:
            return dotted(tuple(part for part in path if isinstance(part, str)))
        path = path[:-1]
    return ""


def _parts(key: str) -> list[str]:
    bare = _INDEX.sub("", key.strip()).replace("_", "-")
    return [part for part in bare.split(".") if part]


def _found(sections: Sequence[Section], parts: Sequence[str]) -> str | None:
    if not parts:
        return None
    *before, last = parts
    rows = [
        (_fit(section, before), section, row)
        for section in sections
        for row in section.rows
        if row.key == last
    ]
    whole = [(_fit(section, before), section) for section in sections if last in section.names]
    best = max([*(fit for fit, _, _ in rows), *(fit for fit, _ in whole)], default=-1)
    if before and best < 1:
        return None
    texts = [section.show() for fit, section in whole if fit == best]
    texts += _with_parts(sections, [section for fit, section in whole if fit == best])
    if not texts or before:
        texts += _grouped([(section, row) for fit, section, row in rows if fit == best])
    return "\n".join(texts) or None


def _with_parts(sections: Sequence[Section], shown: Sequence[Section]) -> list[str]:
    """Return the keys that show the parts of the shown sections."""
    names = {name for section in shown for name in section.names}
    below = dict.fromkeys(
        each.names[0]
        for each in sections
        if each.parents & names and each not in shown and each.level > 1
    )
    if not below or any(section.level == 1 for section in shown):
        return []
    listed = textwrap.fill(", ".join(below), _WIDTH, initial_indent="  ", subsequent_indent="  ")
    return [f"`{COMMAND} KEY` shows each of:\n{listed}\n"]


def _fit(section: Section, before: Sequence[str]) -> int:
    """Return how well a section matches the keys above a key; the nearest counts most."""
    names = set(section.names) | section.parents
    return sum(2**place for place, part in enumerate(before) if part in names)


def _grouped(rows: Iterable[tuple[Section, ReferenceRow]]) -> Iterator[str]:
    alike: dict[str, list[str]] = {}
    for section, row in rows:
        alike.setdefault(show_row(row), []).append(section.title.replace("`", ""))
    for text, titles in alike.items():
        yield textwrap.fill(f"in {', '.join(titles)}:", _WIDTH, subsequent_indent="  ")
        yield f"{text}\n"


def _meant(sections: Sequence[Section], parts: Sequence[str]) -> str:
    names = {name for section in sections for name in section.names}
    names |= {row.key for section in sections for row in section.rows}
    last = parts[-1].casefold() if parts else ""
    near = difflib.get_close_matches(last, sorted(names), n=3, cutoff=0.6)
    return f"; did you mean {' or '.join(repr(name) for name in near)}?" if near else ""


def _paragraphs(lines: Sequence[str]) -> Iterator[str]:
    for block in re.split(r"\n\s*\n", "\n".join(lines).strip("\n")):
        if "```" in block:
            yield "\n".join(f"    {line}" for line in block.splitlines() if "```" not in line)
        elif block.strip():
            yield textwrap.fill(_plain(" ".join(block.split())), _WIDTH)
        yield ""


def _plain(text: str) -> str:
    return _LINK.sub(r"\1", text).replace("`", "").replace("*required*", "required")
