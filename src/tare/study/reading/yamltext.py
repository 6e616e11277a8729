"""Read YAML into plain data with the place of every key and value; refuse risky features."""

from __future__ import annotations

import codecs
import math
import re
from dataclasses import dataclass, field
from typing import Any

import yaml

from tare.errors import InputError
from tare.plaintext import steering

Path = tuple[str | int, ...]
"""Keys and list indices of a value, as written in the file."""

MOST_BYTES = 256 * 1024
DEEPEST = 16
LONGEST_SCALAR = 20_000
MOST_SHOWN = 20
# libyaml reads a study in a tenth of the time; PyYAML is not built with it everywhere.
_FASTEST: type[Any] = yaml.CSafeLoader if yaml.__with_libyaml__ else yaml.SafeLoader


@dataclass(frozen=True)
class SourcePosition:
    """A line and a column, both counted from 1."""

    line: int
    column: int


@dataclass(frozen=True)
class Problem:
    """One error of a study: its place, and the correction.

    Args:
        message: The error and its correction.
        path: The keys of the value.
        place: Its place in the file.
        option: The command-line option that holds it, if it is not in the file.
    """

    message: str
    path: Path = ()
    place: SourcePosition | None = None
    option: str = ""

    def show(self, name: str) -> str:
        """Return ``file:line:column: key: message``, or ``option: key: message``."""
        where = f"{name}:{self.place.line}:{self.place.column}" if self.place else name
        where = self.option or where
        key = dotted(self.path)
        return f"{where}: {key}: {self.message}" if key else f"{where}: {self.message}"


class StudyError(InputError):
    """A study cannot be used; ``problems`` holds all reasons."""

    def __init__(self, name: str, problems: list[Problem], hint: str = "") -> None:
        ordered = sorted(
            problems, key=lambda p: (p.place.line, p.place.column) if p.place else (0, 0)
        )
        lines = [problem.show(name) for problem in ordered[:MOST_SHOWN]]
        if len(ordered) > MOST_SHOWN:
            lines.append(f"{name}: and {len(ordered) - MOST_SHOWN} more problems")
        super().__init__("\n".join(lines), hint)
        self.problems = tuple(ordered)


@dataclass(frozen=True)
class Sort:
    """The kind of a file, for messages.

    Args:
        name: Its name, with an article.
        lines: Typical lines.
        described: The command that shows its documentation.
    """

    name: str
    lines: str
    described: str


STUDY = Sort(
    "a study", "lines like `study: NAME`, `arms:`, `workloads:`", "`tare study introduction`"
)


@dataclass
class Document:
    """A parsed file: plain data, and the place of each key and value."""

    data: dict[str, Any]
    keys: dict[Path, SourcePosition] = field(default_factory=dict)
    values: dict[Path, SourcePosition] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)

    def place_of(self, path: Path, *, key: bool = False) -> SourcePosition | None:
        """Return the place of ``path``, or of its nearest enclosing value."""
        while path:
            for places in (self.keys, self.values) if key else (self.values, self.keys):
                if path in places:
                    return places[path]
            path, key = path[:-1], True
        return SourcePosition(1, 1)


def dotted(path: Path) -> str:
    """Return a path in written form: ``workloads.switch.threads[1]``."""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text


def parse(content: bytes, name: str, sort: Sort = STUDY) -> Document:
    """Parse the bytes of a study, or of another file that is a mapping.

    Args:
        content: The file's bytes.
        name: The file's name, for messages.
        sort: The kind of file, for messages.

    Returns:
        The document. Its ``problems`` hold duplicate keys and the like, so that they can be
            reported together with other errors.

    Raises:
        StudyError: It is not a YAML mapping.
    """
    root = _composed(_decode(content, name, sort), name, sort)
    if root is None or (isinstance(root, yaml.ScalarNode) and root.value == ""):
        message = f"the file is empty; see {sort.described} for an example"
        raise StudyError(name, [Problem(message)])
    if not isinstance(root, yaml.MappingNode):
        message = f"{sort.name} is a mapping: {sort.lines}"
        raise StudyError(name, [Problem(message, place=_place(root.start_mark))])
    document = Document({})
    document.data = _Reader(document).mapping(root, ())
    return document


def parse_value(text: str, path: Path) -> tuple[Any, list[Problem]]:
    """Parse one value as it may follow a key, such as ``1GiB`` or ``{cpus: pinned}``.

    Args:
        text: YAML in one piece.
        path: The keys of the value, for messages.

    Returns:
        The value, and its problems, which have no place in a file.
    """
    document = Document({})
    try:
        root = _composed(text, "", STUDY)
    except StudyError as error:
        return None, [Problem(problem.message, path) for problem in error.problems]
    value = None if root is None else _Reader(document).value(root, path)
    return value, [Problem(each.message, each.path or path) for each in document.problems]


def _composed(text: str, name: str, sort: Sort) -> yaml.Node | None:
    # libyaml accepts tabs that PyYAML's own parser refuses, and counts other columns after a BOM.
    if "\t" not in text and "\ufeff" not in text:
        try:
            return _composed_by(text, name, _FASTEST)
        except yaml.YAMLError:
            # Only PyYAML's own parser words its errors in the way that `syntax_error` recognizes.
            pass
    return _composed_slowly(text, name, sort)


def _composed_slowly(text: str, name: str, sort: Sort) -> yaml.Node | None:
    try:
        return _composed_by(text, name, yaml.SafeLoader)
    except yaml.reader.ReaderError as error:
        place = _place_at(text, error.position)
        message = (
            f"character {error.character!r} is not allowed in {sort.name}; is this a text file?"
        )
        raise StudyError(name, [Problem(message, place=place)]) from None
    except yaml.MarkedYAMLError as error:
        raise StudyError(name, [_syntax_problem(error, text)]) from None
    except (yaml.YAMLError, ValueError, OverflowError) as error:
        raise StudyError(name, [Problem(f"not YAML: {error}")]) from None


def _composed_by(text: str, name: str, loader: type[Any]) -> yaml.Node | None:
    _refuse_dangers(text, name, loader)
    return yaml.compose(text, Loader=loader)


def _decode(content: bytes, name: str, sort: Sort) -> str:
    if len(content) > MOST_BYTES:
        message = f"{len(content)} bytes; {sort.name} is a text file of at most {MOST_BYTES} bytes"
        raise StudyError(name, [Problem(message)])
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        before = content[: error.start]
        line = before.count(b"\n") + 1
        column = error.start - (before.rfind(b"\n") + 1) + 1
        message = undecodable(content, error)
        raise StudyError(name, [Problem(message, place=SourcePosition(line, column))]) from None


def _refuse_dangers(text: str, name: str, loader: type[Any]) -> None:
    """Refuse aliases, deep nesting and second documents, before anything is built from them."""
    depth = documents = 0
    for event in yaml.parse(text, Loader=loader):
        if isinstance(event, yaml.AliasEvent):
            message = f"aliases (*{event.anchor}) are not allowed in a study; repeat the value"
        elif isinstance(event, yaml.DocumentStartEvent) and documents:
            message = "a second document starts here; a study is one YAML document"
        elif isinstance(event, yaml.CollectionStartEvent) and depth >= DEEPEST:
            message = f"nested more than {DEEPEST} levels deep"
        else:
            documents += isinstance(event, yaml.DocumentStartEvent)
            depth += isinstance(event, yaml.CollectionStartEvent)
            depth -= isinstance(event, yaml.CollectionEndEvent)
            continue
        raise StudyError(name, [Problem(message, place=_place(event.start_mark))])


def _syntax_problem(error: yaml.MarkedYAMLError, text: str) -> Problem:
    what, place = syntax_error(error, text)
    return Problem(f"not YAML: {what}", place=SourcePosition(*place) if place else None)


def _place(mark: Any) -> SourcePosition:
    return SourcePosition(mark.line + 1, mark.column + 1)


def _place_at(text: str, position: int) -> SourcePosition:
    before = text[:position]
    return SourcePosition(before.count("\n") + 1, position - (before.rfind("\n") + 1) + 1)


class _Reader:
    """Converts nodes to plain data, and records places and problems."""

    def __init__(self, document: Document) -> None:
        self._document = document
        self._constructor = yaml.constructor.SafeConstructor()

    def mapping(self, node: yaml.MappingNode, path: Path) -> dict[str, Any]:
        result: dict[str, Any] = {}
        for key_node, value_node in node.value:
            if not isinstance(key_node, yaml.ScalarNode) or not key_node.value:
                self._complain("a key must be a plain word", path, key_node)
                continue
            key = key_node.value
            here = (*path, key)
            if unusable := next(iter(steering(key)), None):
                self._complain(f"character {unusable!r} is not allowed in a key", path, key_node)
            elif odd := next((char for char in key if char in LOOKS_LIKE_A_SPACE), None):
                words = f"character {odd!r} only looks like a space; write spaces instead"
                self._complain(words, path, key_node)
            elif key == "<<":
                words = "merge keys (<<) are not allowed in a study; repeat the keys"
                self._complain(words, path, key_node)
            elif key in result:
                first = self._document.keys[here].line
                self._complain(f"written twice, first in line {first}; keep one", here, key_node)
            else:
                self._document.keys[here] = _place(key_node.start_mark)
                result[key] = self.value(value_node, here)
        return result

    def value(self, node: yaml.Node, path: Path) -> Any:
        self._document.values[path] = _place(node.start_mark)
        if isinstance(node, yaml.MappingNode) and node.tag == "tag:yaml.org,2002:map":
            return self.mapping(node, path)
        if isinstance(node, yaml.SequenceNode) and node.tag == "tag:yaml.org,2002:seq":
            return [self.value(item, (*path, index)) for index, item in enumerate(node.value)]
        if isinstance(node, yaml.ScalarNode):
            return self._scalar(node, path)
        self._complain(f"the tag {node.tag} is not allowed in a study; remove it", path, node)
        return None

    def _scalar(self, node: yaml.ScalarNode, path: Path) -> Any:
        text = node.value
        if len(text) > LONGEST_SCALAR:
            self._complain(f"{len(text)} characters are too many", path, node)
            return None
        kind = node.tag.removeprefix("tag:yaml.org,2002:")
        if kind not in _SCALARS:
            self._complain(f"the tag {node.tag} is not allowed in a study; remove it", path, node)
            return None
        if kind in ("int", "float") and len(text) <= 64 and not _misleading(text):
            return self._number(node, path)
        if kind in ("bool", "null"):
            try:
                return self._constructor.construct_object(node)
            except KeyError:
                self._complain(f"{text!r} is neither true nor false", path, node)
                return None
        if unusable := next(iter(steering(text)), None):
            self._complain(f"character {unusable!r} is not allowed in a study", path, node)
            return None
        return text

    def _number(self, node: yaml.ScalarNode, path: Path) -> Any:
        try:
            number = self._constructor.construct_object(node)
        except (ValueError, IndexError):
            return node.value
        if not math.isfinite(number) or abs(number) >= 2**64:
            self._complain(f"{node.value} is not a usable number", path, node)
            return None
        return number

    def _complain(self, message: str, path: Path, node: yaml.Node) -> None:
        self._document.problems.append(Problem(message, path, _place(node.start_mark)))


_SCALARS = ("str", "int", "float", "bool", "null", "timestamp", "value", "merge")


def _misleading(text: str) -> bool:
    """Return whether YAML 1.1 would read an unintended number: base 60, or octal."""
    digits = text.lstrip("+-")
    return ":" in text or (digits.startswith("0") and digits.isdigit() and len(digits) > 1)


LOOKS_LIKE_A_SPACE = "\u00a0\u2002\u2003\u2007\u2009\u200b\u202f\u3000\ufeff"
UTF_16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
_MERGE = re.compile(r"^(?:<{7}|={7}|>{7})(?: |$)", re.MULTILINE)
_FENCE = re.compile(r"^(?:```|~~~)", re.MULTILINE)
_NO_SPACE = re.compile(rf"^ *[{LOOKS_LIKE_A_SPACE}]", re.MULTILINE)
_FINISHED = re.compile(r":(?:\s|$)")


def undecodable(content: bytes, error: UnicodeDecodeError) -> str:
    """Return why bytes are not text, and how to save the file."""
    if content.startswith(UTF_16):
        return "not UTF-8 text but UTF-16; save the file as UTF-8"
    if b"\0" in content[:1024]:
        return "not UTF-8 text but binary; name a YAML file"
    return f"not UTF-8 text: byte 0x{content[error.start]:02x}; save the file as UTF-8"


def syntax_error(error: yaml.MarkedYAMLError, text: str) -> tuple[str, tuple[int, int] | None]:
    """Return the error in invalid YAML, and its line and column, both counted from 1.

    Args:
        error: The parser's error.
        text: The whole text.
    """
    for pattern, words in (
        (_MERGE, "a merge conflict marker; keep one of the two versions"),
        (_FENCE, "a Markdown code fence; keep only the text between two of them"),
        (_NO_SPACE, "indented by characters that only look like spaces; write spaces instead"),
    ):
        if found := pattern.search(text):
            return words, (text.count("\n", 0, found.start()) + 1, 1)
    mark, begin = error.problem_mark or error.context_mark, error.context_mark
    if mark is None:
        return error.problem or "cannot be parsed", None
    here = mark.line + 1, mark.column + 1
    began = (begin.line + 1, begin.column + 1) if begin else here
    what, context = error.problem or "cannot be parsed", error.context or ""
    if "\\t" in what:
        return "a tab; indent with spaces", here
    if "mapping values are not allowed" in what:
        return _second_colon(text, mark.line, mark.column), here
    if found := re.search(r"character '(.)' that cannot start", what):
        return f"text that starts with {found[1]!r} must be in quotes", here
    if what.startswith("expected '<document start>'"):
        return "the line above this is not `key: value`; write `: ` after its key", here
    if "could not find expected ':'" in what:
        return "no `: ` follows this; write `key: value`", began
    if "quoted scalar" in context and "unexpected" in what:
        return "the quoted text that starts here has no end", began
    if context.startswith("while parsing a flow"):
        bracket = "{" if "mapping" in context else "["
        where = f"in line {began[0]}, column {began[1]}"
        return f"the `{bracket}` {where} is not closed, or a comma is missing before this", here
    if what.startswith("expected <block end>") and here[1] != began[1]:
        lines = text.split("\n")
        above = next((n for n in range(mark.line, 0, -1) if lines[n - 1].strip()), began[0])
        column = len(lines[above - 1]) - len(lines[above - 1].lstrip()) + 1
        return (
            f"no line above has the indentation of this one: it starts in column {here[1]}, line "
            f"{above} in column {column}"
        ), here
    return f"{what} ({context})" if context else what, here


def _second_colon(text: str, line: int, column: int) -> str:
    lines = text.split("\n")
    before = lines[line][:column] if line < len(lines) else ""
    above = [
        number
        for number, content in enumerate(lines[:line], 1)
        if content.strip() and not content.lstrip().startswith("#")
    ]
    if _FINISHED.search(before) or not above:
        return "a second `:` in one line; quote the text, or start a new line"
    last = above[-1]
    if _FINISHED.search(lines[last - 1]):
        return f"line {last} has a value already, so nothing may be indented below it"
    return f"line {last} is not `key: value`; write `: `, with the space, after its key"
