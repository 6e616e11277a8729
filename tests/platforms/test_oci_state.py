"""A runtime's answer about a container's first process is a process number, or is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import cast

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tare.hosts import Host
from tare.hosts.contract import Completed
from tare.plaintext import plain
from tare.platforms.oci.rootless import _first_process
from tare.platforms.oci.runtime import Runtime

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner),
    max_leaves=6,
)
ANSWERS = st.binary(max_size=40) | st.builds(
    lambda pid, more: json.dumps({**more, "pid": pid}).encode(),
    JSON,
    st.dictionaries(st.text(max_size=4), JSON, max_size=2),
)


class Answering:
    """A host whose one command prints this."""

    def __init__(self, answer: bytes) -> None:
        self.answer = answer

    async def run(self, argv: list[str], *, timeout_s: float) -> Completed:
        return Completed(0, self.answer, b"")


@pytest.mark.fuzz
@given(ANSWERS)
@example(b'{"pid": Infinity}')
@example(b'{"pid": true}')
@example(b'{"pid": 0}')
@example(b'{"pid": -1}')
@example(b"[" * 100_000)
async def test_any_answer_of_a_runtime_is_a_process_or_none(answer: bytes) -> None:
    host = cast(Host, Answering(answer))
    try:
        pid = await _first_process(host, Runtime("runc"), Path("/x"), "box")
    except ProcessLookupError as error:
        assert plain(str(error)) == str(error)
    else:
        assert type(pid) is int and pid > 0


async def test_reported_process_is_read() -> None:
    host = cast(Host, Answering(b'{"id": "box", "pid": 4711, "status": "running"}'))
    assert await _first_process(host, Runtime("runc"), Path("/x"), "box") == 4711
