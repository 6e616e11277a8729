"""The lint that finds cycles of imports."""

from __future__ import annotations

from scripts import architecture, import_cycles

RING = {"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}}


def test_neither_folders_nor_files_import_in_cycles() -> None:
    assert import_cycles.cycles(architecture.imports_of_rooms()) == []
    assert import_cycles.faults(import_cycles.imports_of_files()) == []


def test_a_cycle_is_found_with_its_imports() -> None:
    assert import_cycles.cycles(RING) == [["a", "b", "c"]]
    assert import_cycles.faults(RING) == [
        "3 modules import each other:",
        "  a imports b",
        "  b imports c",
        "  c imports a",
    ]


def test_imports_without_a_cycle_are_no_fault() -> None:
    assert import_cycles.faults({**RING, "c": set()}) == []


def test_imports_for_types_alone_count() -> None:
    graph = import_cycles.imports_of_files()
    assert "tare.study.model.study" in graph["tare.study.model.sessions"]
