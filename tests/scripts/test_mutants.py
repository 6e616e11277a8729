"""Mistakes are really mistakes: other programs, that still are programs."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from scripts.mutants.__main__ import EXPLAINED, ROOMS, ROOT, Room
from scripts.mutants.changes import changes_of

FILE = Path("some.py")


def made(source: str) -> list[tuple[str, str]]:
    return [(each.old, each.new) for each in changes_of(FILE, source.encode())]


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("a < b", ("a < b", "(a <= b)")),
        ("a - b", ("a - b", "(a + b)")),
        ("a and b", ("a and b", "(a or b)")),
        ("not a", ("not a", "(a)")),
        ("x = 3", ("3", "4")),
        ("x = 0.0", ("0.0", "1.0")),
        ("x = True", ("True", "False")),
        ("b if a else c", ("b if a else c", "(b if not a else c)")),
        ("é = 'ü'; a in é", ("a in é", "(a not in é)")),
        ("min(a, b)", ("min(a, b)", "(max(a, b))")),
    ],
)
def test_each_kind_is_made(source: str, expected: tuple[str, str]) -> None:
    assert expected in made(source)


def test_what_never_runs_is_left_alone() -> None:
    assert made("x: Literal[3]\ndef f(a: 'int | 3') -> 4: ...") == []
    assert made("if TYPE_CHECKING:\n    x = 1 < 2") == []
    assert made("f'{a + 1}'; 'a' + 'b'; 'a %s' % b") == []


@pytest.mark.parametrize("name", ROOMS)
def test_every_mistake_gives_another_program(name: str) -> None:
    room: Room = ROOMS[name]
    paths = [path for pattern in room.files for path in ROOT.glob(pattern)]
    assert paths and all((ROOT / test).exists() for test in room.tests)
    for path in paths:
        source = path.read_bytes()
        whole = ast.dump(ast.parse(source))
        # Some of a long file, spread over it.
        changes = changes_of(path, source)
        for change in changes[:: max(1, len(changes) // 15)]:
            assert ast.dump(ast.parse(change.applied(source))) != whole, change


def test_what_is_explained_is_still_there() -> None:
    page = (ROOT / EXPLAINED).read_text()
    told = re.findall(r"^\| (src/\S+): `(.+?)` -> `.+?` \|", page, re.MULTILINE)
    for path, old in told:
        assert old in " ".join((ROOT / path).read_text().split()), f"{path}: {old}"
