"""What is made in a machine that only its carrier knows is noted in the carrier's ledger."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tare.hosts.ledger.ledger import Entry, Ledger
from tare.hosts.ledger.nested import AFAR, NestedLedger, entry_there

KINDS = st.sampled_from(["process", "directory", "mount", "setting"])
DETAILS = st.dictionaries(st.sampled_from(["path", "pid", "token"]), st.integers(0, 9), max_size=3)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("record"), KINDS, DETAILS),
        st.tuples(st.just("amend"), st.integers(0, 9), DETAILS),
        st.tuples(st.just("done"), st.integers(0, 9), st.just({})),
    ),
    max_size=30,
)
REACH = {"way": {"host": "vm"}, "agent": "/agent", "folder": "/tmp"}


def what(entry: Entry) -> tuple[str, str, dict[str, Any]]:
    return entry.kind, entry.boot, dict(entry.details)


@given(STEPS)
def test_a_nested_ledger_knows_what_one_of_its_own_would(steps: list[tuple[str, Any, Any]]) -> None:
    with tempfile.TemporaryDirectory() as folder, Ledger(Path(folder) / "own") as own:
        parent = Ledger(Path(folder) / "parent")
        own._boot = lambda: "boot-1"
        other = parent.record("directory", path="/tmp/tare-of-the-carrier")
        ledger = NestedLedger(parent, host="vm", boot=lambda: "boot-1", reach=REACH)
        made: list[tuple[Entry, Entry]] = []
        for step, which, details in steps:
            if step == "record":
                made.append((own.record(which, **details), ledger.record(which, **details)))
            elif made and which < len(made):
                mine, nested = made[which]
                still = mine.number in {entry.number for entry in own.open_entries()}
                if step == "done":
                    own.done(mine)
                    ledger.done(nested)
                elif still:
                    made[which] = (own.amend(mine, **details), ledger.amend(nested, **details))
        wanted = [what(entry) for entry in own.open_entries()]
        assert [what(entry) for entry in ledger.open_entries()] == wanted
        parent.close()
        # After a crash, only the carrier's file is left to the clean-up.
        with Ledger(Path(folder) / "parent") as again:
            mine, *rest = again.open_entries()
            assert mine == other
            assert all(entry.kind == AFAR and entry.details["reach"] == REACH for entry in rest)
            assert [what(entry_there(entry)) for entry in rest] == wanted


def test_ledgers_of_two_machines_of_one_carrier_are_separate(tmp_path: Path) -> None:
    with Ledger(tmp_path / "ledger") as parent:
        ledgers = [
            NestedLedger(parent, host=name, boot=lambda: "", reach=REACH) for name in ("a", "b")
        ]
        entries = [ledger.record("directory", path="/tmp/tare-x") for ledger in ledgers]
        assert [ledger.open_entries() for ledger in ledgers] == [(each,) for each in entries]
        ledgers[0].done(entries[0])
        assert ledgers[0].open_entries() == ()
        assert len(parent.open_entries()) == 1
        assert parent.next_number == ledgers[1].next_number == 2
