"""What a source says of one machine is next to that machine alone, and no sentence points nowhere.

None of the values was measured.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from references.references_run import comparison_of_run, write_realtime_run
from tare.analysis.effects.comparison import Comparison
from tare.events.results import SkippedPart
from tare.references.pairing import pair_with_published
from tare.references.published import Reference, known_references, load_reference
from tare.references.stated import Stated, stated
from tare.report import build_report
from tare.report.figures.palette import looks
from tare.report.sections.interference import Interference
from tare.report.sections.pairs import Pairs
from tare.report.sections.provenance import Provenance
from tare.report.sections.reproduction import Reproduction
from tare.report.sources.paper import PaperDraft, RunFindings, paper_drafts, parts_of
from tare.report.sources.stated import run_value_text, stated_table

REFERENCES = {name: load_reference(name) for name in known_references()}
TITLES = tuple(section.title for section in (Reproduction, Interference, Pairs, Provenance))


@pytest.fixture(scope="module")
def comparison(tmp_path_factory: pytest.TempPathFactory) -> Comparison:
    return comparison_of_run(write_realtime_run(tmp_path_factory.mktemp("pointers")))


def with_arms(comparison: Comparison, arms: dict[str, Any]) -> Comparison:
    """Return it as a comparison of a run whose arms are these."""
    (run,) = comparison.runs
    return replace(comparison, runs=(replace(run, study={**run.study, "arms": arms}),))


def drafted(comparison: Comparison, reference: Reference) -> dict[str, PaperDraft]:
    run = RunFindings(comparison, looks(comparison.arms, comparison.baseline), {}, ())
    numbers = stated(comparison, reference)
    drafts = paper_drafts(pair_with_published(comparison, reference), run, numbers)
    return {draft.exhibit.name: draft for draft in drafts}


def facts_of(comparison: Comparison, reference: Reference) -> dict[str, Stated]:
    return {each.name: each for each in stated(comparison, reference)}


def test_a_number_of_one_machine_is_next_to_that_machine_alone(comparison: Comparison) -> None:
    pv = {"platform": "hyperv", "options": {"devices": "paravirtual"}}
    run = with_arms(comparison, {"bare": {"platform": "bare"}, "vm": pv})
    found = facts_of(run, REFERENCES["fayyad2013"])
    assert set(found["tick"].own) == {"bare"}
    # Neither the bare machine nor Hyper-V's guest is Xen's.
    assert found["xen-pinned"].own == {}
    words = run_value_text(found["xen-pinned"])
    assert words.startswith("nothing: Xen HW-Assisted VM: this run has no")
    assert "bare" not in run_value_text(found["hyperv-pinned-pv"])
    # Numbers about a scenario are about all arms.
    assert set(found["shared-bus-factor"].own) == {"bare", "bare-again", "vm"}


def test_conditions_name_machines_as_the_source_does(comparison: Comparison) -> None:
    found = facts_of(comparison, REFERENCES["fayyad2013"])
    assert found["hyperv-pv-factor"].conditions == (
        "Hyper-V HW-Assisted VM against Hyper-V Para-virtualized VM, one-to-all"
    )


def test_sizes_in_conditions_have_no_needless_zeros() -> None:
    conditions = REFERENCES["li2013"].facts["write-kvm"].describe_conditions({})
    assert conditions == "4 machines on one host, 5 GB to 25 GB"


def test_a_table_of_the_bare_machine_shows_it_alone(comparison: Comparison) -> None:
    arms = {"bare": {"platform": "bare"}, "vm": {"platform": "qemu"}}
    run = with_arms(comparison, arms)
    first = drafted(run, REFERENCES["fayyad2013"])
    shown = first["Table 1"].table
    assert shown is not None
    assert [row[1].text for row in shown.rows] == ["Bare-Machine", "bare"]
    table = first["Table 3"].table
    assert table is not None and "vm (emulated)" in {row[1].text for row in table.rows}
    second = drafted(run, REFERENCES["fayyad2013-hyperv"])["Table 1"]
    assert second.table is not None and second.figure is not None
    assert [heading.text for heading in second.table.headings] == ["Test", "bare"]
    guests = with_arms(comparison, {"bare": {"platform": "qemu"}, "vm": {"platform": "qemu"}})
    for name in ("fayyad2013", "fayyad2013-hyperv"):
        empty = drafted(guests, REFERENCES[name])["Table 1"].empty
        assert (
            empty == "Bare-Machine: this run has no arm with platform: bare; or platform: bare-live"
        )


@pytest.mark.parametrize("name", REFERENCES)
def test_no_number_points_to_what_is_empty(name: str, comparison: Comparison) -> None:
    reference = REFERENCES[name]
    drafts = drafted(comparison, reference)
    page = parts_of(list(drafts.values()), {"Ranking": "no pairs", "What neighbours do": "none"})
    numbers = stated(comparison, reference)
    rows = stated_table(reference, numbers, page).rows
    for row in rows:
        words = run_value_text(row, page)
        # Away from a figure or table, none is called this one.
        assert not re.search(r"\bthis (figure|table)\b", words), row.name
        assert not words.startswith(("see Ranking", "see What neighbours do")), row.name
        if words.startswith(("see Figure", "see Table")):
            assert any(not drafts[each].empty for each in drafts if f"{each}:" in words), words
    for draft in drafts.values():
        for line in draft.stated:
            assert not (draft.empty and "see this" in line), line


@pytest.mark.parametrize("name", REFERENCES)
def test_every_pointer_names_a_part_of_the_page(name: str) -> None:
    reference = REFERENCES[name]
    exhibits = {each.name for each in reference.exhibits}
    for key, fact in reference.facts.items():
        if not fact.here:
            continue
        where, _, _ = fact.here.partition(":")
        if where in ("this figure", "this table"):
            assert fact.of, key
        elif where not in ("each table", "each of these figures"):
            assert where in exhibits or any(title.startswith(where) for title in TITLES), key


def texts_of(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for each in value.values():
            yield from texts_of(each)
    elif isinstance(value, list | tuple):
        for each in value:
            yield from texts_of(each)


@pytest.mark.parametrize("name", REFERENCES)
def test_no_text_of_a_source_has_marks_of_a_document(name: str) -> None:
    reference = REFERENCES[name]
    for text in texts_of(reference.model_dump()):
        assert "`" not in text, text
        assert "without number" not in text, text
    # A figure or a file of its own needs a caption that does not lean on another.
    assert not [each.name for each in reference.exhibits if "The same" in each.shows]


def test_names_in_a_runs_reasons_are_code_and_not_backticks(
    comparison: Comparison, tmp_path: Path
) -> None:
    pv = {"platform": "xen", "options": {"type": "pv", "scheduler": "credit"}}
    run = with_arms(
        comparison, {"bare": {"platform": "bare"}, "vm": {"platform": "bare"}, "pv": pv}
    )
    (one,) = run.runs
    skipped = (*one.skipped, SkippedPart("pv", None, None, "`xl` is not installed"))
    run = replace(run, runs=(replace(one, skipped=skipped),))
    page = build_report(run.runs, run, tmp_path, [REFERENCES["fayyad2013"]])
    text = page.read_text(encoding="utf-8")
    published = text[text.index("Published values and this run: fayyad2013") :]
    published = published[: published.index("</section>")]
    assert "<code>xl</code> is not installed" in published
    assert "`" not in published


@pytest.mark.parametrize(
    ("name", "fact", "printed"),
    [
        ("hwang2013", "variation-least", "3 %"),
        ("hwang2013", "variation-most", "140 %"),
        ("hwang2013", "char-output", "up to 40 %"),
        ("hwang2013", "char-output-one-vcpu", "50.8 Kops/s"),
        ("hwang2013", "neighbours-memory", "1024 MB"),
        ("hwang2013", "interference", "2X to 10X"),
        ("li2013", "write-kvm", "42.0 MB/s"),
        ("li2013", "write-cvm", "69 MB/s"),
        ("li2013", "read-cpu-cvm", "near 0 %"),
        ("li2013", "three-to-four-vms", "the same"),
        ("fayyad2013", "switch-least", "0.43 µs"),
        ("fayyad2013", "tick", "8 to 10 µs"),
        ("fayyad2013", "long-view-samples", "50 million"),
        ("fayyad2013", "short-view-samples", "128000"),
        ("fayyad2013", "tick-rate", "1000 Hz"),
        ("haproxy2012", "hyperv-legacy", "around 1.5K requests per second"),
        ("haproxy2012", "xen-ovs-netback", "60 % of another core"),
        ("haproxy2012", "xen-bridge-appliance", "less than 50 %"),
    ],
)
def test_numbers_are_printed_as_the_source_prints_them(name: str, fact: str, printed: str) -> None:
    assert REFERENCES[name].facts[fact].printed == printed


@pytest.mark.parametrize("name", REFERENCES)
def test_every_number_is_printed_as_in_its_source(name: str) -> None:
    """A bare number has no unit of the source's: it is printed in its own words."""
    facts = REFERENCES[name].facts
    assert not [key for key, fact in facts.items() if not fact.printed and not fact.share]


def test_values_of_tables_keep_the_prefix_of_their_unit(tmp_path: Path) -> None:
    tables = REFERENCES["hwang2013"].tables
    assert [table.printed["kvm"] for table in tables] == [("2963 MB/s",), ("3210 MB/s",)]
    run = comparison_of_run(write_realtime_run(tmp_path / "run"))
    shown = drafted(run, REFERENCES["hwang2013"])["Values stated for figure 4(b)"].table
    assert shown is not None
    assert [row[2].text for row in shown.rows] == ["3210 MB/s", "4086 MB/s"]
