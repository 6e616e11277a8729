"""Where an arm and its baseline have different shapes, the report says so first."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

from analysis.analysis_runs import run
from tare.analysis import compare_runs
from tare.analysis.model import Comparison
from tare.report.sections.provenance import run_facts

SMALL = {"vcpus": 1, "memory": 256 << 20, "disk": 0}
LARGE = {"vcpus": 4, "memory": 8 << 30, "disk": 0}


def shaped(vm: dict[str, Any] | None, **more: Any) -> Comparison:
    (one,) = run(1).runs
    study = copy.deepcopy(dict(one.study)) | {"shape": SMALL, **more}
    study["arms"]["vm"]["shape"] = vm
    return compare_runs(replace(one, study=study))


def test_another_shape_than_the_baselines_is_the_first_note() -> None:
    assert shaped(LARGE).notes[0] == (
        "vm has 4 vCPUs and 8 GiB of memory, its baseline bare 1 vCPU and 256 MiB of memory: the "
        "effects of the platform and of the machine's size cannot be separated."
    )


def test_equal_shapes_add_no_note() -> None:
    assert not any("cannot be separated" in note for note in shaped(None).notes)
    assert not any("cannot be separated" in note for note in shaped(SMALL).notes)


def test_the_facts_state_one_shape_only_where_there_is_one() -> None:
    facts = dict(run_facts(shaped(None).runs))
    assert facts["shape of each machine"] == "1 vCPU and 256 MiB of memory"
    facts = dict(run_facts(shaped(LARGE).runs))
    assert "shape of each machine" not in facts
    assert facts["shape of bare and bare-again"] == "1 vCPU and 256 MiB of memory"
    assert facts["shape of vm"] == "4 vCPUs and 8 GiB of memory"
