"""The tuning section: what to change with its commands, what not, and what is not decided."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from analysis.analysis_simulate import SimulatedMetric, SimulatedRun, events_of, write_run
from report.report_page_reader import read
from tare.analysis.data.load import load_runs
from tare.analysis.effects.compare import compare
from tare.events import Event, RunStarted, Skipped
from tare.report import build_report
from tare.report.page.data import ReportData
from tare.report.sections.tuning import TuningData, TuningSection
from tare.report.sections.tuning_commands import commands_for
from tare.run.catalog import build_catalog
from tare.study.reading.load import load_study

STUDIES = Path(__file__).parents[2] / "studies"
STUDY = """\
study: settings
baseline: bare
arms:
  bare: {platform: bare}
  kvm: {platform: qemu, accelerator: kvm, disk-aio: threads}
matrix:
  alone:
    arm: kvm
    settings:
      disk-aio: [threads, native, io_uring]
      disk-cache: [none, unsafe]
      hugepages: [false, true]
      guest-mitigations: [default, off]
  disk:
    arm: kvm
    design: full
    settings:
      disk-aio: [threads, io_uring]
      iothread: [false, true]
workloads: {tick: {}}
"""
TRUTH = {
    "bare": 0.5,
    "kvm": 1.0,
    "kvm.disk-aio-native": 0.80,
    "kvm.disk-aio-io_uring": 1.20,
    "kvm.disk-cache-unsafe": 1.0,
    "kvm.guest-mitigations-off": 1.0,
    "kvm.iothread-true": 1.0,
    "disk-04": 0.9,
}


def written(folder: Path, blocks: int = 10) -> Path:
    """Write a run whose settings have known effects; huge pages were skipped."""
    file = folder / "settings.yaml"
    folder.mkdir(parents=True, exist_ok=True)
    file.write_text(STUDY)
    study = load_study(file, build_catalog())
    run = SimulatedRun(
        metrics=[SimulatedMetric("latency", TRUTH, spreads=(0.004, 0.001))],
        arms=dict.fromkeys(TRUTH, "qemu"),
        emulated=frozenset(),
        blocks=blocks,
    )
    events: list[Event] = []
    for event in events_of(run):
        if isinstance(event, RunStarted):
            stored = study.model_dump(mode="json")
            events.append(event.model_copy(update={"study": {**event.study, **stored}}))
            events.append(Skipped(arm="kvm.hugepages-true", reason="this host has no huge pages"))
        else:
            events.append(event)
    return write_run(folder / "run", events)


def section_of(run: Path) -> TuningData:
    runs = load_runs([run])
    data = TuningSection().data(ReportData(runs, compare(runs)))
    assert data is not None
    return data


def rows(data: TuningData, name: str) -> dict[str, dict[str, str]]:
    """Return a table's rows by their change."""
    [table] = [table for table in data.tables if table.name == name]
    texts = [table.texts_of(row) for row in table.rows]
    return {text.get("change") or text["changes"]: text for text in texts}


def test_the_section_separates_what_to_change_from_what_not(tmp_path: Path) -> None:
    data = section_of(written(tmp_path))
    change = rows(data, "tuning-change")["disk-aio: threads → native"]
    assert change["gain"].startswith("tick latency −20 % (−")
    assert "aio=native" in change["qemu"]
    assert "io='native'" in change["libvirt"]
    assert change["proxmox"] == "qm set VMID --scsi0 STORAGE:VOLUME,aio=native"
    assert "Needs cache none" in change["risk"]
    avoid = rows(data, "tuning-avoid")
    assert avoid["disk-cache: none → unsafe"]["why"] == "no metric changes by more than 2 %"
    undecided = rows(data, "tuning-undecided")
    assert undecided["hugepages: false → true"]["why"] == (
        "not measured: this host has no huge pages"
    )
    assert "disk-aio: threads → native" in data.lead


def test_an_interaction_names_both_changes(tmp_path: Path) -> None:
    data = section_of(written(tmp_path))
    assert ", averaged over disk-aio, which it depends on)" in data.lead
    assert rows(data, "tuning-change")["iothread: false → true"]["depends"] == "disk-aio"
    [together] = rows(data, "tuning-interactions").values()
    assert together["changes"] == "disk-aio: threads → io_uring and iothread: false → true"
    # 0.9 with both, 1.2 and 1.0 with one each: the second is worth 25 % more with the first.
    assert together["together"].startswith("tick latency −25 %")


def test_few_blocks_recommend_nothing(tmp_path: Path) -> None:
    data = section_of(written(tmp_path, blocks=3))
    assert data.change is None and data.avoid is None
    assert "preliminary" in data.lead
    why = rows(data, "tuning-undecided")["disk-aio: threads → native"]["why"]
    assert why.startswith("3 blocks, 6 are needed; so far tick latency −20 %")


def test_the_page_shows_the_section_and_its_plan(tmp_path: Path) -> None:
    run = written(tmp_path)
    runs = load_runs([run])
    path = build_report(runs, compare(runs), tmp_path / "out", formats=())
    html = path.read_text(encoding="utf-8")
    page = read(html)
    assert any(each.attributes.get("id") == "tuning" for each in page.of("h2"))
    assert "4 settings of kvm, one at a time" in html
    assert "qm set VMID --scsi0 STORAGE:VOLUME,aio=native" in html


def test_a_study_without_matrices_has_no_section(tmp_path: Path) -> None:
    run = SimulatedRun(metrics=[SimulatedMetric("latency", {"bare": 1.0})], arms={"bare": "bare"})
    runs = load_runs([write_run(tmp_path, events_of(run))])
    assert TuningSection().data(ReportData(runs, compare(runs))) is None


@pytest.mark.parametrize("name", ["tuning", "tuning-short"])
def test_every_setting_of_the_studies_has_commands(name: str) -> None:
    study = load_study(STUDIES / f"{name}.yaml", build_catalog())
    assert yaml.safe_load((STUDIES / f"{name}.yaml").read_text())["matrix"].keys() == (
        study.designs.keys()
    )
    for design in study.designs.values():
        for setting in design.settings:
            for value in setting.values[1:]:
                commands = commands_for(value)
                assert all(commands), (setting.name, value)
                assert "not known to Tare" not in commands.risk, (setting.name, value)


def test_commands_of_several_keys_are_one_text() -> None:
    found = commands_for({"enlightenments": {"kvm": False, "hyperv": True}})
    assert found.libvirt == (
        "<features> <kvm> <hidden state='on'/>; <features> <hyperv mode='passthrough'/>"
    )
    assert commands_for({"nothing": 1}).qemu == "see `tare study nothing`"
