"""What a source states of two of its machines, and what a run has of two like them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import ValidationError

from tare.analysis.data.load import load_runs
from tare.analysis.effects.compare import compare
from tare.analysis.model import Comparison
from tare.errors import InputError
from tare.events import (
    BlockFinished,
    BlockStarted,
    CellFinished,
    CellStarted,
    EventLog,
    Observed,
    PlatformChecked,
    RunFinished,
    RunStarted,
)
from tare.events.metric import Better, Kind
from tare.references.printed import Fact
from tare.references.published import Reference, parse_reference
from tare.references.shares import AS_STATED
from tare.references.stated import Stated, stated
from tare.report.sources.stated import run_value_text, statement

ARMS = {
    "bare": {"platform": "bare", "options": {}},
    "kvm": {"platform": "qemu", "options": {"accelerator": "kvm"}},
    "xen": {"platform": "xen", "options": {"type": "hvm"}},
}
RATES = {"bare": 4.0, "kvm": 3.0, "xen": 2.4}
"""Xen's rate is 20 % below KVM's, and KVM's 25 % above Xen's: 22.2 % apart by their mean."""
GROWTH = {5e9: 1.0, 25e9: 1.5, 90e9: 7.0}
"""How much further apart Xen is where more is read; 90 GB are more than the source had."""
RATE = {"workload": "net-stream", "metric": "bandwidth"}
DATA = {"data": "5 GB", "data_to": "25 GB", "workload": "dfsio", "metric": "read-time"}
FACTS: dict[str, dict[str, Any]] = {
    "below": {"value": 0.2, "arm": "xen", "than": "kvm", "share": "below", **RATE},
    "above": {"value": 0.25, "arm": "kvm", "than": ["xen", "gone"], "share": "above", **RATE},
    "apart": {"value": 0.22, "than": ["xen", "kvm", "gone"], "share": "difference", **RATE},
    "times": {"value": 1.25, "arm": "kvm", "than": "xen", **RATE},
    "lost": {"value": 0.2, "arm": "gone", "than": "kvm", "share": "below", **RATE},
    "other": {"value": 0.2, "arm": "xen", "than": "kvm", "workload": "bonnie", "metric": "seeks"},
    "longest": {
        "value": 2,
        "arm": "xen",
        "than": "kvm",
        "workload": "tick",
        "metric": "excess-max",
    },
    "grown": {"value": 0.5, "arm": "xen", "than": "kvm", "share": "above", **DATA},
}
SOURCE = {
    "reference": "apart",
    "title": "Two hypervisors",
    "authors": ["Nobody"],
    "published": "never",
    "studies": ["components"],
    "arms": {
        "kvm": {"label": "KVM", "counterparts": [{"platform": "qemu", "accelerator": "kvm"}]},
        "xen": {"label": "Xen", "counterparts": [{"platform": "xen", "type": "hvm"}]},
        "gone": {"label": "Gone", "counterparts": [{"platform": "vsphere"}]},
    },
    "scenarios": {"one": {"number": 1, "subject": "any", "any_place": True, "vcpus": 1}},
    "facts": {
        name: {"section": "1", "unit": "1", "scenario": "one", "says": name, **fact}
        for name, fact in FACTS.items()
    },
}
TEXT = yaml.safe_dump(SOURCE, sort_keys=False)


def write_run(folder: Path, blocks: int) -> Comparison:
    folder.mkdir()
    with EventLog(folder / "events.jsonl") as log:
        study = {
            "study": "apart",
            "title": "Not measured",
            "baseline": "bare",
            "blocks": {"least": blocks, "most": blocks},
            "confidence": 0.95,
            "shape": {"vcpus": 1, "memory": 1 << 28},
            "arms": ARMS,
            "scenarios": {"alone": {"subject": {"cpus": "pinned"}, "neighbours": []}},
            "workloads": {name: {"workload": name} for name in ("net-stream", "tick", "dfsio")},
        }
        log.append(
            RunStarted(
                run="invented-1", study=study, study_path="", study_sha256="0" * 64, seed=1,
                host={"cpus": 2}, versions={},
            )
        )  # fmt: skip
        for arm, spec in ARMS.items():
            platform = str(spec["platform"])
            log.append(PlatformChecked(arm=arm, platform=platform, options={}, usable=True))
        for block in range(1, blocks + 1):
            log.append(BlockStarted(block=block, order=()))
            for arm in ARMS:
                # A block's common effect is not a difference of arms; the rest is small.
                own = 1 + 0.3 * block + (0.004 * (-1) ** block if arm == "xen" else 0.0)
                cell(log, block, arm, "net-stream", {}, "bandwidth", "B/s", RATES[arm] * own)
                cell(log, block, arm, "tick", {}, "excess-max", "s", own / RATES[arm])
                for size, growth in GROWTH.items():
                    took = growth if arm == "xen" else 1.0
                    cell(log, block, arm, "dfsio", {"size": size}, "read-time", "s", took * own)
            log.append(BlockFinished(block=block))
        log.append(RunFinished(status="complete", wall_s=1.0))
    return compare(load_runs([folder]))


def cell(
    log: EventLog,
    block: int,
    arm: str,
    workload: str,
    parameters: dict[str, Any],
    metric: str,
    unit: str,
    value: float,
) -> None:
    inside = ",".join(f"{key}={each}" for key, each in parameters.items())
    name = f"b{block:03d}/{arm}/alone/{workload}[{inside}]"
    log.append(
        CellStarted(
            cell=name, block=block, arm=arm, scenario="alone", workload=workload,
            parameters=parameters,
        )
    )  # fmt: skip
    kind: Kind = "maximum" if metric.endswith("max") else "typical"
    better: Better = "higher" if unit == "B/s" else "lower"
    log.append(Observed(cell=name, metric=metric, unit=unit, better=better, kind=kind, value=value))
    log.append(CellFinished(cell=name, status="ok"))


@pytest.fixture(scope="module")
def reference() -> Reference:
    return parse_reference(TEXT.encode(), "apart.yaml")


@pytest.fixture(scope="module")
def stated_by_name(
    reference: Reference, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Stated]:
    run = write_run(tmp_path_factory.mktemp("run") / "run", 8)
    return {each.name: each for each in stated(run, reference)}


@pytest.mark.parametrize(
    ("name", "truth"), [("below", 0.2), ("above", 0.25), ("apart", -2 / 9), ("times", 1.25)]
)
def test_a_runs_arms_are_compared_as_the_source_compares_its_own(
    stated_by_name: dict[str, Stated], name: str, truth: float
) -> None:
    """Blocks grow threefold; within each the two arms differ by the truth, and little else."""
    (one,) = stated_by_name[name].between
    assert one.value == pytest.approx(truth, abs=2e-3)
    assert one.ends is not None and one.ends[0] < one.value < one.ends[1]
    assert one.ends[0] <= truth <= one.ends[1] and one.ends[1] - one.ends[0] < 0.02
    assert one.blocks == 8


def test_stated_and_measured_shares_use_the_same_words(
    stated_by_name: dict[str, Stated],
) -> None:
    text = statement(stated_by_name["below"], is_empty=False)
    assert text.startswith("Stated in section 1: below: 20 % (Xen against KVM, one). This run: ")
    assert "net-stream bandwidth in alone: xen against kvm 20 % (" in text
    assert "kvm ÷ xen 1.25× (1.25× to 1.25×)" in run_value_text(stated_by_name["times"])
    assert "xen against kvm −22.2 % (−22." in run_value_text(stated_by_name["apart"])


def test_an_arm_that_a_run_lacks_is_the_reason(stated_by_name: dict[str, Stated]) -> None:
    assert (
        run_value_text(stated_by_name["lost"])
        == "nothing: Gone: this run has no arm with platform: vsphere"
    )
    assert stated_by_name["other"].why.startswith("this run measured no bonnie seeks in one")
    assert set(stated_by_name["above"].own) == {"kvm ÷ xen"}


def test_the_longest_value_of_all_has_no_interval(stated_by_name: dict[str, Stated]) -> None:
    (one,) = stated_by_name["longest"].between
    assert one.value == pytest.approx(1.25, abs=0.01) and one.ends is None
    assert "xen ÷ kvm 1.25× (of the longest of all)" in run_value_text(stated_by_name["longest"])


def test_over_a_range_of_data_it_is_the_mean_of_the_sizes_in_it(
    stated_by_name: dict[str, Stated],
) -> None:
    (one,) = stated_by_name["grown"].between
    assert one.value == pytest.approx((1.0 * 1.5) ** 0.5 - 1, abs=2e-3)


def test_too_few_blocks_have_no_interval(reference: Reference, tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", 2)
    found = {each.name: each for each in stated(run, reference)}
    (one,) = found["below"].between
    assert one.ends is None and one.value == pytest.approx(0.2, abs=5e-3)
    assert "xen against kvm 20 % (of 2 blocks, too few for an interval)" in run_value_text(
        found["below"]
    )


@pytest.mark.parametrize("share", AS_STATED)
def test_a_share_goes_one_way_with_the_quotient(share: str) -> None:
    made = [AS_STATED[share](ratio) for ratio in (0.1, 0.5, 1.0, 1.5, 9.0)]
    assert made in (sorted(made), sorted(made, reverse=True))
    assert made[2] == (0.0 if share else 1.0)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"share": "below"}, "goes with `than`"),
        ({"share": "below", "than": "kvm", "arm": "xen", "unit": "B/s"}, "goes with `than`"),
        ({"than": "kvm"}, "`than` needs `arm`"),
    ],
)
def test_a_share_that_cannot_be_is_refused(change: dict[str, object], why: str) -> None:
    given = {
        "section": "1", "value": 1, "unit": "1", "says": "x", "scenario": "one",
        "workload": "net-stream", "metric": "bandwidth", **change,
    }  # fmt: skip
    if given["unit"] == "B/s":
        given["value"] = "1 MB/s"
    with pytest.raises(ValidationError, match=why):
        Fact.model_validate(given)


def test_an_arm_that_the_source_lacks_is_reported() -> None:
    with pytest.raises(InputError, match="is not an arm; did you mean"):
        parse_reference(TEXT.replace("- gone", "- gon", 1).encode(), "x.yaml")
