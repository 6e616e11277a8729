from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema  # type: ignore[import-untyped]
import pytest
import yaml

from study.study_catalog import CATALOG, GOOD
from tare.cli.study import schema
from tare.run.catalog import build_catalog
from tare.run.reference import generated
from tare.study.model.study import WorkloadSpec
from tare.study.reading.load import load_study, restore_study
from tare.study.reference.pages import render_markdown
from tare.study.reference.schema import Schema, study_schema

ROOT = Path(__file__).parents[2]
STUDIES = sorted((ROOT / "studies").glob("*.yaml"))
REAL = build_catalog()
SHORT = {
    "components-smoke",
    "hypervisors-short",
    "interference-smoke",
    "load-balancer-short",
    "mapreduce-smoke",
    "nested-smoke",
    "realtime-long",
}
"""Studies that warn: of too few blocks, or of no A/A pair, which would exceed twenty minutes."""


SCHEMA = study_schema(CATALOG)


@pytest.fixture(scope="module")
def real_schema() -> Schema:
    return study_schema(REAL)


def faults(schema: Any, study: object) -> list[str]:
    return [error.message for error in jsonschema.Draft7Validator(schema).iter_errors(study)]


def test_the_command_prints_the_schema(
    real_schema: Schema, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    schema()
    printed = capsys.readouterr().out
    assert json.loads(printed) == real_schema
    schema(tmp_path / "study.schema.json")
    assert (tmp_path / "study.schema.json").read_text(encoding="utf-8") == printed


def test_the_committed_reference_is_current() -> None:
    committed = (ROOT / "docs" / "reference" / "study.md").read_text(encoding="utf-8")
    assert committed == generated()["study.md"], "run `make docs`"


@pytest.mark.parametrize("path", STUDIES, ids=lambda path: path.stem)
def test_every_study_that_is_shipped_loads_and_fits_the_schema(
    path: Path, real_schema: Schema
) -> None:
    study = load_study(path, REAL)
    assert bool(study.warnings) == (path.stem in SHORT)
    assert restore_study(json.loads(study.model_dump_json()), REAL) == study
    assert faults(real_schema, yaml.safe_load(path.read_text())) == []


def test_the_quick_study_is_what_it_promises() -> None:
    study = load_study(ROOT / "studies" / "quick.yaml", REAL)
    assert study.blocks.least >= 8
    assert study.aa == ("bare", "bare-again")
    assert {arm.platform for arm in study.arms.values()} == {
        "bare",
        "oci",
        "qemu",
        "libvirt",
        "firecracker",
        "cloud-hypervisor",
        "xen",
    }


def test_no_parameter_hides_behind_a_key_of_every_workload() -> None:
    for name, model in REAL.workloads.items():
        assert not set(model.model_fields) & set(WorkloadSpec.model_fields), name


def test_every_option_and_parameter_says_what_it_means() -> None:
    for name, model in {**REAL.platforms, **REAL.workloads}.items():
        for field, info in model.model_fields.items():
            assert info.description, f"{name}.{field}"


def test_the_schema_is_a_schema_and_takes_a_good_study() -> None:
    jsonschema.Draft7Validator.check_schema(SCHEMA)
    assert faults(SCHEMA, yaml.safe_load(GOOD)) == []


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("accelerator:", "accelerater:"),
        ("accelerator: tcg", "accelerator: tgc"),
        ("platform: qemu", "platform: qmu"),
        ("{platform: bare}", "{platform: bare, accelerator: tcg}"),
        ("{twin-of: bare}", "{}"),
        ("baseline:", "baselin:"),
        ("vcpus", "vcpu"),
        ("samples: 200", "samples: many"),
        ("samples: 200", "samples: []"),
        ("samples:", "sample:"),
        ("  tick:", "  tik:"),
        ("workload: tick", "workload: tik"),
        ("workload: tick", "workload: phased-load"),
        ("  tick: {samples: 200, busy: 100us}", "  phased-load: {}"),
        ("workload: tick,", "workload: tick, threads: 3,"),
        ("load: cpu-load", "load: cpu-laod"),
        ("cpus: same", "cpus: here"),
        ("100us", "100 fortnights"),
        ("  qemu-pv:", "  Qemu PV:"),
    ],
)
def test_the_schema_refuses_what_the_loader_refuses(old: str, new: str) -> None:
    text = GOOD.replace("shape: {memory: 512MiB}", "shape: {vcpus: 2}")
    assert old in text
    assert faults(SCHEMA, yaml.safe_load(text.replace(old, new, 1)))


def test_the_reference_names_every_key_with_its_default() -> None:
    text = render_markdown(CATALOG, {})
    for line in (
        "| `twin-of` | text |",
        "| `memory` | size | `256 MiB` |",
        "| `busy` | duration | `68 µs` | Length of the busy loop. |",
        "| `cpu-model` | text | `max` |",
        "| `accelerator` | `tcg`, `kvm` | `tcg` |",
        "| `count` | whole number or `fill` | `1` |",
        "| `baseline` | text | *required* |",
    ):
        assert line in text
