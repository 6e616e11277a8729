#!/usr/bin/env python3
"""Find words in Tare's texts that readers do not know, by the list in ``prose.toml``.

It reads Markdown, templates, docstrings, comments, messages and names of Python, comments and
strings of Rust and JavaScript, YAML, shell scripts and the Makefile. Code in Markdown and whatever
is in backticks is not prose.

Each folder may have as many findings as ``prose_allowed.toml`` says; ``make lint`` fails where it
has more. ``--lower`` writes the counts of today where they are lower.
"""

from __future__ import annotations

import argparse
import ast
import io
import re
import subprocess
import sys
import tokenize
import tomllib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
WORDS = Path(__file__).with_name("prose.toml")
ALLOWED = Path(__file__).with_name("prose_allowed.toml")
OWN = {"scripts/prose.py", "scripts/prose.toml", "tests/scripts/test_prose.py"}
"""Files that must contain the words."""
GENERATED = re.compile(
    r"\.(1|lock|json|svg|sha256)$|^locks/|^tests/(corpora|fixtures)/"
    r"|^docs/reference/(study|platforms|sources|commands)\.md$"
)
"""Files generated from the code, where their texts are checked, and files by other authors."""
MOST_SHOWN = 20
_CODE = re.compile(r"^( *)(```+|~~~+).*?(^ *\2 *$|\Z)|(`+)(?!`).*?(?<!`)\4(?!`)", re.M | re.S)
_MARKUP = re.compile(
    r"<!--.*?-->|\{%.*?%\}|\{\{.*?\}\}|\{#.*?#\}|<(script|style)\b.*?</\1>|</?[a-z][^<>]*>", re.S
)
_TARGET = re.compile(r"(?<=\])\([^)\s]*\)|^\[[^\]]+\]: \S+$|https?://\S+", re.M)
_SLASHES = re.compile(
    r'"(?:[^"\\]|\\.)*"|\'(?:[^\'\\\n]|\\.)\'|`(?:[^`\\]|\\.)*`|(//[^\n]*(?:\n\s*//[^\n]*)*)'
    r"|/\*.*?\*/",
    re.S,
)
_HASH = re.compile(r"(?:^|(?<=\s))#.*$", re.M)
_MARK = re.compile(r"(?m)^\s*(//[/!]?|\*|#+)[ ]?")


@dataclass(frozen=True)
class Rule:
    """Words to avoid.

    Args:
        find: What finds them.
        write: What to write instead.
        names: They are avoided in names too.
    """

    find: re.Pattern[str]
    write: str
    names: bool = False


@dataclass(frozen=True)
class Text:
    """A piece of prose.

    Args:
        line: The line of its file where it begins.
        kind: ``prose``, ``docstring`` of a function, or ``name``.
        exact: A line of the prose is a line of the file.
    """

    line: int
    prose: str
    kind: str = "prose"
    exact: bool = True


@dataclass(frozen=True)
class Finding:
    """Words to avoid, at their place."""

    path: str
    line: int
    words: str
    write: str

    def __str__(self) -> str:
        """Return the finding as one line, as compilers do."""
        return f"{self.path}:{self.line}: {self.words}: write {self.write}"


@dataclass(frozen=True)
class Rules:
    """All rules, for prose and for the first lines of functions' docstrings."""

    words: tuple[Rule, ...]
    docstrings: tuple[Rule, ...]

    def of(self, kind: str) -> list[Rule]:
        """Return the rules for a kind of text."""
        if kind == "name":
            return [rule for rule in self.words if rule.names]
        return [*self.words, *(self.docstrings if kind == "docstring" else ())]

    def matches(self, text: Text) -> list[tuple[re.Match[str], Rule]]:
        """Return the places at which a text breaks a rule."""
        return [
            (match, rule)
            for rule in self.of(text.kind)
            for match in rule.find.finditer(text.prose)
            if match[0]
        ]


def load_rules(path: Path = WORDS) -> Rules:
    """Return the rules of a file."""
    lists = tomllib.loads(path.read_text(encoding="utf-8"))
    words, docstrings = (tuple(map(_rule, lists[kind])) for kind in ("words", "docstrings"))
    return Rules(words, docstrings)


def _rule(entry: dict[str, str]) -> Rule:
    # A space matches the end of a line too.
    pattern = entry["find"] if "(?x:" in entry["find"] else entry["find"].replace(" ", r"\s")
    pattern = pattern.replace("[ ]", r"\s")
    return Rule(re.compile(pattern, re.I), entry["write"], bool(entry.get("names")))


def check(path: str, source: str, rules: Rules) -> list[Finding]:
    """Return the findings in a file.

    Args:
        path: Its path, which says of what kind it is.
        source: What it holds.
        rules: The words to avoid.
    """
    found = []
    clean: set[str] = set()
    for text in texts_of(path, source):
        if text.kind == "name" and text.prose in clean:
            continue
        matches = rules.matches(text)
        if not matches:
            clean.add(text.prose)
        for match, rule in matches:
            before = text.prose[: match.end()].rstrip()
            line = text.line + (before.count("\n") if text.exact else 0)
            words = " ".join(match[0].strip(".:;!?|#>-\u2026 \n").split())
            found.append(Finding(path, line, words[:60], rule.write))
    return sorted(found, key=lambda finding: finding.line)


def texts_of(path: str, source: str) -> Iterator[Text]:
    """Yield the prose of a file, code left out."""
    reader = READERS.get(Path(path).suffix)
    if reader is None and (path == "Makefile" or source.startswith("#!")):
        reader = _hashes
    for text in reader(source) if reader else ():
        yield Text(text.line, _blank(_CODE, text.prose), text.kind, text.exact)


def _blank(pattern: re.Pattern[str], text: str) -> str:
    """Return a text with each match replaced by a mark, without changing line numbers."""
    return pattern.sub(lambda match: "\u2026" + "\n" * match[0].count("\n"), text)


def _markdown(source: str) -> Iterator[Text]:
    yield Text(1, _blank(_TARGET, _blank(_MARKUP, _blank(_CODE, source))))


def _template(source: str) -> Iterator[Text]:
    yield Text(1, _blank(_MARKUP, source))


def _plain(source: str) -> Iterator[Text]:
    yield Text(1, source)


def _hashes(source: str) -> Iterator[Text]:
    for match in _HASH.finditer(source):
        yield Text(source.count("\n", 0, match.start()) + 1, match[0].lstrip("# "))


def _slashes(source: str) -> Iterator[Text]:
    for match in _SLASHES.finditer(source):
        text = match[0]
        if text[0] in "\"'`":
            if " " in text:
                joined = re.sub(r"\\\n\s*", " ", text[1:-1])
                yield Text(source.count("\n", 0, match.start()) + 1, joined, exact=False)
        else:
            marked = _MARK.sub("", text.removeprefix("/*").removesuffix("*/"))
            yield Text(source.count("\n", 0, match.start()) + 1, marked)


def _python(source: str) -> Iterator[Text]:
    yield from _comments(source)
    docstrings: set[int] = set()
    inside: set[int] = set()
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Module() | ast.ClassDef() | ast.FunctionDef() | ast.AsyncFunctionDef():
                first = node.body[0] if node.body else None
                if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
                    docstrings.add(id(first.value))
                    kind = "docstring" if _is_function(node) else "prose"
                    yield Text(first.lineno, str(first.value.value), kind)
                if not isinstance(node, ast.Module):
                    yield _name(node.lineno, node.name)
            case ast.Expr(value=ast.Constant(value=str(prose))) if id(node.value) not in docstrings:
                docstrings.add(id(node.value))
                yield Text(node.lineno, prose)
            case ast.arg():
                yield _name(node.lineno, node.arg)
            case ast.Name(ctx=ast.Store()):
                yield _name(node.lineno, node.id)
            case ast.JoinedStr():
                inside |= {id(part) for part in node.values}
                parts = [
                    str(part.value) if isinstance(part, ast.Constant) else "\u2026"
                    for part in node.values
                ]
                yield from _message(node.lineno, "".join(parts))
            case ast.Constant(value=str(prose)) if id(node) not in docstrings | inside:
                yield from _message(node.lineno, prose)
            case _:
                pass


def _is_function(node: ast.AST) -> bool:
    """Return whether a node is a function whose docstring says what calling it does."""
    if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        return False
    property_like = {"property", "cached_property", "field_validator"}
    return not any(
        getattr(each, "id", getattr(each, "attr", "")) in property_like
        for each in node.decorator_list
    ) and not node.name.startswith("test_")


def _name(line: int, name: str) -> Text:
    words = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", name.replace("_", " ")).strip()
    return Text(line, words, "name")


def _message(line: int, prose: str) -> Iterator[Text]:
    if " " in prose.strip():
        yield Text(line, prose, exact=False)


def _comments(source: str) -> Iterator[Text]:
    """Yield comments; comments on consecutive lines are one piece."""
    start, last, words = 0, -1, list[str]()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type != tokenize.COMMENT or token.string.startswith("#!"):
            continue
        row, own = token.start[0], not token.line[: token.start[1]].strip()
        if own and row == last + 1:
            words.append(token.string.lstrip("#: "))
        else:
            yield Text(start, "\n".join(words))
            start, words = row, [token.string.lstrip("#: ")]
        last = row if own else -1
    yield Text(start, "\n".join(words))


READERS: dict[str, Callable[[str], Iterator[Text]]] = {
    ".md": _markdown,
    ".j2": _template,
    ".html": _template,
    ".py": _python,
    ".rs": _slashes,
    ".js": _slashes,
    ".java": _slashes,
    ".yaml": _plain,
    ".yml": _plain,
    ".cff": _plain,
    ".toml": _hashes,
    ".sh": _hashes,
}


def folder_of(path: str) -> str:
    """Return the folder that a file is counted in: of ``src/tare`` and ``tests`` one level more."""
    parts = Path(path).parts
    depth = {("src", "tare"): 3, ("tests",): 2}
    for begin, most in depth.items():
        if parts[: len(begin)] == begin:
            return "/".join(parts[: min(most, len(parts) - 1)])
    return parts[0]


def find_all(files: Iterable[str], rules: Rules) -> list[Finding]:
    """Return the findings in files of the repository."""
    found = []
    for name in files:
        path = ROOT / name
        if name in OWN or GENERATED.search(name) or not path.is_file() or path.is_symlink():
            continue
        try:
            source = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue
        found += check(name, source, rules)
    return found


def too_many(counts: Counter[str], allowed: dict[str, int]) -> list[str]:
    """Return the folders that have more findings than they may."""
    return sorted(name for name, count in counts.items() if count > allowed.get(name, 0))


def lowered(counts: Counter[str], allowed: dict[str, int]) -> dict[str, int]:
    """Return the new limit of findings of each folder: never more than before."""
    now = {name: min(counts[name], most) for name, most in sorted(allowed.items())}
    return {name: most for name, most in now.items() if most}


def write_allowed(allowed: dict[str, int], path: Path) -> None:
    """Write the folders' limits of findings."""
    head = "# How many findings of scripts/prose.py each folder still has. `--lower` lowers them.\n"
    lines = [f'"{name}" = {most}\n' for name, most in sorted(allowed.items())]
    path.write_text(head + "".join(lines), encoding="utf-8")


def main(words: Sequence[str] | None = None) -> int:
    """Print the findings of folders that have too many; return 1 if there are any."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("paths", nargs="*", help="show all findings in these files and folders")
    parser.add_argument("--lower", action="store_true", help="lower the counts that are allowed")
    parser.add_argument("--count", action="store_true", help="show the count of every folder")
    options = parser.parse_args(words)
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "--", *options.paths],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines()
    found = find_all(listed, load_rules())
    if options.paths:
        print(*found, f"{len(found)} findings", sep="\n")
        return 1 if found else 0
    counts = Counter(folder_of(finding.path) for finding in found)
    allowed = tomllib.loads(ALLOWED.read_text(encoding="utf-8")) if ALLOWED.exists() else {}
    if options.count:
        print(*(f"{count:6} {name}" for name, count in sorted(counts.items())), sep="\n")
    if options.lower:
        write_allowed(lowered(counts, allowed), ALLOWED)
    grown = too_many(counts, allowed)
    for name in grown:
        there = [each for each in found if folder_of(each.path) == name]
        print(*there[:MOST_SHOWN], sep="\n")
        if len(there) > MOST_SHOWN:
            print(f"... and {len(there) - MOST_SHOWN} more: scripts/prose.py {name}")
        print(f"{name}: {counts[name]} findings, {allowed.get(name, 0)} allowed")
    print(f"prose: {len(found)} words to avoid, {sum(allowed.values())} allowed")
    return 1 if grown else 0


if __name__ == "__main__":
    sys.exit(main())
