"""A source's figures of a load balancer, filled from a run or empty with the reason."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from report.report_page_reader import read
from report.report_proxied import write_proxied_run
from tare.analysis import load_run
from tare.analysis.effects.compare import compare
from tare.analysis.effects.comparison import Comparison
from tare.analysis.topics.load_balancer import throughputs
from tare.references.exhibits import Exhibit
from tare.references.pairing import pair_with_published
from tare.references.published import load_reference
from tare.references.stated import stated
from tare.report import build_report
from tare.report.figures.palette import looks
from tare.report.sources.paper import PaperDraft, RunFindings, paper_drafts

REFERENCE = load_reference("haproxy2012")
VIRTIO = {
    "accelerator": "kvm",
    "devices": "paravirtual",
    "nic": "auto",
    "nic_queues": 1,
    "nic_offloads": True,
    "network": "auto",
    "switch": "bridge",
}
XEN = {"type": "hvm", "devices": "paravirtual"}
RHEV, OVS, BRIDGE = (
    "Text, RHEV 3.0 Beta (KVM based)",
    "Text, comments on Xen over Open vSwitch",
    "Text, comments on Xen over a bridge",
)
LOSS = "Figure performance_loss_comparison"


def run_of(folder: Path, *limited: str, **arms: Any) -> Comparison:
    """Return a run in which ``kvm`` and ``tcg`` are what ``arms`` says."""
    run = load_run(write_proxied_run(folder, limited))
    emulated = {"platform": "qemu", "options": {**VIRTIO, "accelerator": "tcg"}}
    all_arms = {**run.study["arms"], "kvm": emulated, "tcg": emulated, **arms}
    return compare([replace(run, study={**run.study, "arms": all_arms})])


def drafts(comparison: Comparison) -> dict[str, PaperDraft]:
    proxied = throughputs(comparison.runs, comparison.arms, comparison.baseline, 0.95)
    style = looks(comparison.arms, comparison.baseline)
    findings = RunFindings(comparison, style, {}, (), proxied=proxied)
    statements = stated(comparison, REFERENCE)
    drafted = paper_drafts(pair_with_published(comparison, REFERENCE), findings, statements)
    return {each.exhibit.name: each for each in drafted}


def texts(draft: PaperDraft) -> list[list[str]]:
    assert draft.table is not None, draft.empty
    return [[cell.text for cell in row] for row in draft.table.rows]


def test_a_figure_about_one_hypervisor_shows_its_arms_and_the_bare_machine(
    tmp_path: Path,
) -> None:
    found = drafts(run_of(tmp_path, kvm={"platform": "qemu", "options": VIRTIO}))
    rhev = found[RHEV]
    assert [row[0] for row in texts(rhev)] == ["bare", "bare", "kvm", "kvm"]
    assert rhev.figure is not None and "kvm, 8 KiB" in rhev.figure.description
    assert "This run: proxy in proxied." in rhev.notes
    native = found["Figure native_performance"]
    assert [row[:2] for row in texts(native)] == [["bare", "0 B"], ["bare", "8 KiB"]]
    # Those that compare hypervisors are of all arms.
    everyone = found["Figure http_connections_comparison"]
    assert {row[0] for row in texts(everyone)} == {"bare", "kvm", "tcg (emulated)"}


def test_another_card_or_switch_is_not_the_sources_machine(tmp_path: Path) -> None:
    found = drafts(
        run_of(
            tmp_path,
            kvm={"platform": "qemu", "options": {**VIRTIO, "nic": "e1000e"}},
            tcg={"platform": "xen", "options": {**XEN, "nic": "e1000"}},
        )
    )
    assert "no arm of KVM with a virtio card on a bridge" in found[RHEV].empty
    assert "Xen's own card on a bridge" in found["Figure xen41_performance"].empty
    assert "with switch: openvswitch" in found[OVS].empty
    wanted = "this run has no arm with platform: vsphere, devices: paravirtual"
    assert found["Figure vsphere_performance"].empty.endswith(wanted)


def test_loss_is_the_runs_own_against_its_bare_machine(tmp_path: Path) -> None:
    loss = drafts(run_of(tmp_path))[LOSS]
    assert [(row[0], row[2]) for row in texts(loss)][:2] == [("kvm", "50 %"), ("kvm", "50 %")]
    assert "bare" not in {row[0] for row in texts(loss)}


def test_a_loss_against_another_machine_is_not_the_sources(tmp_path: Path) -> None:
    """The baseline of the run may be a guest; the source's losses are against the server itself."""
    run = run_of(tmp_path, bare={"platform": "oci"}, tcg={"platform": "bare"})
    assert drafts(run)[LOSS].empty == (
        "this run’s losses are against its baseline, which is not the server itself"
    )
    without = run_of(tmp_path / "without", bare={"platform": "oci"})
    assert "ALOHA on the server itself: this run has no arm" in drafts(without)[LOSS].empty


def test_numbers_of_another_card_are_next_to_its_own_arms(tmp_path: Path) -> None:
    """Those of the legacy adapter are not empty where only the other adapter is missing."""
    legacy = {"platform": "hyperv", "options": {"devices": "emulated"}}
    (line,) = drafts(run_of(tmp_path, kvm=legacy))["Figure hyperv_performance"].stated
    assert line.endswith(
        "see Figure http_connections_comparison: arms of Hyper-V with emulated devices."
    )
    (line,) = drafts(run_of(tmp_path / "none"))["Figure hyperv_performance"].stated
    assert "nothing: Hyper-V, legacy network adapter (emulated, tulip): this run has no arm" in line


def test_where_the_time_goes_is_of_the_sources_machine_alone(tmp_path: Path) -> None:
    """Neither of the run's baseline nor of its bare machine, where they differ."""
    xen = {"platform": "xen", "options": {**XEN, "switch": "openvswitch"}}
    run = run_of(tmp_path, bare={"platform": "oci"}, kvm=xen, tcg={"platform": "bare"})
    assert {row[0] for row in texts(drafts(run)[OVS])} == {"kvm"}


def test_no_loss_is_drawn_where_an_end_was_the_limit(tmp_path: Path) -> None:
    found = drafts(run_of(tmp_path, "kvm", "tcg"))
    assert "client or origin may have been the limit" in found[LOSS].empty
    rates = texts(found["Figure http_connections_comparison"])
    assert all(row[2].startswith("at least ") == (row[0] != "bare") for row in rates)


def test_cpu_time_by_owner_is_shown_next_to_the_sources_comments(tmp_path: Path) -> None:
    xen = {"platform": "xen", "options": {**XEN, "switch": "openvswitch"}}
    found = drafts(run_of(tmp_path, kvm=xen))
    rows = texts(found[OVS])
    # The host has two CPUs, so half of all CPUs is one whole CPU.
    assert [*rows[0][:2], *rows[0][3:]] == ["kvm", "0 B", "host", "netback", "50 %", "100 %"]
    inside = next(row for row in rows if row[3] == "inside")
    assert inside[-1] == "–"
    assert found[OVS].above is not None and not found[OVS].empty
    statements = " ".join(found[OVS].stated)
    assert "at these 8000 requests/s: 60 % of another core" in statements
    assert "Xen's own card on a bridge" in found[BRIDGE].empty


def test_nothing_stands_for_it_where_nothing_went_through(tmp_path: Path) -> None:
    comparison = run_of(tmp_path)
    style = looks(comparison.arms, comparison.baseline)
    side = pair_with_published(comparison, REFERENCE)
    for draft in paper_drafts(side, RunFindings(comparison, style, {}, ())):
        exhibit = draft.exhibit
        assert draft.empty == (exhibit.none or "this run measured no proxy"), exhibit.name


def test_the_page_ends_with_the_source(tmp_path: Path) -> None:
    comparison = run_of(tmp_path / "run", kvm={"platform": "qemu", "options": VIRTIO})
    path = build_report(comparison.runs, comparison, tmp_path / "out", [REFERENCE])
    page = read(path.read_text(encoding="utf-8"))
    assert page.faults == []
    for words in (
        "haproxy2012 at a glance",
        "tables and figures follow in its order. This run has a counterpart of 5 of them",
        "Figure http_connections_comparison",
        "RHEV 3.0 Beta (KVM, virtio)",
        "Stated in section Microsoft HyperV",
    ):
        assert words in page.words, words
    name = "paper-haproxy2012-figure-performance-loss-comparison"
    assert (tmp_path / "out" / "tables" / f"{name}.csv").exists()
    assert (tmp_path / "out" / "figures" / f"{name}.svg").exists()


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"figure": "a", "view": "over-size", "workloads": ("proxy",)}, "needs `workloads` and"),
        ({"text": "a", "view": "time-spent"}, "needs `workloads`"),
        ({"figure": "a", "view": "phases", "arms": ("xen",)}, "`arms` goes with"),
        ({"figure": "a", "text": "b", "none": "c"}, "`place` and `text`"),
    ],
)
def test_an_exhibit_that_cannot_be_filled_is_refused(fields: dict[str, Any], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        Exhibit.model_validate(fields)
