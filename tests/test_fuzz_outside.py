"""Whatever tools print and strangers' folders hold, it is read or refused; nothing else happens."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tare.errors import InputError, TareError
from tare.events import UnreadableStream, read_fold
from tare.events.chain import Chain, Seal, parted, read_seal
from tare.images.packages import described
from tare.plaintext import plain
from tare.platforms.linux.console import Console
from tare.platforms.qemu.offer import _parse_answers

pytestmark = pytest.mark.fuzz

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner),
    max_leaves=8,
)
TYPES = st.sampled_from(
    ["run_started", "run_resumed", "preflight", "platform_checked", "planned", "cell_started",
     "observation", "series", "cell_finished", "machine_ready", "block_started", "decided"]
)  # fmt: skip
FIELDS = st.sampled_from(
    ["cell", "block", "arm", "scenario", "workload", "parameters", "metric", "unit", "value",
     "status", "facts", "study", "run", "seed", "host", "versions", "proof", "machine", "path",
     "columns", "rows", "sha256", "name", "better", "order", "go_on", "reason", "usable", "options",
     "study_path", "study_sha256", "boot_s", "platform", "checks"]
)  # fmt: skip
EVENT = st.builds(
    lambda kind, rest: {**rest, "type": kind}, TYPES, st.dictionaries(FIELDS, JSON, max_size=8)
)


@given(st.lists(EVENT, min_size=1, max_size=6), st.binary(max_size=20))
def test_no_stream_ends_in_anything_but_a_sentence(
    tmp_path_factory: pytest.TempPathFactory, happened: list[object], tail: bytes
) -> None:
    path = tmp_path_factory.mktemp("stream") / "events.jsonl"
    lines = [
        json.dumps({"seq": seq, "time": 1.0, "event": event}) for seq, event in enumerate(happened)
    ]
    path.write_bytes("\n".join(lines).encode() + b"\n" + tail)
    try:
        read_fold(path)
    except UnreadableStream as error:
        assert plain(str(error)) == str(error)


@given(st.lists(st.binary(max_size=120), max_size=8), st.integers(0, 9), st.binary(max_size=90))
def test_no_lines_make_the_chain_fail(lines: list[bytes], seq: int, kept: bytes) -> None:
    chain = Chain(Seal(seq, "0" * 64))
    for line in lines:
        body, claim = parted(line)
        assert line.startswith(body) and len(claim) in (0, 32)
        chain.follow(line)
    assert chain.lines == len(lines) and all(isinstance(each, str) for each in chain.doubts())


@given(st.binary(max_size=120))
def test_no_seal_makes_its_reader_fail(
    tmp_path_factory: pytest.TempPathFactory, kept: bytes
) -> None:
    place = tmp_path_factory.getbasetemp()
    (place / "events.last").write_bytes(kept)
    seal = read_seal(Path(place / "events.jsonl"))
    assert seal is None or len(seal.digest) == 64


@given(st.lists(JSON, max_size=4) | st.binary(max_size=80))
def test_no_words_of_qemus_monitor_are_taken_for_an_offer(reply: list[object] | bytes) -> None:
    data = reply if isinstance(reply, bytes) else "\n".join(map(json.dumps, reply)).encode()
    with pytest.raises((ValueError, KeyError, TypeError)):
        _parse_answers(data)


@given(st.lists(st.binary(max_size=200), max_size=6))
def test_no_console_makes_its_reader_fail(parts: list[bytes]) -> None:
    console = Console()
    for part in parts:
        console.feed(part)
    for line in (*console.tail(), console.panic, console.killed):
        assert plain(line) == line


@given(st.text(max_size=300))
def test_no_words_of_apt_make_its_reader_fail(output: str) -> None:
    try:
        for package in described(output):
            assert package.name
    except (TareError, InputError) as error:
        assert str(error)
