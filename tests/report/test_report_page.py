"""The page: one file, no network, nothing let through, honest about what is missing."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import pytest

from report.report_page_reader import Page, read
from report.report_synthetic import (
    QUICK,
    CellStatus,
    comparison_of,
    hostile,
    json_hostile,
    write_run,
)
from report.report_values import ArmSpec
from tare.analysis.model import Comparison
from tare.errors import InputError
from tare.report import build_report
from tare.report.page.rendering import unbroken
from tare.report.page.verdicts import arm_sentences
from tare.report.page.words import EMULATED
from tare.report.sections.method import method_of

Quick = tuple[Path, Page, Comparison]
Ended = Literal["stopped", "failed"] | None


def report(folder: Path, **settings: Any) -> tuple[Page, Comparison]:
    write_run(folder, **settings)
    return report_of(folder)


def report_of(folder: Path) -> tuple[Page, Comparison]:
    comparison = comparison_of(folder)
    path = build_report(comparison.runs, comparison, folder, formats=("png", "pdf"))
    return read(path.read_text(encoding="utf-8")), comparison


@pytest.fixture(scope="module")
def quick(tmp_path_factory: pytest.TempPathFactory) -> Quick:
    folder = tmp_path_factory.mktemp("quick")
    page, comparison = report(folder)
    return folder, page, comparison


def test_nothing_is_loaded_from_anywhere(quick: Quick) -> None:
    folder, page, _ = quick
    for address in page.addresses():
        local = address.startswith(("#", "data:,")) or (folder / address).is_file()
        assert local, address
    policy = next(e.attributes["content"] for e in page.of("meta") if "http-equiv" in e.attributes)
    assert policy.startswith("default-src 'none'")
    assert "http:" not in policy and "https:" not in policy


def test_no_tag_that_could_load_is_used(quick: Quick) -> None:
    _, page, _ = quick
    tags = {element.tag for element in page.elements}
    assert not tags & {
        "img",
        "iframe",
        "object",
        "embed",
        "video",
        "audio",
        "source",
        "use",
        "base",
    }
    assert [e.attributes.get("rel") for e in page.of("link")] == ["icon"]


def test_the_page_is_well_formed(quick: Quick) -> None:
    _, page, _ = quick
    assert page.faults == []
    ids = [e.attributes["id"] for e in page.elements if "id" in e.attributes]
    assert len(ids) == len(set(ids))
    for element in page.elements:
        for name in ("aria-labelledby", "aria-describedby"):
            for wanted in element.attributes.get(name, "").split():
                assert wanted in ids
        href = element.attributes.get("href", "")
        if href.startswith("#"):
            assert href[1:] in ids


def test_every_figure_is_named_for_those_who_hear_the_page(quick: Quick) -> None:
    _, page, _ = quick
    pictures = page.of("svg")
    assert len(pictures) >= 6
    assert all(svg.attributes["role"] == "img" for svg in pictures)
    assert len(page.of("desc")) == len(pictures)


def test_figures_follow_the_theme(quick: Quick) -> None:
    _, page, _ = quick
    paints = [
        element.attributes[name]
        for element in page.elements
        for name in ("fill", "stroke")
        if name in element.attributes
    ]
    assert paints
    assert [p for p in paints if p.startswith("#")] == []


def test_the_first_screen_has_the_verdict_and_the_figure(quick: Quick) -> None:
    _, page, comparison = quick
    words = page.words
    assert "Cost compared with bare in typical boots (8 blocks)" in words
    first = words[: words.index("Cost against")]
    sentences = arm_sentences(comparison)
    assert list(sentences) == ["oci", "qemu-pv", "qemu-em"]
    assert sum(len(sentence.split()) for sentence in sentences.values()) <= 80
    for arm, sentence in sentences.items():
        assert arm in first and sentence in first
    why = "/dev/kvm opens, but no guest booted within 20 s. To do: run tare doctor."
    assert f"kvm has no values: {why}" in words


def test_the_page_reports_that_few_blocks_show_little_of_their_order(quick: Quick) -> None:
    _, page, comparison = quick
    assert "8 blocks show a dependence only if it is strong or many metrics agree" in page.words
    of_many = method_of(replace(comparison, blocks=20))
    assert not any("show a dependence only" in line for line in of_many)


def test_files_next_to_the_page_exist_and_are_what_they_claim(quick: Quick) -> None:
    folder, _, _ = quick
    begins = {".svg": b"<svg", ".png": b"\x89PNG", ".pdf": b"%PDF"}
    figures = sorted((folder / "figures").iterdir())
    assert len(figures) >= 3 * 6
    for figure in figures:
        assert figure.read_bytes().startswith(begins[figure.suffix])
        assert figure.stat().st_size > 500
    for table in (folder / "tables").iterdir():
        assert table.suffix in {".csv", ".tex"}
        assert table.stat().st_size > 20


def test_every_figure_and_table_with_an_emulated_arm_says_so(quick: Quick) -> None:
    folder, _, comparison = quick
    arms = comparison.runs[0].emulated_arms
    assert arms
    for figure in (folder / "figures").glob("*.svg"):
        text = figure.read_text()
        if any(arm in text for arm in arms):
            assert EMULATED in text, figure.name
    for table in (folder / "tables").glob("*.tex"):
        for line in table.read_text().splitlines():
            for arm in arms:
                cells = [cell.strip() for cell in line.split("&")]
                assert arm not in cells, (table.name, line)
    for table in (folder / "tables").glob("*.csv"):
        text = table.read_text()
        if any(arm in text for arm in arms):
            assert EMULATED in text, table.name


@pytest.mark.parametrize("ended", [None, "stopped", "failed"])
def test_a_partial_run_says_so_at_the_top(tmp_path: Path, ended: Ended) -> None:
    page, _ = report(tmp_path, blocks=2, ended=ended, series=False)
    assert page.words.index("Partial: ") < page.words.index("Cost against")
    if ended is None:
        assert f"tare resume {tmp_path}" in page.words


def test_the_page_reports_how_scenarios_were_adapted_to_the_host(quick: Quick) -> None:
    folder, _, _ = quick
    page = (folder / "report.html").read_text(encoding="utf-8")
    assert "pinned: 1 cpu-load neighbour to fill a host of 2 CPUs" in page


def test_a_complete_run_is_not_marked_as_partial(quick: Quick) -> None:
    assert "Partial" not in quick[1].words


def test_failed_and_withheld_cells_are_shown_with_reason_and_console(tmp_path: Path) -> None:
    page, _ = report(
        tmp_path,
        blocks=3,
        series=False,
        statuses={2: {("oci", "switch"): "failed"}, 3: {("qemu-pv", "tick"): "withheld"}},
        reason="Kernel panic - not syncing: no init found",
        console=("[    1.2] Kernel panic - not syncing", "[    1.3] ---[ end ]---"),
    )
    assert "2 failed cells" in page.words
    assert "1 withheld cell" in page.words
    assert page.words.count("Kernel panic - not syncing: no init found") >= 2
    assert "[ 1.3] ---[ end ]---" in page.words


def test_all_failed_is_a_report_without_numbers(tmp_path: Path) -> None:
    workloads = ("tick", "switch", "memory-bandwidth", "numeric-sort")
    everything: dict[tuple[str, str], CellStatus] = {
        (arm, cell): "failed" for arm in QUICK for cell in workloads
    }
    page, comparison = report(tmp_path, blocks=1, statuses={1: everything})
    assert comparison.effects == ()
    assert "Nothing was measured: no cell ended well." in page.words
    assert page.faults == []


def test_without_values_of_the_baseline_nothing_is_compared(tmp_path: Path) -> None:
    lost: dict[tuple[str, str], CellStatus] = {("bare", cell): "failed" for cell in
            ("tick", "switch", "memory-bandwidth", "numeric-sort")}  # fmt: skip
    page, _ = report(tmp_path, blocks=2, statuses={1: lost, 2: lost}, series=False, aa=None)
    assert "No comparison: the baseline bare has no values" in page.words
    assert "qemu-pv (emulated)" in page.words


def test_one_block_claims_nothing(tmp_path: Path) -> None:
    page, _ = report(tmp_path, blocks=1)
    assert page.faults == []
    assert "the same as" not in page.words
    assert "costs more than" not in page.words


def test_outside_text_stays_text(tmp_path: Path) -> None:
    evil = hostile()
    arms = {"bare": ArmSpec(), evil: ArmSpec("qemu", cpu=2, reason=evil, versions={evil: evil})}
    page, _ = report(
        tmp_path,
        arms=arms,
        aa=None,
        blocks=2,
        title=evil,
        run=evil,
        statuses={2: {(evil, "tick"): "failed"}},
        reason=json_hostile(),
        console=(json_hostile(), "</pre></details><script>alert(3)</script>"),
    )
    assert page.faults == []
    own = ["application/json", "", "", ""]
    assert [script.attributes.get("type", "") for script in page.of("script")] == own
    assert page.of("img") == []
    assert not any(n.startswith("on") for e in page.elements for n in e.attributes)
    assert "<script>alert(1)</script>" in page.words
    assert "{{7*7}}" in page.words
    assert not re.search("[\x00-\x08\x0b\x0c\x0e-\x1f]", "".join(page.text))
    for address in page.addresses():
        assert address.startswith(("#", "data:,", "figures/", "tables/")), address


def test_very_long_names_and_many_arms(tmp_path: Path) -> None:
    arms = {"bare": ArmSpec()} | {
        f"arm-{i:02d}-" + "very-long-name-" * 4 + str(i): ArmSpec(
            "qemu", cpu=1 + i / 9, latency=1 + i, emulated=i % 3 == 0
        )
        for i in range(1, 12)
    }
    page, comparison = report(tmp_path, arms=arms, aa=None, blocks=3)
    assert page.faults == []
    assert len(comparison.arms) == 12
    for arm in arms:
        assert arm in page.words


def test_a_report_replaces_an_earlier_one(tmp_path: Path) -> None:
    report(tmp_path, blocks=2, series=False)
    before = {path.name for path in (tmp_path / "figures").iterdir()}
    report_of(tmp_path)
    assert {path.name for path in (tmp_path / "figures").iterdir()} == before
    assert not list(tmp_path.glob("*.part"))


def test_an_unwritable_folder_is_an_input_error(tmp_path: Path) -> None:
    write_run(tmp_path / "run", blocks=2, series=False)
    comparison = comparison_of(tmp_path / "run")
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(InputError, match="report cannot be written"):
        build_report(comparison.runs, comparison, tmp_path / "file" / "out")


def test_hyphenated_names_stay_whole_and_escaped() -> None:
    assert unbroken("qemu-pv <b> a") == '<span class="nb">qemu-pv</span> &lt;b&gt; a'
    assert unbroken("x" * 30 + "-y") == "x" * 30 + "-y"
    assert unbroken("By `release` a-b") == 'By <code>release</code> <span class="nb">a-b</span>'


def test_an_unfit_host_is_reported_at_the_top(tmp_path: Path) -> None:
    page, _ = report(tmp_path, blocks=2, series=False, unfit="100% of the CPUs' time is in use")
    first = page.words.index("The host was not fit for measuring (load).")
    assert (
        first < page.words.index("load: 100% of the CPUs' time") < page.words.index("Cost against")
    )


def test_a_run_with_changes_says_how_to_do_just_that_again(tmp_path: Path) -> None:
    changes = ("--host xen1", "--set 'shape={memory: 1GiB}'", "--blocks 2")
    page, _ = report(tmp_path, blocks=2, series=False, changes=changes)
    assert f"{' '.join(changes)} --seed 421337" in page.words
    assert "Changed on the command line" in page.words


def test_a_baseline_under_a_hypervisor_is_reported_with_its_consequence(tmp_path: Path) -> None:
    mark = "in dom0 under Xen, not on the bare machine"
    arms = {**QUICK, "bare": replace(QUICK["bare"], mark=mark)}
    page, _ = report(tmp_path, blocks=2, series=False, arms=arms)
    assert f"The baseline bare ran {mark}; all ratios are to that." in page.words


def test_possible_explanations_are_grouped_over_arms(quick: Quick) -> None:
    words = quick[1].words
    assert "What could explain a result" in words
    assert "kernel.release: 6.1.0-18-amd64 → 6.1.0-18-rt-amd64" in words
    assert re.search(r"All \d+ differences", words)


def test_neighbours_have_tables_and_no_figures(tmp_path: Path) -> None:
    page, _ = report(tmp_path, blocks=2, series=False, neighbour=True)
    assert page.faults == []
    assert "What the neighbours did" in page.words
    names = {path.name for path in (tmp_path / "figures").iterdir()}
    assert not any("neighbour" in name for name in names)
