"""A source's own page: every table and figure of it has a counterpart, or the reason why not."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest
import yaml

from references.references_planned import as_if_watched, planned_run
from study.shipped_studies import shipped, shipped_plan
from tare.analysis.series.close_up import close_up
from tare.analysis.series.summaries import summarise_series
from tare.analysis.topics.load_balancer import throughputs
from tare.analysis.topics.response_times import PhaseEffect
from tare.errors import InputError
from tare.events.results import SeriesEntry
from tare.references.listing import file_of, listing
from tare.references.pairing import pair_with_published
from tare.references.published import (
    Reference,
    known_references,
    load_reference,
    parse_reference,
    references_folder,
)
from tare.report.figures.palette import looks
from tare.report.page.words import Part
from tare.report.sources.paper import PaperDraft, RunFindings, paper_drafts

REFERENCES = {name: load_reference(name) for name in known_references()}
LAID_OUT = sorted(name for name, each in REFERENCES.items() if each.exhibits)


def drafted(
    reference: Reference, study: str, phases: tuple[PhaseEffect, ...] = ()
) -> tuple[PaperDraft, ...]:
    comparison = planned_run(study, 4)
    style = looks(comparison.arms, comparison.baseline)
    watched = as_if_watched(shipped_plan(study, 4), reference)
    proxied = throughputs(
        comparison.runs, comparison.arms, comparison.baseline, comparison.confidence
    )
    findings = RunFindings(comparison, style, {}, phases, watched, proxied=proxied)
    return paper_drafts(pair_with_published(comparison, reference), findings)


def phase(arm: str, name: str, mean_s: float) -> PhaseEffect:
    return PhaseEffect(
        arm, False, "phases", "web-course", "{}", name, mean_s, 0.1, 0.0, 1.0, None, 2
    )


@pytest.mark.parametrize("name", LAID_OUT)
def test_each_measurement_of_a_source_is_covered_by_one_of_its_studies(name: str) -> None:
    reference = REFERENCES[name]
    lacking = {exhibit.name for exhibit in reference.exhibits}
    for study in reference.studies:
        phases = (phase("bare", "cpu-load", 0.2),)
        paper = drafted(reference, study, phases)
        for draft in paper:
            # No series is read here: that samples were kept is what their studies' runs show.
            if not draft.empty or "kept no" in draft.empty:
                lacking.discard(draft.exhibit.name)
            # What is drawn or listed here alone is in the file that the docs name.
            if draft.exhibit.view in ("bars", "counters", "over-size") and not draft.empty:
                assert draft.whole is not None
                assert file_of(reference, draft.exhibit) == f"tables/{draft.whole.name}.csv"
    unmeasured = {each.name for each in reference.exhibits if each.none}
    # The planned host has no hypervisor of those that these are of.
    theirs = {
        each.name for each in reference.exhibits if set(each.arms) - {reference.baseline or ""}
    }
    assert lacking == unmeasured | theirs


def test_the_first_sources_tables_and_figures_are_all_there() -> None:
    names = [exhibit.name for exhibit in REFERENCES["fayyad2013"].exhibits]
    assert sorted(names) == sorted(
        [f"Table {number}" for number in range(1, 16)]
        + [f"Figure {number}" for number in range(6, 12)]
    )


def test_the_second_sources_figures_are_in_its_order() -> None:
    names = [exhibit.name for exhibit in REFERENCES["hwang2013"].exhibits]
    figures = [name.removeprefix("Figure ") for name in names if name.startswith("Figure")]
    assert [figure[0] for figure in figures] == sorted(figure[0] for figure in figures)
    assert {figure[0] for figure in figures} == set("13456789")
    assert {"Table I", "Table II", "Figure 9(e)"} <= set(names)


def test_values_stand_with_the_sources_confidence_and_phases_arm_by_arm() -> None:
    phases = (
        phase("bare", "quiet", 0.1),
        phase("bare", "cpu-load", 0.2),
        phase("oci", "quiet", 0.3),
    )
    found = {
        draft.exhibit.name: draft
        for draft in drafted(REFERENCES["hwang2013"], "components", phases)
    }
    cpu, disk = found["Figure 3(a)"].table, found["Figure 5(a)"].table
    assert cpu is not None and "99 % interval" in cpu.caption
    assert disk is not None and "95 % interval" in disk.caption
    assert len(cpu.rows) == 10
    table = found["Figure 9(e)"].table
    assert table is not None
    assert [[cell.text for cell in row] for row in table.rows] == [
        ["quiet", "100 ms", "300 ms"],
        ["cpu-load", "200 ms", "–"],
    ]


def test_figures_are_of_what_the_source_had_alone() -> None:
    found = {draft.exhibit.name: draft for draft in drafted(REFERENCES["hwang2013"], "components")}
    servers = found["Figure 6(a)"].table
    assert servers is not None
    tests = {row[0].text.partition(":")[0] for row in servers.rows}
    assert tests == {f"filebench work={work}" for work in ("fileserver", "varmail", "webserver")}
    # The study compiles with as many vCPUs as there are CPUs, too.
    compiled = found["Figure 1"]
    assert compiled.exhibit.scenario == "one-vcpu" and compiled.table is not None
    other = drafted(REFERENCES["hwang2013"], "interference")
    (why,) = (draft.empty for draft in other if draft.exhibit.name == "Figure 6(a)")
    assert why == "this run measured no filebench with work: fileserver, varmail and webserver"


def test_values_are_of_the_sources_rings_and_of_the_longest_view_in_order() -> None:
    tests = {
        draft.exhibit.name: [row[0].text for row in draft.table.rows]
        for draft in drafted(REFERENCES["fayyad2013-hyperv"], "realtime")
        if draft.table is not None
    }
    rings = [f"switch threads={threads}: latency max" for threads in (2, 1000)]
    assert tests["Table 1"] == tests["Table 11"] == tests["Table 15"] == rings
    # Neither a short view nor one in which the processor's counters were read.
    assert tests["Table 6"] == tests["Table 10"] == ["tick-long: excess max"]


@pytest.mark.parametrize("name", ["fayyad2013", "fayyad2013-hyperv"])
def test_each_longest_of_an_hour_is_filled_by_the_study_of_an_hour_too(name: str) -> None:
    reference = REFERENCES[name]
    filled = {each.exhibit.name for each in drafted(reference, "realtime-long") if not each.empty}
    long = {each.name for each in reference.exhibits if each.longer}
    assert len(long) == 7 and long <= filled
    page = listing()
    assert page.count("as long: `tare run realtime-long`") == 14


def test_a_figure_of_one_arm_needs_a_counterpart_of_that_arm() -> None:
    drafts = {each.exhibit.name: each for each in drafted(REFERENCES["fayyad2013"], "realtime")}
    kept = "tick kept no series over time in"
    assert drafts["Figure 7"].empty == f"{kept} bare and bare-unrecorded in this run"
    assert drafts["Figure 9"].empty.startswith((f"{kept} hyperv", "Hyper-V Para-virtualized VM: "))
    assert drafts["Figure 9"].empty != drafts["Figure 10"].empty


def test_response_times_of_one_hypervisor_need_that_hypervisor() -> None:
    """Without any arm of KVM, vSphere, Xen or Hyper-V no figure of 9 has a counterpart."""
    reference = REFERENCES["hwang2013"]
    comparison = planned_run("interference", 4)
    others = tuple(arm for arm in comparison.arms if arm in ("bare", "oci"))
    assert others
    alone = replace(
        comparison,
        arms=others,
        summaries=tuple(each for each in comparison.summaries if each.arm in others),
    )
    phases = tuple(
        PhaseEffect(arm, False, "phases", "web", "{}", phase, 0.1, 0.2, 0.0, None, None, 2)
        for arm in others
        for phase in ("quiet", "cpu-load")
    )
    run = RunFindings(alone, looks(list(others), "bare"), {}, phases)
    drafts = {d.exhibit.name: d for d in paper_drafts(pair_with_published(alone, reference), run)}
    for name in ("9(a)", "9(b)", "9(c)", "9(d)"):
        draft = drafts[f"Figure {name}"]
        assert draft.empty and draft.above is None, name
    assert not drafts["Figure 9(e)"].empty
    assert drafts["Figure 9(e)"].figure is not None


@pytest.mark.parametrize(
    ("study", "cpus", "why"),
    [
        ("components", 8, ""),
        ("components", 2, "in four-cpus: wants 4 vCPUs; this platform allows at most 2 here"),
        (
            "components-smoke",
            2,
            "no scenario of this run is like four-vcpus, of 4 vCPUs; this run's have 1 or 2",
        ),
    ],
)
def test_four_vcpus_are_filled_on_any_host_that_has_them(study: str, cpus: int, why: str) -> None:
    reference, comparison = REFERENCES["hwang2013"], planned_run(study, cpus)
    findings = RunFindings(comparison, looks(comparison.arms, comparison.baseline), {}, (), ())
    drafts = paper_drafts(pair_with_published(comparison, reference), findings)
    found = {draft.exhibit.name: draft.empty for draft in drafts}
    for figure in ("3(b)", "4(b)", "5(b)", "6(b)", "8(b)"):
        empty = found[f"Figure {figure}"]
        assert (why in empty) if why else not empty, empty


def test_the_docs_list_what_every_source_shows() -> None:
    docs = Path(__file__).parents[2] / "docs"
    page = (docs / "reference" / "sources.md").read_text(encoding="utf-8")
    assert page == listing(), "run `make docs`"


def raw_entry(path: Path, durations_ns: list[int]) -> SeriesEntry:
    """Write single samples into a file, and return what names them."""
    pl.DataFrame({"duration_ns": pl.Series(durations_ns, dtype=pl.UInt32)}).write_parquet(path)
    return SeriesEntry(
        "run",
        "cell",
        3,
        "bare",
        "alone",
        "tick",
        "{}",
        1,
        "subject",
        "samples",
        path,
        {"duration_ns": "UInt32"},
        len(durations_ns),
    )


def test_recurring_gaps_are_drawn_from_the_longest_view(tmp_path: Path) -> None:
    """The source's are of 9 s and 10 s, and so is one view of the study's."""
    reference, comparison = REFERENCES["fayyad2013"], planned_run("realtime", 4)
    summary = summarise_series([raw_entry(tmp_path / "raw.parquet", [68_000] * 6)])
    assert summary is not None
    parts = {Part.of(each.key) for each in comparison.summaries}
    series = {part: {"bare": summary} for part in parts}
    style = looks(comparison.arms, comparison.baseline)
    drafts = paper_drafts(
        pair_with_published(comparison, reference), RunFindings(comparison, style, series, ())
    )
    notes = {draft.exhibit.name: draft.notes for draft in drafts}
    assert "This run: tick-view in scenario one-to-all." in notes["Figure 7"]
    # The bare machine's own figures show it alone, and those of other arms do not show it.
    for figure in ("Figure 6", "Figure 7", "Figure 8"):
        assert notes[figure][-1].endswith(" in scenario one-to-all."), notes[figure]
        kept = [note for note in notes[figure] if "kept no samples" in note]
        assert kept == ["bare-unrecorded kept no samples over time of " + kept[0].split()[-1]]
    drawn = {draft.exhibit.name: draft.figure for draft in drafts}
    assert drawn["Figure 7"] is not None
    assert drawn["Figure 9"] is drawn["Figure 10"] is drawn["Figure 11"] is None


def test_the_longest_view_has_each_sample_of_the_sources() -> None:
    published = REFERENCES["fayyad2013"].facts["short-view-samples"].value
    view = shipped("realtime").workloads["tick-view"]
    assert view.points == ({"samples": published, "raw": True},)
    assert view.scenarios == ("one-to-all",)


def test_a_close_up_holds_each_sample_of_its_time(tmp_path: Path) -> None:
    durations_ns = [68_000, 76_000, 68_000, 68_000, 78_000, 68_000]
    path = tmp_path / "raw.parquet"
    summary = summarise_series([raw_entry(path, durations_ns)])
    assert summary is not None
    near = close_up(summary, 220e-6)
    assert near is not None
    assert near.envelope_greatest_ns == (68_000, 76_000, 68_000)
    assert near.envelope_time_s == pytest.approx((0.0, 68e-6, 144e-6))
    assert near.envelope_block == 3
    # Two periods of the tick, from half a period before the first that something interrupted.
    near = close_up(summary, 220e-6, tick_hz=1 / 150e-6)
    assert near is not None
    assert near.envelope_greatest_ns == (76_000, 68_000, 68_000, 78_000)
    assert near.envelope_time_s[0] == pytest.approx(68e-6)
    path.unlink()
    assert close_up(summary, 1.0) is None


@pytest.mark.parametrize(
    ("exhibit", "message"),
    [
        ({"figure": "12", "shows": "nothing"}, "needs one of: its values under `tables`"),
        ({"figure": "12", "view": "phases", "arms": ["bare"]}, "`arms` goes with a view of"),
        ({"figure": "12", "view": "values"}, "needs `workloads` and `metrics`"),
        ({"figure": "12", "table": "3", "none": "x"}, "needs one of `table`, `figure`, `place`"),
        ({"figure": "6", "none": "x"}, "is here twice"),
        (
            {"figure": "12", "view": "timeline", "scenario": "one-to-al"},
            "did you mean 'one-to-all'",
        ),
    ],
)
def test_mistakes_in_an_exhibit_are_reported(exhibit: dict[str, str], message: str) -> None:
    path = references_folder() / "fayyad2013.yaml"
    data = yaml.safe_load(path.read_text(encoding="utf-8"))
    data["exhibits"].append(exhibit)
    with pytest.raises(InputError, match=message.replace("?", r"\?")):
        parse_reference(yaml.safe_dump(data, sort_keys=False).encode(), "changed.yaml")
