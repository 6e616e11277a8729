"""What measured a cache is not called memory: by its sizes, or by what old runs warn of."""

from __future__ import annotations

from dataclasses import replace

import pytest

from analysis.analysis_runs import run
from tare.analysis import compare_runs
from tare.analysis.data.rundata import RunData
from tare.analysis.effects.cached_arrays import ShownAs, shown_names
from tare.analysis.effects.resources import cache_resources
from tare.analysis.model import Key, ResourceName
from tare.events.cell_facts import CellFacts
from tare.report.figures.palette import looks
from tare.report.page.verdicts import answer_lines, arm_lines
from tare.report.sections.overview import resources_table
from tare.report.sections.results import effects_table
from tare.workloads import WORKLOADS

MIB = 1 << 20
OLD = (
    "each array has 25 MiB instead of 1200 MiB (four times the last-level cache), because all "
    "three may take 30 % of the machine's memory: caches may serve a part"
)


def facts_of(array: int, cache: int) -> CellFacts:
    return {"arrays": {"array_bytes": array * MIB, "last_level_bytes": cache * MIB}}


def with_cells(*facts: CellFacts, workload: str = "memory-bandwidth", warning: str = "") -> RunData:
    (one,) = run(1).runs
    cells = tuple(
        replace(
            cell,
            workload=workload,
            facts=facts[number % len(facts)] if facts else {},
            warnings=(warning,) if warning else (),
        )
        for number, cell in enumerate(one.cells)
    )
    by_name = {cell.cell: cell for cell in cells}
    counted = tuple(replace(done, result=by_name[done.result.cell]) for done in one.counted)
    return replace(one, cells=cells, counted=counted)


@pytest.mark.parametrize(
    ("array", "cache", "words"),
    [
        (25, 300, "cache bandwidth (arrays 25 MiB, last-level cache 300 MiB)"),
        (100, 300, "cache bandwidth (arrays 100 MiB, last-level cache 300 MiB)"),
        (25, 32, "cache and memory bandwidth (arrays 25 MiB, last-level cache 32 MiB)"),
        (127, 32, "cache and memory bandwidth (arrays 127 MiB, last-level cache 32 MiB)"),
        (128, 32, None),
        (2048, 300, None),
    ],
)
def test_workload_is_named_by_the_share_that_the_cache_holds(
    array: int, cache: int, words: str | None
) -> None:
    named = shown_names([with_cells(facts_of(array, cache))])
    assert [each.words for each in named.values()] == ([words] if words else [])


def test_all_arms_are_named_by_the_largest_cache_and_the_smallest_arrays() -> None:
    named = shown_names([with_cells(facts_of(128, 16), facts_of(64, 4), facts_of(128, 30))])
    (name,) = named.values()
    assert name.words == "cache and memory bandwidth (arrays 64 MiB, last-level cache 30 MiB)"


def test_a_run_of_before_is_named_by_its_warning() -> None:
    (name,) = shown_names([with_cells(warning=OLD)]).values()
    assert name.words == "cache bandwidth (arrays 25 MiB, last-level cache 300 MiB)"
    assert shown_names([with_cells()]) == {}


def test_the_name_is_in_tables_and_notes_of_terminal_and_page() -> None:
    found = compare_runs(with_cells(facts_of(25, 300)))
    table = effects_table(found, "effects", found.effects)
    (shown,) = {table.texts_of(effect)["what"] for effect in found.effects}
    assert shown == "cache bandwidth"
    assert {effect.key.workload for effect in found.effects} == {"memory-bandwidth"}
    assert found.notes[-1] == (
        "memory-bandwidth measured cache bandwidth (arrays 25 MiB, last-level cache 300 MiB), and "
        "reports call it that: only arrays of at least 4 times the last-level cache measure memory."
    )


@pytest.mark.parametrize(("array", "word"), [(25, "cache"), (200, "work"), (1200, "work")])
def test_all_outputs_name_the_cache_if_all_arrays_fit_into_it(array: int, word: str) -> None:
    found = compare_runs(with_cells(facts_of(array, 300)))
    lines = arm_lines(found, looks(found.arms, found.baseline))
    assert {bar.label for line in lines for bar in line.bars} == {word.capitalize()}
    table = resources_table(found)
    assert {table.texts_of(row)["resource"] for row in table.rows} == {word}
    other = "work" if word == "cache" else "cache"
    sentences = [line.sentence for line in lines] + answer_lines(found)[1:]
    assert all(word in text.lower() and other not in text.lower() for text in sentences)


def test_a_resource_is_memory_if_one_arm_measured_memory() -> None:
    keys: dict[tuple[str, ResourceName], list[Key]] = {
        ("a", "memory"): [Key("s", "memory-bandwidth", "{}", "subject", "m")],
        ("b", "memory"): [Key("s", "memory-latency", "{}", "subject", "m")],
    }
    named = {("s", "memory-bandwidth", "{}"): ShownAs("cache bandwidth", "", True)}
    assert cache_resources(keys, named) == frozenset()
    assert cache_resources({("a", "memory"): keys["a", "memory"]}, named) == {"memory"}


def test_the_cells_record_keeps_the_sizes() -> None:
    workload = WORKLOADS["memory-bandwidth"]
    result = {"array_bytes": 25 * MIB, "last_level_bytes": 300 * MIB}
    assert workload.facts(workload.parameters(), result) == facts_of(25, 300)
    assert workload.facts(workload.parameters(), {"array_bytes": 1, "last_level_bytes": None}) == {}
