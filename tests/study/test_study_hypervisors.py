"""Hypervisors of the user's own: named once in the hosts file, else left out in one line."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from study.study_catalog import ABLE, CATALOG, KINDS
from tare.errors import InputError
from tare.registry import installed
from tare.run.catalog import build_catalog
from tare.run.study_cells import named_hypervisors
from tare.study.model.study import Study
from tare.study.planning.host_cpus import HostCpus
from tare.study.planning.plan import HostFacts, make_plan
from tare.study.reading.hosts_file import KnownHosts, load_hosts
from tare.study.reading.load import load_study, parse_study, restore_study
from tare.study.reading.shipped import shipped_studies

STUDY = """\
study: owned
baseline: bare
arms:
  bare: {platform: bare}
  mine: {platform: qemu, yours: true}
  mine-em: {platform: qemu, yours: true, devices: emulated}
  mine-again: {twin-of: mine}
workloads: {tick: {samples: 10}}
"""
MAKERS = ("vsphere", "hyperv", "xenserver", "ovirt", "proxmox", "incus")


def owned(hypervisors: Mapping[str, Any], text: str = STUDY) -> Study:
    known = KnownHosts(Path("h.yaml"), {}, hypervisors)
    return parse_study(text.encode(), "s.yaml", CATALOG, hosts=known)


def test_hypervisors_without_a_name_are_left_out_for_one_reason() -> None:
    study = owned({})
    assert list(study.arms) == ["bare"]
    assert list(study.left_out) == ["mine", "mine-em", "mine-again"]
    plan = make_plan(study, 1, {"bare": ABLE}, {"": HostFacts(HostCpus(online=(0, 1)))}, KINDS)
    assert [skip.arm for skip in plan.skipped] == list(study.left_out)
    (reason,) = {skip.reason for skip in plan.skipped}
    assert reason.startswith("no qemu is named under `hypervisors`")
    stored = study.model_dump(mode="json")
    assert restore_study(stored, CATALOG).model_dump(mode="json") == stored


def test_an_arm_takes_the_options_of_its_hypervisor_and_its_own_go_first() -> None:
    study = owned({"qemu": {"cpu-model": "host", "devices": "paravirtual"}})
    assert not study.left_out
    found = {name: arm.options.model_dump() for name, arm in study.arms.items() if name != "bare"}
    assert [found[name]["cpu_model"] for name in found] == ["host"] * 3
    devices = {name: options["devices"] for name, options in found.items()}
    assert devices == {"mine": "paravirtual", "mine-em": "emulated", "mine-again": "paravirtual"}


@pytest.mark.parametrize(
    ("hypervisors", "says"),
    [
        ({"qemu": {"cpu-modl": "x"}}, "h.yaml: hypervisors.qemu.cpu-modl: unknown key"),
        ({"qemu": {"cpu-model": 3}}, "h.yaml: hypervisors.qemu.cpu-model: must be text"),
        ({"qemu": "vcenter"}, "h.yaml: hypervisors.qemu: must be keys with values"),
        ({"qemuu": {}}, 'h.yaml: hypervisors.qemuu: there is no platform "qemuu"; did you mean'),
    ],
)
def test_fault_there_is_reported_with_file_and_key(hypervisors: dict[str, Any], says: str) -> None:
    with pytest.raises(InputError) as caught:
        owned(hypervisors)
    assert says in caught.value.message
    assert "s.yaml:5:" in caught.value.message


def test_wrong_arms_and_baselines_are_reported() -> None:
    with pytest.raises(InputError, match="there is no platform"):
        owned({}, STUDY.replace("mine: {platform: qemu", "mine: {platform: qemuu"))
    with pytest.raises(InputError, match="yours: must be true or false"):
        owned({}, STUDY.replace("yours: true,", "yours: please,"))
    with pytest.raises(InputError, match="baseline: no qemu is named"):
        owned({}, STUDY.replace("baseline: bare", "baseline: mine"))


def test_hosts_file_names_them_along_with_its_hosts(tmp_path: Path) -> None:
    file = tmp_path / "h.yaml"
    file.write_text("a: {ssh: a.example}\nhypervisors: {vsphere: {address: vc.example}}\n")
    known = load_hosts(file)
    assert list(known.hosts) == ["a"]
    assert known.hypervisors == {"vsphere": {"address": "vc.example"}}
    file.write_text("hypervisors: [vsphere]\n")
    with pytest.raises(InputError, match=r"h\.yaml:1:14: hypervisors: must be platforms"):
        load_hosts(file)


@pytest.mark.parametrize(
    "name", ["quick", "realtime", "realtime-long", "components", "interference", "knobs"]
)
def test_studies_name_every_makers_hypervisor(name: str, tmp_path: Path) -> None:
    path, catalog = shipped_studies()[name], build_catalog()
    without = load_study(path, catalog)
    assert len(set(without.left_out.values())) == 1
    study = load_study(path, catalog, hosts=named_hypervisors(tmp_path / "h.yaml"))
    assert not study.left_out
    # An arm with a shape of its own brings a baseline of that shape.
    own = {arm for arm in study.arms if not arm.startswith(f"{study.baseline}@")}
    assert own == {*without.arms, *without.left_out}
    platforms = {arm.platform for arm in study.arms.values()}
    assert platforms >= {*MAKERS, "libvirt", "qemu", "oci", "xen", "bare"}


NO_SHIPPED_ARM = {
    ("oci", "crun"): "`oci` takes the first of crun and runc that works",
    ("oci", "runc"): "the same",
    ("oci", "rootless"): "it has no disk, no network and no real-time priority to compare",
    ("libvirt", "tcg"): "the emulator of `qemu` once more: it would show nothing new",
    ("hyperv", "generation 2"): "each maker has two arms; the hosts file takes `generation: 2`",
    ("incus", "vm emulated"): "the same, with `accelerator: tcg`",
    ("incus", "container"): "the same, with `type: container`",
    ("bare-live", ""): "it takes a medium of its owner's, and a computer without a host",
}
"""The ways to use a platform that no study has which comes with Tare, and why."""
OWNERS = {"address", "datastore", "ssh", "medium"}
"""Options that locate an owner's machines."""


def test_every_way_to_use_a_platform_is_in_a_study_or_has_a_reason(tmp_path: Path) -> None:
    catalog, hosts = build_catalog(), named_hypervisors(tmp_path / "h.yaml")
    arms = [
        (arm.platform, arm.options.model_dump())
        for path in shipped_studies().values()
        for arm in load_study(path, catalog, hosts=hosts).arms.values()
    ]
    missing = set()
    for platform in installed().platforms.values():
        for variant in platform.variants:
            wanted = {
                key.replace("-", "_"): value
                for key, value in variant.options.items()
                if key not in OWNERS
            }
            used = (
                name == platform.name and wanted.items() <= given.items() for name, given in arms
            )
            if not any(used):
                missing.add((platform.name, variant.name))
    assert missing == set(NO_SHIPPED_ARM)
