"""Resources are recorded before they are created, and waited for when they are removed."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tare.errors import MachineFault
from tare.hosts import Ledger, LocalHost, clean
from tare.hosts.contract import Host
from tare.hosts.ledger.resources import Resource, created, remove_resource, undo_resource


class Note(Resource):
    """A file that refuses its removal, or stays, a chosen number of times."""

    kind = "note"
    removal_s = 1.0

    def __init__(self, path: Path, ledger: Path, *, locked: int = 0, stays: int = 0) -> None:
        self.path, self.ledger = path, ledger
        self.locked, self.stays = locked, stays
        self.number: int | None = None
        self.asked = 0

    @property
    def details(self) -> Mapping[str, Any]:
        known = {} if self.number is None else {"number": self.number}
        return {"path": str(self.path), **known}

    @property
    def words(self) -> str:
        return f"note {self.path.name}"

    async def create(self) -> None:
        # It is on the disk before anything exists.
        assert json.loads(self.ledger.read_text().splitlines()[-1])["details"] == self.details
        if self.path.parent.name == "full":
            raise MachineFault("the disk is full")
        self.path.touch()
        self.number = 7

    async def exists(self) -> bool:
        if self.asked and self.path.exists():
            self.stays -= 1
            if self.stays < 0:
                self.path.unlink()
        return self.path.exists()

    async def remove(self) -> None:
        self.locked -= 1
        if self.locked >= 0:
            raise MachineFault("it is locked")
        self.asked += 1

    def passes(self, fault: MachineFault) -> bool:
        return "locked" in fault.message


async def test_a_resource_is_recorded_created_amended_and_removed(tmp_path: Path) -> None:
    with Ledger(tmp_path / "ledger") as ledger:
        async with created(ledger, Note(tmp_path / "tare-a", ledger.path)) as note:
            (entry,) = ledger.open_entries()
            assert (entry.kind, entry.details["number"]) == ("note", 7)
            assert note.path.exists()
        assert not note.path.exists()
        assert ledger.open_entries() == ()


async def test_a_resource_that_cannot_be_created_leaves_no_entry(tmp_path: Path) -> None:
    with Ledger(tmp_path / "ledger") as ledger:
        with pytest.raises(MachineFault, match="full"):
            async with created(ledger, Note(tmp_path / "full" / "tare-a", ledger.path)):
                pass
        assert ledger.open_entries() == ()


async def test_a_failed_removal_does_not_hide_why_nothing_was_created(tmp_path: Path) -> None:
    class Half(Note):
        async def create(self) -> None:
            self.path.touch()
            raise MachineFault("the disk is full")

        def passes(self, fault: MachineFault) -> bool:
            return False

    with Ledger(tmp_path / "ledger") as ledger:
        with pytest.raises(MachineFault, match="full"):
            async with created(ledger, Half(tmp_path / "tare-a", ledger.path, locked=1)):
                pass
        assert len(ledger.open_entries()) == 1


@pytest.mark.parametrize("how", [{"locked": 2}, {"stays": 2}])
async def test_a_removal_that_needs_time_is_waited_for(tmp_path: Path, how: dict[str, int]) -> None:
    note = Note(tmp_path / "tare-a", tmp_path, **how)
    note.path.touch()
    assert await remove_resource(note)
    assert note.asked == 1
    assert not await remove_resource(note)


async def test_a_resource_that_stays_keeps_its_entry_open(tmp_path: Path) -> None:
    with Ledger(tmp_path / "ledger") as ledger:
        with pytest.raises(MachineFault, match="note tare-a still exists after its removal"):
            async with created(ledger, Note(tmp_path / "tare-a", ledger.path, stays=1000)):
                pass
        assert len(ledger.open_entries()) == 1


async def test_a_killed_run_is_undone_from_the_entry_and_not_after_a_reboot(tmp_path: Path) -> None:
    path = tmp_path / "tare-a"
    path.touch()

    def find(_: Host, details: Mapping[str, Any]) -> Note:
        return Note(Path(str(details["path"])), tmp_path)

    undoers = {"note": undo_resource(find)}
    with Ledger(tmp_path / "ledger", boot=lambda: "another") as ledger:
        ledger.record("note", path=str(path))
        assert await clean(LocalHost(), ledger, undoers) == []
        assert path.exists()
    with Ledger(tmp_path / "ledger") as ledger:
        ledger.record("note", path=str(path))
        assert await clean(LocalHost(), ledger, undoers) == ["Removed note tare-a."]
        assert not path.exists()
