"""Common mistakes in studies: each is reported with its correction."""

from __future__ import annotations

from pathlib import Path

import pytest

from study.study_catalog import CATALOG, GOOD
from tare.errors import InputError
from tare.study.reading.load import load_study, parse_study
from tare.study.reading.yamltext import StudyError


def message_of(content: bytes) -> str:
    with pytest.raises(StudyError) as caught:
        parse_study(content, "s.yaml", CATALOG)
    message: str = caught.value.message
    return message


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (
            b"a:\n  b: 1\n c: 2\n",
            "3:2: not YAML: no line above has the indentation of this one: it starts in column 2, "
            "line 2 in column 3",
        ),
        (
            b"a:\n  b: {c: d}\n    e: f\n",
            "3:5: not YAML: no line above has the indentation of this one",
        ),
        (b"a:\n  b: c\n    d: e\n", "3:6: not YAML: line 2 has a value already"),
        (b"study:odd\nbaseline: bare\n", "2:9: not YAML: line 1 is not `key: value`; write `: `"),
        (
            b"study = odd\n\n# why\nbaseline: bare\n",
            "4:1: not YAML: the line above this is not `key: v",
        ),
        (b"title: What: now\n", "1:12: not YAML: a second `:` in one line"),
        (b"title: @home\n", "1:8: not YAML: text that starts with '@' must be in quotes"),
        (b'study: "odd\nbaseline: bare\n', "1:8: not YAML: the quoted text that starts here"),
        (b"a:\n  b: {c: d\n  e: f\n", "3:4: not YAML: the `{` in line 2, column 6 is not closed"),
        (b"a: [b, c\nd: e\n", "2:2: not YAML: the `[` in line 1, column 4 is not closed"),
        (b"a:\n  b: c\n  d\ne: f\n", "3:3: not YAML: no `: ` follows this"),
        (b"a: b\n<<<<<<< HEAD\nc: d\n", "2:1: not YAML: a merge conflict marker"),
        (b"```yaml\na: b\n```\n", "1:1: not YAML: a Markdown code fence"),
        (b"study: Gr\xf6\xdfe\n", "1:10: not UTF-8 text: byte 0xf6; save the file as UTF-8"),
        ("study: odd\n".encode("utf-16"), "1:1: not UTF-8 text but UTF-16; save the file as UTF-8"),
        (b"\x7fELF\x00\xff", "not UTF-8 text but binary; name a YAML file"),
    ],
)
def test_broken_yaml_is_reported_by_its_cause(content: bytes, expected: str) -> None:
    assert expected in message_of(content)


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("baseline: bare", "baseline: [bare]", "2:11: baseline: must be text"),
        (
            "twin-of: bare",
            "twin-of: [bare]",
            '5:25: arms.bare-again.twin-of: ["bare"] is not an arm',
        ),
        ("platform: bare", "platform:bare", "write a space after `platform:`"),
        (
            "platform: bare",
            "<<: {platform: bare}",
            "4:10: arms.bare: merge keys (<<) are not allowed",
        ),
        ("platform: bare", "platform: BARE", "there is no platform \"BARE\"; did you mean 'bare'?"),
        ("platform: bare", "platform: metal", 'no platform "metal"; write {platform: bare}'),
        ("accelerator: tcg", "accelerator: TCG", "did you mean 'tcg'?"),
        ("platform: qemu, ", "platform: kvm, ", "write {platform: qemu, accelerator: kvm}"),
        ("memory: 512MiB", "memory: 512", "a number without a unit counts bytes: write 512MiB"),
        ("memory: 512MiB", "memory: 512M", "did you mean '512MiB'?"),
        ("memory: 512MiB", "memory: 2 gib", "did you mean '2GiB'?"),
        ("memory: 512MiB", "memory:", "shape.memory: has no value; write bytes"),
        ("busy: 100us", "busy: 1 seconds", "did you mean '1sec'?"),
        ("baseline: bare", "baseline: bare\nmargin: 2 %", "write it as a share, 0.02"),
        ("baseline: bare", "baseline: bare\nconfidence: 95", "not 95; 95 % is 0.95"),
        (
            "  bare-again:",
            "\u00a0 bare-again:",
            "5:1: not YAML: indented by characters that only look like sp",
        ),
        ("platform: bare", "\u00a0: bare", "4:10: arms.bare: character '\\xa0' only looks like"),
    ],
)
def test_wrong_word_is_reported_with_the_right_one(old: str, new: str, expected: str) -> None:
    assert GOOD.count(old) >= 1, old
    assert expected in message_of(GOOD.replace(old, new, 1).encode())


@pytest.mark.parametrize("name", ["2024", "", "[a]"])
def test_name_that_is_not_text_is_reported_once(name: str) -> None:
    message = message_of(GOOD.replace("study: small", f"study: {name}", 1).encode())
    assert "1:8: study: must be text" in message or "1:7: study: must be text" in message
    assert "title" not in message


@pytest.mark.parametrize("arms", ["arms: [bare, oci]", "arm: {bare: {platform: bare}}"])
def test_missing_arms_are_reported_without_the_baseline(arms: str) -> None:
    message = message_of(
        f"study: a\nbaseline: bare\n{arms}\nworkloads: {{switch: {{}}}}\n".encode()
    )
    assert "arms: " in message
    assert "baseline" not in message


def test_a_missing_study_file_is_answered_with_existing_ones(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text(GOOD)
    for name, expected in (
        ("quick.yaml", "to use the study that comes with Tare, write quick; YAML files there: "),
        ("mien.yaml", f"YAML files there: {tmp_path / 'mine.yaml'}"),
        (".", f"YAML files there: {tmp_path / 'mine.yaml'}"),
    ):
        with pytest.raises(InputError) as caught:
            load_study(tmp_path / name, CATALOG)
        assert expected in caught.value.hint
