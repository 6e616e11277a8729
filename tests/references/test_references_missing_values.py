"""Why an arm has no counterpart or no value on a source's page; runs without a bare machine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from references.references_run import comparison_of_run, write_realtime_run
from tare.analysis.data.rundata import RunData
from tare.analysis.effects.comparison import Comparison
from tare.events.results import PlatformResult, SkippedPart
from tare.references.arms import alike, bare_of
from tare.references.missing_values import why_it_did_not_run, why_no_value, why_usable_or_not
from tare.references.pairing import PairedTable, pair_with_published
from tare.references.published import load_reference
from tare.references.stated import stated
from tare.report.figures.palette import looks
from tare.report.sources.paper import PaperDraft, RunFindings, paper_drafts
from tare.report.sources.paper_empty import arms_without
from tare.report.sources.section import glance_table
from tare.report.sources.stated import run_value_text

REFERENCE = load_reference("fayyad2013")
NO_XEN = "this host does not run Xen"


@pytest.fixture(scope="module")
def comparison(tmp_path_factory: pytest.TempPathFactory) -> Comparison:
    return comparison_of_run(write_realtime_run(tmp_path_factory.mktemp("lacking")))


def changed(comparison: Comparison, arms: Mapping[str, Any], **fields: Any) -> Comparison:
    """Return it as a comparison of a run whose arms are these."""
    (run,) = comparison.runs
    return replace(comparison, runs=(replace(run, study={**run.study, "arms": arms}, **fields),))


def table(comparison: Comparison, number: int) -> PairedTable:
    tables = pair_with_published(comparison, REFERENCE).tables
    return next(one for one in tables if one.table.table == number)


def draft(comparison: Comparison, name: str) -> PaperDraft:
    findings = RunFindings(comparison, looks(comparison.arms, comparison.baseline), {}, ())
    drafts = paper_drafts(pair_with_published(comparison, REFERENCE), findings)
    return next(each for each in drafts if each.exhibit.name == name)


def test_a_guest_named_bare_is_not_used_as_the_bare_machine(comparison: Comparison) -> None:
    guests = {"bare": {"platform": "qemu"}, "vm": {"platform": "qemu"}}
    run = changed(comparison, guests)
    assert bare_of(run, REFERENCE) is None
    one = table(run, 3)
    own = [row for row in one.rows if not row.published]
    assert own and not any(value.ratio for row in own for value in row.values if value)
    assert all(value.effect is None for row in own for value in row.values if value)
    assert "has no bare machine like the source's" in " ".join(one.notes)
    # The source's own stand as ever.
    assert all(value.ratio for row in one.rows if row.published for value in row.values if value)


def test_the_bare_machine_need_not_be_the_baseline(comparison: Comparison) -> None:
    arms = {"bare": {"platform": "qemu"}, "vm": {"platform": "bare-live"}}
    run = changed(comparison, arms)
    assert bare_of(run, REFERENCE) == "vm"
    own = {row.arm: row for row in table(run, 3).rows if not row.published}
    ratios = [value.ratio for value in own["bare"].values if value]
    assert ratios == [pytest.approx(1 / 3), pytest.approx(1 / 3)]
    assert pair_with_published(run, REFERENCE).baseline == "vm"


def test_a_source_without_a_bare_machine_leaves_the_runs_own(comparison: Comparison) -> None:
    assert bare_of(comparison, load_reference("hwang2013")) == "bare"


def test_an_arm_that_the_host_lacked_is_reported_with_that_reason(comparison: Comparison) -> None:
    hvm = {
        "platform": "xen",
        "options": {"type": "hvm", "devices": "emulated", "scheduler": "credit"},
    }
    arms = {**comparison.runs[0].study["arms"], "xen-hvm": hvm, "xen-new": hvm}
    skip = SkippedPart("xen-hvm", None, None, NO_XEN)
    unusable = PlatformResult("xen-new", "xen", {}, False, "xl is missing", "", False, {}, {})
    (run,) = comparison.runs
    found = changed(comparison, arms, skipped=(skip,), platforms=(*run.platforms, unusable))
    likes = {like.arm: like for like in alike(found, REFERENCE)}
    assert likes["xen-hw"].why == f"this run's xen-hvm: {NO_XEN}; this run's xen-new: xl is missing"
    assert likes["xen-pv"].why.startswith("this run has no arm with platform: xen, type: pv")


def test_the_reason_why_an_arm_did_not_run_includes_the_remedy_when_asked(
    comparison: Comparison,
) -> None:
    (run,) = comparison.runs
    no_xl = PlatformResult("vm", "xen", {}, False, "no xl.", "install xl", False, {}, {})
    left = replace(run, platforms=(no_xl,), skipped=(SkippedPart("vm", None, None, "no xl."),))
    assert why_it_did_not_run((run, left), "vm") == "no xl."
    assert why_it_did_not_run((run, left), "vm", to_do=True) == "no xl. To do: install xl"
    # The host has what its platform needs, and its machines would be too large.
    usable = replace(no_xl, usable=True, reason="a guest booted", hint="")
    large = SkippedPart("vm", None, None, "wants 9 vCPUs")
    few = replace(run, platforms=(usable,), skipped=(large,))
    assert why_it_did_not_run((few,), "vm", to_do=True) == "wants 9 vCPUs"
    assert why_it_did_not_run((replace(few, skipped=()),), "vm", to_do=True) == ""
    assert why_usable_or_not(usable) == "a guest booted"


def test_an_empty_field_has_its_reason(comparison: Comparison) -> None:
    (run,) = comparison.runs
    keys = [summary.key for summary in comparison.summaries]
    key = next(each for each in keys if each.scenario == "tight" and each.workload == "switch")
    lost = tuple(
        replace(cell, status="withheld", reason="the clock drifted.")
        if (cell.arm, cell.scenario, cell.workload) == ("vm", key.scenario, key.workload)
        else cell
        for cell in run.cells
    )
    without = replace(
        comparison,
        runs=(replace(run, cells=lost),),
        summaries=tuple(
            each
            for each in comparison.summaries
            if (each.arm, each.key.scenario, each.key.workload)
            != ("vm", key.scenario, key.workload)
        ),
    )
    why = "all its cells there were lost, withheld as the clock drifted"
    assert f"No value of vm: {why}." in draft(without, "Table 7").notes
    assert not any("No value of vm" in note for note in draft(without, "Table 6").notes)
    # If other workloads have values, the workload is named.
    tick = next(each for each in keys if each.scenario == "tight" and each.workload == "tick-long")
    assert arms_without(without, (key, tick)) == (f"No value of vm for switch: {why}.",)


def skipping(run: RunData, *parts: SkippedPart) -> tuple[RunData, ...]:
    return (replace(run, skipped=parts, cells=()),)


def test_the_most_specific_reason_is_reported(comparison: Comparison) -> None:
    (run,) = comparison.runs
    whole = SkippedPart("vm", None, None, "no KVM")
    scenario = SkippedPart("vm", "tight", None, "too few CPUs")
    workload = SkippedPart("vm", None, "switch", "no memory")
    asked = ("vm", "tight", ("switch",))
    assert why_no_value(skipping(run, workload, scenario, whole), *asked) == "no KVM"
    assert why_no_value(skipping(run, scenario, workload), *asked) == "too few CPUs"
    assert why_no_value(skipping(run, workload), *asked) == "no memory"
    assert why_no_value(skipping(run, workload), "vm", "tight", ("tick-long",)) == ""
    assert why_no_value(skipping(run, scenario), "vm", "crowd", ("switch",)) == ""


def test_a_table_whose_scenario_was_left_out_says_why(comparison: Comparison) -> None:
    (run,) = comparison.runs
    few = tuple(SkippedPart(arm, "tight", None, "it needs two CPUs") for arm in comparison.arms)
    kept = tuple(each for each in comparison.summaries if each.key.scenario != "tight")
    left = replace(comparison, runs=skipping(run, *few), summaries=kept)
    assert draft(left, "Table 6").empty == (
        "this run has no tick in a scenario like contention-cpu; tight: it needs two CPUs"
    )


def test_two_arms_that_a_source_compares_are_divided(comparison: Comparison) -> None:
    credit = {"scheduler": "credit"}
    arms = {
        "bare": {"platform": "xen", "options": {"type": "pv", **credit}},
        "vm": {"platform": "xen", "options": {"type": "hvm", "devices": "emulated", **credit}},
    }
    names = {each.name: each for each in stated(changed(comparison, arms), REFERENCE)}
    assert run_value_text(names["xen-pv-factor"]) == (
        "tick excess-max in one-to-all: vm ÷ bare 3.00× (of the longest of all) (emulated)"
    )
    hyperv = run_value_text(names["hyperv-pv-factor"])
    assert hyperv.startswith("nothing: Hyper-V HW-Assisted VM: this run has no arm with platform")
    conditions = names["xen-pv-factor"].fact.describe_conditions({})
    assert "xen-hw against xen-pv, one-to-all" in conditions


def test_a_table_of_other_parameters_says_which_are_wanted(comparison: Comparison) -> None:
    kept = tuple(
        each
        for each in comparison.summaries
        if each.key.workload != "switch" or '"threads":100}' in each.key.parameters
    )
    assert draft(replace(comparison, summaries=kept), "Table 3").empty == (
        "this run has no switch with 2 threads and 1000 threads in one-to-all"
    )


def test_the_overview_table_pairs_similar_machines(comparison: Comparison) -> None:
    pv = {"platform": "xen", "options": {"type": "pv", "scheduler": "credit"}}
    run = changed(comparison, {"bare": {"platform": "bare"}, "vm": pv})
    side = pair_with_published(run, REFERENCE)
    rows = {
        row.name: row
        for row in glance_table(side, [draft(run, "Table 3")], alike(run, REFERENCE)).rows
    }
    assert rows["Table 3"].alike == (
        "Xen Para-virtualized VM, published: 1.36× to 1.50×; here vm: 3.00×",
    )
    # Where the source has no bare machine, the values themselves.
    bare = tuple(
        replace(row, values=tuple(value and replace(value, ratio=None) for value in row.values))
        for row in table(run, 3).rows
    )
    tables = tuple(replace(one, rows=bare) if one.table.table == 3 else one for one in side.tables)
    undivided = replace(side, tables=tables)
    (shared,) = glance_table(undivided, [draft(run, "Table 3")], alike(run, REFERENCE)).rows
    assert shared.alike == (
        "Xen Para-virtualized VM, published: 15.27 µs and 17.2 µs; here vm: 21.6 µs and 32.4 µs",
    )
