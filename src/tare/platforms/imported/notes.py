"""Notes on the parts of a source. Parts that a reader does not use are listed, so none is lost."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from collections.abc import Callable, Collection, ItemsView, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from tare.platforms.imported.parsing import parse_whole_number

LONGEST_NOTE = 200
_UNPRINTABLE = re.compile(r"[^ -~]+")
_SECRET = re.compile(
    r"pass|pwd|secret|key|token|cred|auth|user-?_?data|cloud|ssh|nonce|hash|cert|cookie|metadata"
    r"|value|string|content|append|cmdline|args|title|desc|annotation|label|guestinfo|extraconfig"
    r"|owner|login|user|script|hook|smbios|sysinfo|entry|fw_?cfg|(?:^|[^a-z])data|ignition|mmds|env"
    r"|encrypt|opaque|config|document",
    re.IGNORECASE,
)
"""Names whose values are hidden, because they may contain information for the owner only."""
_PLAIN = re.compile(r"[A-Za-z0-9_./:+@%-]{1,48}")
_LONG_RANDOM = re.compile(r"(?=.*[0-9])(?=.*[A-Za-z])[A-Za-z0-9+/=_-]{25,}")


def shown(name: str, value: str) -> str:
    """Return ``name=value``, or only the name if the value may be a secret or is too long."""
    secret = _SECRET.search(name) or _LONG_RANDOM.fullmatch(value)
    if secret or not _PLAIN.fullmatch(value) or (":" in value and "@" in value):
        return name
    return f"{name}={value}"


@dataclass
class ImportNotes:
    """The parts of a source: carried over, not carried over, and irrelevant to measurements.

    Args:
        carried: The names of the parts that were read.
        left: The parts that are not carried over, with reasons.
        aside: The names of the parts that are not carried over because no measurement uses them.
    """

    carried: dict[str, None] = field(default_factory=dict)
    left: dict[str, None] = field(default_factory=dict)
    aside: dict[str, None] = field(default_factory=dict)

    def carry(self, what: str) -> None:
        """Note that a part was read."""
        self.carried.setdefault(plain_words(what))

    def set_aside(self, what: str) -> None:
        """Note that a part is not carried over, but has no effect on a measurement."""
        self.aside.setdefault(plain_words(what))

    def leave(self, what: str, why: str = "") -> None:
        """Note that a part is not carried over.

        Args:
            what: The part, in the words of the source.
            why: The reason, or what to write instead; empty: none is known.
        """
        plain = plain_words(what)
        why = "".join(char if char.isprintable() else " " for char in why)
        note = f"{plain}: {why}" if why else plain
        self.left.setdefault(note)

    def close_each(
        self,
        values: Values,
        why: Callable[[str, str], str | None],
        words: Callable[[str, str], str] | None = None,
    ) -> None:
        """List all values of a whole source by their own names.

        Args:
            values: The values.
            why: Returns the reason for a value that was not read, possibly empty; None: the value
                has no effect on a measurement.
            words: Returns a value's note; None: use :func:`shown`.
        """
        for name in values.read:
            self.carry(name)
        for name, value in values.rest():
            reason = why(name, value)
            if reason is None:
                self.set_aside(name)
            else:
                self.leave((words or shown)(name, value), reason)

    def close(
        self, part: Values, why: Mapping[str, str] | None = None, aside: Collection[str] = ()
    ) -> None:
        """List all values of a part that were not read.

        Args:
            part: The part.
            why: The reasons by name.
            aside: The names of values that have no effect on a measurement.
        """
        for name in part.read:
            self.carry(f"{part.name} {name}")
        for name, value in part.rest():
            if name in aside:
                self.set_aside(f"{part.name} {name}")
            else:
                self.leave(f"{part.name} {shown(name, value)}", (why or {}).get(name, ""))


def plain_words(text: str) -> str:
    """Return text from another source on one line, without control characters."""
    return _UNPRINTABLE.sub(" ", text).strip()[:LONGEST_NOTE]


class Values(Mapping[str, str]):
    """The named values of one part of a source, with a record of the values that were read.

    Args:
        name: The part's name in notes, such as ``-machine``.
        values: The values by their names.
    """

    def __init__(self, name: str, values: Mapping[str, str]) -> None:
        self.name = name
        self._values = dict(values)
        self._read: dict[str, None] = {}

    def __getitem__(self, name: str) -> str:
        value = self._values[name]
        self._read[name] = None
        return value

    def __contains__(self, name: object) -> bool:
        return name in self._values

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def items(self) -> ItemsView[str, str]:
        """Return all names and values, without marking them as read."""
        return self._values.items()

    def skip(self, *names: str) -> None:
        """Mark values as read although nothing follows from them, such as a part's own name."""
        self._read |= dict.fromkeys(name for name in names if name in self._values)

    def count(self, place: str) -> int:
        """Return the length of a list whose items' names begin with ``PLACE.NUMBER``."""
        numbers = (
            parse_whole_number(name.removeprefix(f"{place}.").partition(".")[0])
            for name in self._values
            if name.startswith(f"{place}.")
        )
        return max((number + 1 for number in numbers if number is not None), default=0)

    @property
    def read(self) -> tuple[str, ...]:
        """The names of the values that were read."""
        return tuple(self._read)

    def rest(self) -> list[tuple[str, str]]:
        """Return the names and values that were not read."""
        return [(name, value) for name, value in self._values.items() if name not in self._read]


class NoteTaker(Protocol):
    """An object that takes notes: an :class:`ImportNotes`, or one that holds it."""

    def carry(self, what: str) -> None:
        """Note that a part was read."""

    def set_aside(self, what: str) -> None:
        """Note that a part has no effect on a measurement."""

    def leave(self, what: str, why: str = "") -> None:
        """Note that a part is not carried over."""


class Node:
    """An XML element, with a record of the parts that were read.

    Args:
        element: The element.
        path: The names of the elements around it, outermost first.
    """

    def __init__(self, element: ET.Element, path: Sequence[str] = ()) -> None:
        self.tag = bare_name(element.tag)
        self.path = (*path, self.tag)
        self._attributes = {bare_name(key): value for key, value in element.attrib.items()}
        self._read: set[str] = set()
        self._text = (element.text or "").strip()
        self._text_read = False
        self.touched = False
        self.parts = [Node(each, self.path) for each in element]

    def get(self, name: str, default: str = "") -> str:
        """Return an attribute, and mark it as read."""
        self.touched = True
        self._read.add(name)
        return self._attributes.get(name, default)

    def peek(self, name: str) -> str:
        """Return an attribute without marking it as read."""
        return self._attributes.get(name, "")

    @property
    def attributes(self) -> tuple[str, ...]:
        """The names of the element's attributes."""
        return tuple(self._attributes)

    @property
    def text(self) -> str:
        """The element's text, without spaces around it; it is then marked as read."""
        self.touched = self._text_read = True
        return self._text

    def find(self, path: str) -> Node | None:
        """Return the first element at a path such as ``os/type``."""
        return next(iter(self.all(path)), None)

    def all(self, path: str) -> list[Node]:
        """Return the elements at a path."""
        first, _, rest = path.partition("/")
        found = [each for each in self.parts if each.tag == first]
        if rest:
            found = [inner for each in found for inner in each.all(rest)]
        for each in found:
            each.touched = True
        if found:
            self.touched = True
        return found

    def every(self, *tags: str) -> list[Node]:
        """Return all descendants with one of some tags."""
        found: list[Node] = []
        for each in self.parts:
            if each.tag in tags:
                each.touched = True
                found.append(each)
            inner = each.every(*tags)
            if inner:
                each.touched = True
            found += inner
        return found

    def value(self, path: str, name: str, default: str = "") -> str:
        """Return an attribute of the element at a path."""
        found = self.find(path)
        return default if found is None else found.get(name, default)

    def take(self) -> None:
        """Mark the element and all its parts as read, because another note covers them."""
        self.touched = self._text_read = True
        self._read |= set(self._attributes)
        for each in self.parts:
            each.take()

    def _shown(self, name: str, value: str) -> str:
        """Return a value's text for notes; hide the value if an element around it may be secret."""
        secret = any(_SECRET.search(each) for each in self.path[1:])
        return name if secret else shown(name, value)

    def words(self) -> str:
        """Return the element with all attributes and inner elements on one line, for a note."""
        own = [self._shown(name, value) for name, value in self._attributes.items()]
        own.append(self._shown("", self._text).removeprefix("="))
        inner = [each.words() for each in self.parts]
        line = " ".join([self.tag, *filter(None, own)])
        return f"{line} ({', '.join(inner)})" if inner else line

    def close(
        self,
        notes: NoteTaker,
        aside: Collection[str] = (),
        why: Mapping[str, str] | None = None,
    ) -> None:
        """List the unread parts of the element and of its descendants.

        Args:
            notes: The object that takes the notes.
            aside: The places that have no effect on a measurement: paths without the outermost
                name, such as ``devices/graphics``, and attributes after ``@``.
            why: The reasons by path.
        """
        inner = self.path[1:]
        place = "/".join(inner)
        around = "/".join(inner[:-1])
        label = f"<{around}> {self.tag}" if around else f"<{self.tag}>"
        why = why or {}
        is_aside = place in aside
        if not self.touched or is_aside:
            whole = self.words().removeprefix(self.tag).strip()
            note = f"{label} {whole}".strip()
            if len(note) <= LONGEST_NOTE - 40:
                notes.set_aside(note) if is_aside else notes.leave(note, why.get(place, ""))
                return
            # The note is too long, so each part is listed separately.
            self.touched = True
        else:
            notes.carry(label)
        for name, value in self._attributes.items():
            what = f"{label} {self._shown(name, value)}"
            if name in self._read:
                notes.carry(f"{label} {name}")
            elif is_aside or f"{place}@{name}" in aside or f"@{name}" in aside:
                notes.set_aside(what)
            else:
                notes.leave(what, why.get(f"{place}@{name}", ""))
        if self._text and not self._text_read:
            what = f"{label} {self._shown('', self._text).removeprefix('=')}".strip()
            notes.set_aside(what) if is_aside else notes.leave(what, why.get(place, ""))
        for each in self.parts:
            each.close(notes, (*aside, "/".join(each.path[1:])) if is_aside else aside, why)


def bare_name(name: str) -> str:
    """Return a name of XML without its namespace."""
    return name.rpartition("}")[2]
