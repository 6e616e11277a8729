from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tare.errors import InputError
from tare.hosts.ledger.ledger import Ledger, boot_id, ledger_path, replay, state_dir

DETAILS = st.dictionaries(st.sampled_from(["path", "pid", "token"]), st.text() | st.integers())
ACTIONS = st.lists(
    st.tuples(st.sampled_from(["record", "amend", "done"]), st.integers(0, 10), DETAILS),
    max_size=12,
)


def act(ledger: Ledger, actions: list[tuple[str, int, dict[str, Any]]]) -> None:
    for what, which, details in actions:
        entries = ledger.open_entries()
        if what == "record":
            ledger.record("directory", **details)
        elif entries and what == "amend":
            ledger.amend(entries[which % len(entries)], **details)
        elif entries:
            ledger.done(entries[which % len(entries)])


@given(actions=ACTIONS)
@settings(max_examples=40, deadline=None)
def test_entries_are_read_back(
    tmp_path_factory: pytest.TempPathFactory, actions: list[Any]
) -> None:
    path = tmp_path_factory.mktemp("ledger") / "run.jsonl"
    with Ledger(path) as ledger:
        act(ledger, actions)
        expected = ledger.open_entries()
    with Ledger(path) as again:
        assert again.open_entries() == expected
        new = again.record("file", path="/x")
        assert new.number not in {entry.number for entry in expected}


@pytest.mark.fuzz
@given(actions=ACTIONS, share=st.floats(0, 1))
@settings(max_examples=60, deadline=None)
def test_any_prefix_is_a_ledger(
    tmp_path_factory: pytest.TempPathFactory, actions: list[Any], share: float
) -> None:
    path = tmp_path_factory.mktemp("ledger") / "run.jsonl"
    with Ledger(path) as ledger:
        act(ledger, actions)
    content = path.read_bytes()
    cut = content[: int(share * len(content))]
    path.write_bytes(cut)
    whole = cut[: cut.rfind(b"\n") + 1]
    expected = replay(whole.splitlines(), path)[1] if whole else {}
    with Ledger(path) as ledger:
        assert {entry.number for entry in ledger.open_entries()} == set(expected)
        ledger.record("file", path="/after")
    with Ledger(path) as ledger:
        assert ledger.open_entries()[-1].details == {"path": "/after"}


def test_a_record_is_on_the_file_before_record_returns(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    with Ledger(path) as ledger:
        ledger.record("process", token="t")
        last = json.loads(path.read_bytes().splitlines()[-1])
    assert last == {"entry": 0, "kind": "process", "boot": boot_id(), "details": {"token": "t"}}


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b"nonsense", "line 2"),
        (b'{"entry":0,"kind":"../x","boot":"","details":{}}', "is not a kind"),
        (b'{"amend":7,"details":{}}', "line 2"),
        (b"[]", "line 2"),
    ],
)
def test_a_damaged_line_is_named(tmp_path: Path, line: bytes, message: str) -> None:
    path = tmp_path / "run.jsonl"
    path.write_bytes(b'{"ledger":1}\n' + line + b"\n")
    with pytest.raises(InputError, match=message):
        Ledger(path)


def test_a_newer_ledger_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    path.write_bytes(b'{"ledger":2}\n')
    with pytest.raises(InputError, match="reads up to 1"):
        Ledger(path)


def test_a_full_disk_leaves_the_ledger_whole(tmp_path: Path) -> None:
    # A limit on file sizes fails in the middle of a line, as a full disk does.
    program = (
        "import resource, sys; from pathlib import Path; from tare.hosts import Ledger\n"
        "ledger = Ledger(Path(sys.argv[1])); ledger.record('file', path='/first')\n"
        "size = Path(sys.argv[1]).stat().st_size + 20\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))\n"
        "try: ledger.record('file', path='/second')\n"
        "except OSError as error: print(error.strerror, len(ledger.open_entries()))"
    )
    path = tmp_path / "run.jsonl"
    call = [sys.executable, "-c", program, str(path)]
    output = subprocess.run(call, capture_output=True, text=True, check=True).stdout
    assert output == "File too large 1\n"
    assert path.read_bytes().endswith(b"\n")
    with Ledger(path) as ledger:
        assert [entry.details for entry in ledger.open_entries()] == [{"path": "/first"}]


def test_a_ledger_in_use_cannot_be_opened_by_another_process(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    program = (
        "import sys; from pathlib import Path; from tare.hosts.ledger.ledger import Ledger\n"
        "from tare.errors import InputError\n"
        "try: Ledger(Path(sys.argv[1]))\n"
        "except InputError as error: print(error)\n"
        "else: print('opened')"
    )
    call = [sys.executable, "-c", program, str(path)]
    with Ledger(path):
        output = subprocess.run(call, capture_output=True, text=True, check=True).stdout
        assert "another running Tare" in output
    assert subprocess.run(call, capture_output=True, text=True, check=True).stdout == "opened\n"


def test_discard_removes_only_a_ledger_without_open_entries(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    ledger = Ledger(path)
    entry = ledger.record("file", path="/x")
    ledger.discard()
    assert path.exists()
    ledger = Ledger(path)
    ledger.done(entry)
    ledger.discard()
    assert not path.exists()


def test_state_lives_where_xdg_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert state_dir() == tmp_path / "tare"
    assert ledger_path("r1") == tmp_path / "tare" / "ledgers" / "r1.jsonl"
    monkeypatch.setenv("XDG_STATE_HOME", "relative/is/ignored")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert state_dir() == tmp_path / "home" / ".local" / "state" / "tare"
