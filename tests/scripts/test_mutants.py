"""Mistakes are really mistakes: other programs, that still are programs."""

from __future__ import annotations

import ast
import re
import sys
from pathlib import Path

import pytest

from scripts.mutants import agent
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


def test_code_that_never_runs_is_not_mutated() -> None:
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


def test_explained_mutants_still_exist() -> None:
    page = (ROOT / EXPLAINED).read_text()
    explained = re.findall(r"^\| (src/\S+): `(.+?)` -> `.+?` in `(.+?)` \|", page, re.MULTILINE)
    assert len(explained) == page.count("\n| src/")
    for path, old, line in explained:
        lines = [each.strip() for each in (ROOT / path).read_text().splitlines()]
        # Were it there twice, another mistake than the explained one could go by its words.
        assert old in line and lines.count(line) == 1, f"{path}: {line}"


LISTED = ("src/channel/frame.rs:12:5: replace crc -> u32 with 0",
          "src/measure/clock.rs:30:9: replace - with + in Anchor::hz_until",
          "src/measure/tsc.rs:7:1: replace stamp -> u64 with 1")  # fmt: skip
TOOL = """#!{python}
import json, pathlib, re, sys
listed, words = {listed!r}, sys.argv[2:]
if "--list" in words:
    print("\\n".join(listed))
    sys.exit()
wanted = re.compile(words[words.index("--re") + 1])
kinds = iter(["CaughtMutant", "MissedMutant", "Unviable"])
outcomes = [{{"scenario": "Baseline", "summary": {baseline!r}}}]
outcomes += [{{"scenario": {{"Mutant": {{"name": each}}}}, "summary": next(kinds)}}
         for each in listed if wanted.search(each)]
out = pathlib.Path(words[words.index("--output") + 1]) / "mutants.out"
out.mkdir()
(out / "outcomes.json").write_text(json.dumps({{"outcomes": outcomes}}))
sys.exit(2)
"""


def tool(place: Path, baseline: str) -> str:
    path = place / "cargo-mutants"
    path.write_text(TOOL.format(python=sys.executable, listed=LISTED, baseline=baseline))
    path.chmod(0o755)
    return str(path)


@pytest.mark.parametrize(("sample", "noticed", "counted"), [(1, 1, 1), (2, 1, 2), (9, 1, 2)])
def test_the_agents_mistakes_are_drawn_by_a_seed_and_counted(
    sample: int, noticed: int, counted: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.setattr(agent, "cargo_mutants", lambda: tool(tmp_path, "Success"))
    found = agent.try_agent(ROOT, sample, 5)
    assert agent.share_of(found) == (noticed, counted)
    assert ("unnoticed in the agent: src/" in capsys.readouterr().out) == (counted > noticed)


def test_explained_mutants_of_the_agent_are_not_counted_on_any_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(agent, "cargo_mutants", lambda: tool(tmp_path, "Success"))
    row = "| agent/src/measure/clock.rs: replace - with + in Anchor::hz_until | it is both |"
    assert agent.share_of(agent.try_agent(ROOT, 9, 5, row)) == (1, 1)
    assert "unnoticed" not in capsys.readouterr().out
    assert agent.share_of(agent.try_agent(ROOT, 9, 5, row.replace("hz_until", "hz"))) == (1, 2)
    output = capsys.readouterr().out
    assert "to explain it: agent/src/measure/clock.rs: replace - with + in Anchor" in output


def test_an_agent_whose_unchanged_tests_fail_gives_no_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agent, "cargo_mutants", lambda: tool(tmp_path, "Failure"))
    with pytest.raises(ValueError, match="tests of the unchanged agent fail"):
        agent.try_agent(ROOT, 2, 5)


def test_only_the_mistakes_that_were_drawn_are_made() -> None:
    for name in LISTED:
        wanted = re.compile(agent.exactly([name]))
        assert [each for each in LISTED if wanted.search(each)] == [name]
    assert all((ROOT / agent.AGENT / name).is_file() for name in agent.FILES)
