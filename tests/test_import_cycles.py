"""The lint that finds cycles of imports."""

from __future__ import annotations

from scripts import architecture, import_cycles

RING = {"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}}


def test_neither_folders_nor_files_import_in_cycles() -> None:
    assert import_cycles.cycles(architecture.imports_of_rooms()) == []
    assert import_cycles.faults(import_cycles.imports_of_files(), import_cycles.ALLOWED) == []


def test_a_cycle_is_found_with_its_imports() -> None:
    assert import_cycles.cycles(RING) == [["a", "b", "c"]]
    assert import_cycles.faults(RING, ()) == [
        "3 modules import each other:",
        "  a imports b",
        "  b imports c",
        "  c imports a",
    ]


def test_only_an_allowed_import_may_close_a_cycle() -> None:
    assert import_cycles.faults(RING, [("c", "a")]) == []
    second = {**RING, "c": {"a", "e"}, "e": {"c"}}
    assert import_cycles.faults(second, [("c", "a")])[0] == "2 modules import each other:"
    assert import_cycles.faults(RING, [("c", "a"), ("d", "a"), ("x", "a")]) == [
        "the import of a by d closes no cycle: remove it in ALLOWED",
        "the import of a by x closes no cycle: remove it in ALLOWED",
    ]


def test_imports_for_types_alone_count() -> None:
    graph = import_cycles.imports_of_files()
    assert "tare.study.model.study" in graph["tare.study.model.sessions"]
