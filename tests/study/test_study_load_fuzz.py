from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from study.study_catalog import CATALOG, GOOD
from tare.errors import InputError
from tare.study.reading.load import parse_study, restore_study

pytestmark = pytest.mark.fuzz
LINES = GOOD.encode().splitlines(keepends=True)
PIECES = [
    b":", b"- ", b"[", b"{", b"}", b"&a ", b"*a", b"!!int ", b"!!binary ", b"!!set ", b"? ", b"|\n",
    b"<<: ", b"\t", b"\x00", b'"\\ud800"', b".inf", b"0x1F", b"1e999", b"~", b"---\n",
    b"%TAG ! x\n",
    b"2001-01-01", b"1_0", b"null", b"[[1]]", b"fill", b"1:2:3", b"\xff", "é".encode(), b"'",
]  # fmt: skip


def must_load_or_explain(content: bytes) -> None:
    try:
        study = parse_study(content, "s.yaml", CATALOG)
    except InputError as error:
        assert error.message.startswith("s.yaml")
    else:
        stored = study.model_dump(mode="json")
        assert restore_study(stored, CATALOG).model_dump(mode="json") == stored


@given(st.binary(max_size=200))
def test_any_bytes_are_a_study_or_explained(content: bytes) -> None:
    must_load_or_explain(content)


@given(st.text(alphabet="abc:-[]{}#&*!|>'\"%@`,? \n\t01.", max_size=80))
def test_any_yaml_like_text_is_a_study_or_explained(text: str) -> None:
    must_load_or_explain(text.encode())


@st.composite
def mutated(draw: st.DrawFn) -> bytes:
    lines = list(LINES)
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(lines) - 1))
        line = lines[at]
        column = draw(st.integers(0, len(line)))
        match draw(st.sampled_from(["insert", "delete", "drop", "swap", "bytes", "replace"])):
            case "insert":
                lines[at] = line[:column] + draw(st.sampled_from(PIECES)) + line[column:]
            case "delete":
                lines[at] = line[:column] + line[column + draw(st.integers(1, 9)) :]
            case "drop":
                lines[at] = b""
            case "swap":
                other = draw(st.integers(0, len(lines) - 1))
                lines[at], lines[other] = lines[other], lines[at]
            case "replace":
                head, colon, _ = line.partition(b": ")
                lines[at] = head + colon + draw(st.sampled_from(PIECES)) + b"\n"
            case _:
                lines[at] = line[:column] + draw(st.binary(max_size=4)) + line[column:]
    return b"".join(lines)


@given(mutated())
def test_any_mutated_study_is_a_study_or_explained(content: bytes) -> None:
    must_load_or_explain(content)


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=8,
)


@given(
    st.sampled_from(["arms", "scenarios", "workloads", "blocks", "shape", "seed", "aa", "x"]),
    st.lists(st.sampled_from(["bare", "tick", "options", "points", "twin_of", "pinned"])),
    values,
)
def test_any_stored_study_is_restored_or_explained(
    part: str, inside: list[str], value: object
) -> None:
    stored = parse_study(GOOD.encode(), "s.yaml", CATALOG).model_dump(mode="json")
    target = stored
    for key in [part, *inside][:-1]:
        if isinstance(target, dict) and isinstance(target.get(key), dict):
            target = target[key]
    target[[part, *inside][-1]] = value
    with contextlib.suppress(InputError):
        restore_study(stored, CATALOG)
