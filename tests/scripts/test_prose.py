"""The prose linter finds each word to avoid wherever readers see it, and nowhere else."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scripts import prose

RULES = prose.load_rules()
AVOID = {
    "what is told of it": "told",
    "the report said so": "said",
    "the result stands in the table": "stands",
    "the file lies there": "lies",
    "a run beside it": "beside",
    "it befell the guest": "befell",
    "drawn anew": "anew",
    "two values, of which one is lost": "of which",
    "this hangs on the host": "hangs on",
    "nothing of it is left": "nothing of it",
    "QEMU is no hypervisor": "is no",
    "by reckoning": "reckoning",
    "it is kept as it was": "as it was",
    "a page made of parts": "made of",
    "the run carries the study out": "carries the study out",
    "then the run goes on": "goes on",
    "what the server has not, is left out": "what the server has not",
    "not at all": "at all",
    "a course of values": "course",
    "neighbours hurt it": "hurt",
    "It ends. Of all arms, one fails": "Of",
    "Who looks at all pairs sees more.": "Who looks at all pairs sees more",
    "it lists what became of the run": "what became of",
    "the kernel does not tell": "does not tell",
    "all arms but for the baseline": "but for",
}
FINE = [
    "there is no guest",
    "the run is no longer trusted",
    "the value is no larger than 2 %",
    "of course",
    "WSL stands for something",
    "a standstill, and a stand-in",
    "Who took the time?",
    "Tell the host to stop.",
    "a list of arms",
    "the golden rule and the soldier",
]
PLACES = {
    "README.md": ("# A title\n\n{}\n", 3),
    "docs/a.md": ("| a | b |\n|---|---|\n| `x` | {} |\n", 3),
    "src/tare/a.py": ('"""Return it.\n\n{}\n"""\n', 3),
    "src/tare/b.py": ("x = 1\n# {}\ny = 2\n", 2),
    "src/tare/c.py": ('\nraise ValueError(f"{{x}}: " "{}")\n', 2),
    "src/tare/report/templates/a.html.j2": ("{{% if a %}}\n<p>{}</p>\n{{% endif %}}\n", 2),
    "src/tare/report/templates/a.js": ("'a';\nlabel(`{} `);\n", 2),
    "agent/src/a.rs": ("\n//! {}\n", 2),
    "agent/src/b.rs": ('\n    let c = b\'"\'; let d = "so: {} ";\n', 2),
    "studies/a.yaml": ("study: a\n# {}\n", 2),
    "scripts/a": ("#!/bin/sh\n# {}\n", 2),
    "Makefile": ("\ntest:  ## {}\n", 2),
}


def words_of(path: str, source: str) -> list[str]:
    return [found.words for found in prose.check(path, source, RULES)]


@pytest.mark.parametrize(("text", "words"), AVOID.items())
def test_each_word_is_found(text: str, words: str) -> None:
    assert words_of("a.md", text) == [words]


@pytest.mark.parametrize("text", FINE)
def test_plain_english_passes(text: str) -> None:
    assert words_of("a.md", text) == []


@pytest.mark.parametrize("path", PLACES)
@given(text=st.sampled_from(sorted(AVOID)))
def test_a_planted_word_is_found_in_every_kind_of_file(path: str, text: str) -> None:
    template, line = PLACES[path]
    assert prose.check(path, template.format("and a word"), RULES) == []
    [found] = prose.check(path, template.format(text), RULES)
    assert (found.path, found.line, found.words) == (path, line, AVOID[text])
    assert f"{path}:{line}: {AVOID[text]}: write " in str(found)


@pytest.mark.parametrize(
    "code",
    ["```yaml\n{}\n```\n", "~~~\n{}\n~~~\n", "the key `{}` is new", "``{}`` too", "<!-- {} -->"],
)
@given(text=st.sampled_from(sorted(AVOID)))
def test_code_and_marks_are_not_prose(code: str, text: str) -> None:
    assert words_of("a.md", f"A page\n\n{code.format(text)}\n\nand its end.") == []


def test_text_after_code_is_checked() -> None:
    page = "```sh\ntold\n```\n\nsaid `a` anew, ``b`c`` and beside `d`"
    assert sorted(words_of("a.md", page)) == ["anew", "beside", "said"]


@pytest.mark.parametrize(
    "code",
    [
        "def what_was_told(): ...",
        "class ToldFrom: ...",
        "def f(told): ...",
        "told_from = 1",
        "for told in x: ...",
    ],
)
def test_names_in_python_are_checked(code: str) -> None:
    [found] = prose.check("src/tare/a.py", code, RULES)
    assert found.words.lower() == "told"


def test_a_tests_name_begins_with_its_subject() -> None:
    [found] = prose.check("tests/a.py", "def test_what_is_wrong_is_refused(): ...", RULES)
    assert found.words == "test what"
    assert words_of("tests/a.py", "def test_a_mistake_is_refused(): ...") == []


@pytest.mark.parametrize("code", ["x = 'told'", "y.told", "soldier = 1", "f(told=1)"])
def test_keys_and_names_of_others_are_not_checked(code: str) -> None:
    assert words_of("src/tare/a.py", code) == []


def test_a_functions_docstring_begins_with_an_imperative() -> None:
    function = 'def f():\n    """{}"""\n'
    assert words_of("a.py", function.format("Whether it is there.")) == ["Whether"]
    assert words_of("a.py", function.format("Return whether it is there.")) == []
    assert words_of("a.py", "@property\n" + function.format("Whether it is there.")) == []


def test_a_phrase_is_found_across_lines() -> None:
    assert words_of("a.md", "that is\nno guest") == ["is no"]
    assert words_of("a.py", "# nothing\n# of it\n") == ["nothing of it"]
    assert words_of("a.py", 'x = ("that is "\n "no guest")') == ["is no"]


@pytest.mark.parametrize(
    ("path", "folder"),
    [
        ("README.md", "README.md"),
        ("docs/how-to/a.md", "docs"),
        ("src/tare/run/a/b.py", "src/tare/run"),
        ("src/tare/units.py", "src/tare"),
        ("tests/run/test_a.py", "tests/run"),
        ("tests/test_a.py", "tests"),
        ("agent/src/a.rs", "agent"),
    ],
)
def test_findings_are_counted_by_folder(path: str, folder: str) -> None:
    assert prose.folder_of(path) == folder


def test_a_folder_may_only_get_better() -> None:
    allowed = {"a": 3, "b": 2, "c": 1}
    assert prose.too_many(Counter(a=3, b=3, d=1), allowed) == ["b", "d"]
    assert prose.lowered(Counter(a=1, b=9), allowed) == {"a": 1, "b": 2}


def test_the_lint_fails_and_shows_the_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    allowed = tmp_path / "allowed.toml"
    prose.write_allowed({"docs": 1}, allowed)
    monkeypatch.setattr(prose, "ALLOWED", allowed)
    found = [prose.Finding("docs/a.md", line, "told", "report") for line in (3, 9)]
    monkeypatch.setattr(prose, "find_all", lambda *_: found[:1])
    assert prose.main([]) == 0
    monkeypatch.setattr(prose, "find_all", lambda *_: found)
    capsys.readouterr()
    assert prose.main([]) == 1
    assert "docs/a.md:9: told: write report\ndocs: 2 findings, 1 allowed" in capsys.readouterr().out
    monkeypatch.setattr(prose, "find_all", lambda *_: [])
    assert prose.main(["--lower"]) == 0
    assert "docs" not in allowed.read_text()
