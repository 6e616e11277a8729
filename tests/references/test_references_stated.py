"""What sources state in their text, which arms are like theirs, and the source at a glance."""

from __future__ import annotations

import csv
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import ValidationError

from references.references_planned import planned_run
from references.references_run import BLOCKS, comparison_of_run, value_of, write_realtime_run
from report.report_page_reader import read
from tare.analysis.model import Comparison
from tare.errors import InputError
from tare.references.arms import alike, is_counterpart
from tare.references.listing import NOTHING, file_of
from tare.references.pairing import pair_with_published
from tare.references.printed import Fact
from tare.references.published import (
    PublishedArm,
    Reference,
    load_reference,
    parse_reference,
    references_folder,
)
from tare.references.stated import SETUP, Stated, stated
from tare.report import build_report
from tare.report.figures.palette import looks
from tare.report.sources.paper import RunFindings, paper_drafts
from tare.report.sources.section import glance_table
from tare.report.sources.stated import run_value_text, statement
from tare.run.catalog import build_catalog
from tare.study.reading.hosts_file import KnownHosts
from tare.study.reading.load import load_study
from tare.study.reading.shipped import shipped_studies
from tare.workloads import WORKLOADS

PAPERS = ("fayyad2013", "fayyad2013-hyperv", "haproxy2012", "hwang2013", "li2013")
NO_HYPERVISORS = frozenset({"bare", "oci"})


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_realtime_run(tmp_path_factory.mktemp("realtime"))


@pytest.fixture(scope="module")
def comparison(folder: Path) -> Comparison:
    return comparison_of_run(folder)


@pytest.fixture(scope="module")
def stated_by_name(comparison: Comparison) -> dict[str, Stated]:
    return {each.name: each for each in stated(comparison, load_reference("fayyad2013"))}


@pytest.mark.parametrize("name", PAPERS)
def test_each_number_of_the_text_has_a_counterpart_or_the_reason_why_not(name: str) -> None:
    for fact in load_reference(name).facts.values():
        elsewhere = bool(fact.here) and not fact.setup
        reasons = [fact.measured, fact.setup, bool(fact.none), elsewhere]
        assert reasons.count(True) == 1, fact.says
        if fact.measured:
            assert fact.metric in {metric.name for metric in WORKLOADS[fact.workload].metrics}


@pytest.mark.parametrize("name", PAPERS)
def test_each_fact_with_a_counterpart_is_measured_by_a_study(name: str) -> None:
    reference = load_reference(name)
    # Arms of hypervisors, which are compared, are not in a plan of a host without any.
    lacking = {key for key, fact in reference.facts.items() if fact.measured and not fact.than}
    run = planned_run(reference.studies[0], 4)
    found = {each.name: each for each in stated(run, reference)}
    lacking -= {name for name, each in found.items() if not each.why}
    of_hypervisors = {key for key in lacking if found[key].unlike}
    assert lacking == of_hypervisors
    # Those are measured as well, in the arms that the host has.
    for key in of_hypervisors:
        fact = reference.facts[key]
        anyones = reference.model_copy(update={"facts": {key: fact.model_copy(update={"arm": ""})}})
        (each,) = stated(run, anyones)
        assert each.own, key


@pytest.mark.parametrize("name", PAPERS)
def test_each_number_is_paired_with_its_own_scenario(name: str) -> None:
    reference = load_reference(name)
    measured = {key: fact for key, fact in reference.facts.items() if fact.measured}
    assert not [key for key, fact in measured.items() if not fact.scenario]


def test_facts_about_the_bare_machine_use_its_values_alone() -> None:
    run = planned_run("realtime", 4)
    # Where none is named, the first that a run has is taken.
    assert run.summaries[0].key.scenario != "one-to-all"
    for name, own in (("fayyad2013", "busy-loop-longest"), ("fayyad2013-hyperv", "switch-least")):
        found = {each.name: each for each in stated(run, load_reference(name))}
        assert [found[key].scenario for key in (own, "busy-loop", "tick")] == ["one-to-all"] * 3


def test_slaves_are_compared_where_the_copies_and_the_data_are_the_sources() -> None:
    reference = load_reference("li2013")
    found = {each.name: each for each in stated(planned_run("mapreduce", 8), reference)}
    two = found["two-vms-write"]
    assert two.scenario == "two" and set(two.own.values()) == {1.0}
    assert run_value_text(two).startswith("dfsio write-time, two-vms ÷ one-vm: bare 1.000×, ")
    assert "no metric of a study is named" not in "".join(map(run_value_text, found.values()))
    # Other sizes, other copies, and machines that are bound to no CPUs.
    short = {each.name: each for each in stated(planned_run("mapreduce-smoke", 2), reference)}
    assert short["two-vms-read"].why == (
        "this run measured no dfsio read-time with size: 10000000000, replication: 3 in two-vms "
        "(subject pinned, a cluster of 2 slaves) and one-vm (subject pinned, a cluster of 1 slave)"
    )


def test_conditions_that_the_texts_state_are_there() -> None:
    facts = load_reference("fayyad2013").facts
    assert facts["dom0-cpu"].value == 0 and facts["pinned-cpus"].value == 1
    assert (facts["bus-interleaves"].value, facts["bus-bottleneck"].value) == (2, 3)
    assert facts["all-to-all-memory-factor"].machines == 4
    assert load_reference("hwang2013").facts["response"].phase == "quiet"
    assert load_reference("fayyad2013-hyperv").facts["guest-cpu"].value == 0


def test_a_longest_value_is_the_longest_of_all_boots(stated_by_name: dict[str, Stated]) -> None:
    tick = stated_by_name["tick"]
    assert tick.own["bare"] == pytest.approx(value_of(20e-6, "bare", BLOCKS))
    assert "tick excess-max in one-to-all: bare 36.0 µs" in run_value_text(tick)
    text = statement(tick, is_empty=False)
    assert text.startswith("Stated in section 6.2.1: what a clock tick delays any task by: 8")


def test_scenarios_are_compared_within_the_run(stated_by_name: dict[str, Stated]) -> None:
    factor = stated_by_name["shared-bus-factor"]
    assert factor.own == {arm: pytest.approx(2.0) for arm in ("bare", "bare-again", "vm")}
    assert "all-to-all-memory ÷ one-to-all: bare 2.00×" in run_value_text(factor)


def test_statements_that_a_run_did_not_measure_are_reported(
    stated_by_name: dict[str, Stated],
) -> None:
    assert stated_by_name["memory-load-adds"].why.startswith(
        "this run measured no tick excess-max in conten"
    )
    assert stated_by_name["tick-rate"].why == SETUP
    assert "nothing: " in run_value_text(stated_by_name["hyperv-period"])


def test_the_measuring_method_is_shown_when_the_run_recorded_it(
    stated_by_name: dict[str, Stated],
) -> None:
    assert run_value_text(stated_by_name["tick-rate"]).startswith("see What ran: the kernels")
    quantum = stated_by_name["xen-quantum"]
    assert "This run: nothing: Xen Para-virtualized VM: " in statement(quantum, is_empty=False)
    of_xen = replace(quantum, unlike="")
    assert "This run: see What ran: the options" in statement(of_xen, is_empty=False)
    response = load_reference("hwang2013").facts["response"]
    text = run_value_text(Stated("response", response, {}, "s", ""))
    assert text == "see Figure 9(e): the quiet times"
    # What has no counterpart says that alone.
    assert run_value_text(stated_by_name["bios-cpus"]) == f"nothing: {SETUP}"
    assert statement(stated_by_name["long-view"], is_empty=False).endswith(
        "duration of the long view, at least: 1 h."
    )


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"here": "What ran", "none": "nobody"}, "goes alone or with `setup`"),
        ({"than": "xen-pv", "workload": "tick", "metric": "excess-max"}, "`than` needs `arm`"),
        ({"workload": "tick"}, "go together"),
        ({"workload": "tick", "metric": "excess-max", "setup": True}, "at most"),
        ({"against": "one-to-all", "scenario": "one-to-one"}, "needs `workload`"),
    ],
)
def test_a_fact_that_cannot_be_is_refused(change: dict[str, object], why: str) -> None:
    with pytest.raises(ValidationError, match=why):
        Fact.model_validate({"section": "1", "value": 1, "unit": "1", "says": "x", **change})


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ("of: [Figure 6]", "of: [Figure 66]", "Figure 66 is not under `exhibits`"),
        ("against: one-to-all,", "against: one-to-al,", "is not a scenario; did you mean"),
        ("than: xen-pv,", "than: xen-vp,", "is not an arm; did you mean"),
    ],
)
def test_a_wrong_name_in_a_fact_is_reported(old: str, new: str, why: str) -> None:
    text = (references_folder() / "fayyad2013.yaml").read_text(encoding="utf-8")
    assert old in text
    with pytest.raises(InputError) as caught:
        parse_reference(text.replace(old, new).encode(), "changed.yaml")
    assert why in str(caught.value)


def test_arms_stand_for_each_other_by_what_they_are() -> None:
    xen = load_reference("fayyad2013").arms["xen-hw"]
    credit = {"type": "hvm", "devices": "emulated", "scheduler": "credit"}
    hvm = {"platform": "xen", "options": credit}
    modified = {"platform": "xen", "options": {**credit, "devices": "paravirtual"}}
    assert not is_counterpart(modified, xen)
    assert is_counterpart({"platform": "xenserver", "options": {"devices": "emulated"}}, xen)
    quick = {"platform": "xen", "options": {**credit, "scheduling": {"slice": 0.001}}}
    assert is_counterpart(hvm, xen) and not is_counterpart(quick, xen)
    assert is_counterpart(quick, load_reference("fayyad2013").arms["xen-hw-1ms"])
    assert not is_counterpart(
        {"platform": "bare"}, PublishedArm(label="x", counterparts=(), none="nobody")
    )


@pytest.mark.parametrize(
    ("study", "name", "expected"),
    [
        ("realtime", "fayyad2013", {"xen-pv": ["xen-pv"], "xen-pv-1ms": ["xen-pv-1ms"]}),
        ("components", "hwang2013", {"kvm": ["kvm", "libvirt"], "xen": ["xen-hvm"]}),
    ],
)
def test_a_budget_and_other_interfaces_are_not_the_sources_machines(
    study: str, name: str, expected: dict[str, list[str]]
) -> None:
    arms = load_study(shipped_studies()[study], build_catalog()).model_dump(mode="json")["arms"]
    published = load_reference(name).arms
    # Those that are left, such as `xen-pv-rtds` and `kvm-enlightened`, are other machines.
    for arm, own in expected.items():
        assert [each for each in arms if is_counterpart(arms[each], published[arm])] == own


@pytest.mark.parametrize(
    ("name", "arm", "platform", "options"),
    [
        ("hwang2013", "kvm", "libvirt", {"accelerator": "kvm", "devices": "paravirtual"}),
        ("hwang2013", "kvm", "proxmox", {"kvm": True, "devices": "paravirtual"}),
        ("hwang2013", "kvm", "ovirt", {"devices": "paravirtual"}),
        ("hwang2013", "kvm", "incus", {"type": "vm", "accelerator": "kvm"}),
        ("hwang2013", "xen", "xenserver", {"devices": "paravirtual"}),
        ("li2013", "kvm", "ovirt", {"devices": "emulated"}),
        ("li2013", "xen", "xenserver", {}),
        ("haproxy2012", "rhev", "ovirt", {"devices": "paravirtual"}),
    ],
)
def test_products_with_the_same_hypervisor_are_its_counterparts(
    name: str, arm: str, platform: str, options: dict[str, Any]
) -> None:
    published = load_reference(name).arms[arm]
    assert is_counterpart({"platform": platform, "options": options}, published)
    assert not is_counterpart({"platform": "incus", "options": {"type": "container"}}, published)


def test_guests_of_the_second_text_have_a_whole_cpu_reserved() -> None:
    arms = load_reference("fayyad2013-hyperv").arms
    whole = {"scheduling": {"cap": 1.0, "reservation": 1.0}}
    for name, devices in (("enlightened", "paravirtual"), ("emulated", "emulated")):
        plain = {"platform": "hyperv", "options": {"devices": devices}}
        assert not is_counterpart(plain, arms[name])
        assert is_counterpart({**plain, "options": {"devices": devices, **whole}}, arms[name])


def test_alternative_readings_of_a_character_count_are_reported() -> None:
    facts = load_reference("hwang2013").facts
    assert facts["char-output-one-vcpu"].value == 50800
    for name in ("char-output-one-vcpu", "char-output-four-vcpus"):
        assert "Kops/s" in facts[name].says
    assert "50.8 MiB/s" in facts["char-output-one-vcpu"].says


@pytest.mark.parametrize("name", PAPERS)
def test_every_arm_of_a_source_has_a_counterpart_or_the_reason(name: str) -> None:
    reference = load_reference(name)
    run = planned_run(reference.studies[0], 4)
    for like in alike(run, reference):
        assert like.own or like.why, like.arm
        assert not (like.own and like.why)
    measured = {like.arm: like.own for like in alike(run, reference)}
    if reference.baseline:
        assert measured[reference.baseline][0] == "bare"


@pytest.mark.parametrize("name", PAPERS)
def test_each_study_has_an_arm_like_each_of_its_source_where_the_makers_are_at_hand(
    name: str, tmp_path: Path
) -> None:
    reference = load_reference(name)
    images = {
        "hyperv": {"image": r"D:\tare\tare-live.iso"},
        "ovirt": {"image": "tare-live.iso"},
        "proxmox": {"image": "local:iso/tare-live.iso"},
        "vsphere": {"datastore": "tare"},
        "xenserver": {"image": "tare-live.iso"},
    }
    there = {"address": "server.example", "callback": "192.0.2.7:4460"}
    way = {maker: {**there, **image} for maker, image in images.items()}
    hosts = KnownHosts(tmp_path / "h.yaml", {}, way)
    for study in reference.studies:
        loaded = load_study(shipped_studies()[study], build_catalog(), hosts=hosts)
        arms = loaded.model_dump(mode="json")["arms"]
        if {spec["platform"] for spec in arms.values()} <= NO_HYPERVISORS:
            # A first look at containers, for which a source about hypervisors has no values.
            assert study.endswith("-smoke")
            continue
        # What nobody knows the hypervisor of has no counterpart, and says so.
        known = {
            arm: each for arm, each in reference.arms.items() if each.counterparts or not each.none
        }
        assert known
        for arm, published in known.items():
            found = [own for own, spec in arms.items() if is_counterpart(spec, published)]
            assert found, f"{study} has no arm like {arm}"


def test_the_lost_values_of_the_second_text_are_those_of_the_first() -> None:
    first = yaml.safe_load((references_folder() / "fayyad2013.yaml").read_text(encoding="utf-8"))
    rows = {table["table"]: table["rows"] for table in first["tables"]}
    second = load_reference("fayyad2013-hyperv")
    for exhibit in second.exhibits:
        if exhibit.table.isdigit() and 6 <= int(exhibit.table) <= 15:
            for arm in ("hyperv-hw", "hyperv-pv"):
                for value in rows[int(exhibit.table)][arm]:
                    assert value.replace(" us", " µs") in exhibit.remark, exhibit.table


def findings(run: Comparison) -> RunFindings:
    return RunFindings(run, looks(run.arms, run.baseline), {}, ())


def test_the_overview_table_shows_filled_and_empty_cells(
    comparison: Comparison, stated_by_name: dict[str, Stated]
) -> None:
    side = pair_with_published(comparison, load_reference("fayyad2013"))
    drafted = paper_drafts(side, findings(comparison), tuple(stated_by_name.values()))
    table = glance_table(side, drafted, alike(comparison, side.reference))
    rows = {row.name: row for row in table.rows}
    assert len(rows) == len(side.reference.exhibits)
    assert all(row.here for row in rows.values())
    assert rows["Table 2"].published == pytest.approx((2.3, 5961.0))
    # The arm `bare-again` is the baseline's twin, and as good as it.
    assert rows["Table 2"].own == pytest.approx((1.0, 3.0))
    assert rows["Table 4"].own is None and rows["Table 4"].here.startswith("empty: this run has no")
    assert rows["Figure 7"].here == (
        "empty: tick kept no series over time in bare, bare-again and vm in this run"
    )
    assert rows["Figure 9"].here.startswith(
        "empty: Hyper-V Para-virtualized VM: this run has no arm"
    )
    sentence = next(d.stated for d in drafted if d.exhibit.name == "Table 12")
    assert any("scenario 6 against scenario 5" in line for line in sentence)


def test_the_page_and_its_files_hold_it_all(
    comparison: Comparison, folder: Path, tmp_path: Path
) -> None:
    path = build_report(comparison.runs, comparison, tmp_path, [load_reference("fayyad2013")])
    page = read(path.read_text(encoding="utf-8"))
    assert page.faults == []
    for words in (
        "fayyad2013 at a glance",
        "This run’s counterparts of the machines of fayyad2013",
        "this run has no arm with platform: hyperv, devices: paravirtual; nearest in kind is a KVM",
        "this run has no arm with platform: xen, type: hvm",
        "Stated in section 6.3.6: scenario 6 against scenario 5, on average",
    ):
        assert words in page.words, words
    with (tmp_path / "tables" / "reference-fayyad2013-facts.csv").open(encoding="utf-8") as file:
        facts = list(csv.DictReader(file))
    assert all(row["own"] for row in facts)
    with (tmp_path / "tables" / "paper-fayyad2013.csv").open(encoding="utf-8") as file:
        assert all(row["here"] for row in csv.DictReader(file))


@pytest.mark.parametrize("name", PAPERS)
def test_the_docs_name_a_file_for_all_that_is_not_empty_by_a_reason(name: str) -> None:
    reference = load_reference(name)
    for exhibit in reference.exhibits:
        assert bool(file_of(reference, exhibit)) != bool(exhibit.none), exhibit.name
    assert NOTHING


def files_of(reference: Reference) -> set[str]:
    return {file_of(reference, exhibit) for exhibit in reference.exhibits} - {""}


def test_the_files_of_jobs_that_the_docs_name_are_written(tmp_path: Path) -> None:
    reference, run = load_reference("li2013"), planned_run("mapreduce", 4)
    build_report(run.runs, run, tmp_path / "out", [reference])
    written = {str(p.relative_to(tmp_path / "out")) for p in (tmp_path / "out").rglob("*.*")}
    # Nothing was sampled, no job reported its phases, and the second host is another study's.
    absent = {
        file_of(reference, each)
        for each in reference.exhibits
        if each.view in ("counters", "job-phases") or each.over == "hosts"
    }
    assert files_of(reference) - written == absent


def test_the_files_that_the_docs_name_are_those_that_a_report_writes(tmp_path: Path) -> None:
    reference, run = load_reference("hwang2013"), planned_run("components", 4)
    build_report(run.runs, run, tmp_path / "out", [reference])
    written = {str(p.relative_to(tmp_path / "out")) for p in (tmp_path / "out").rglob("*.*")}
    missing = files_of(reference) - written
    # The other study's: response times over time, and their means.
    assert missing == {"figures/course-1.svg", "tables/paper-hwang2013-figure-9-e.csv"}
