"""What `tare import` prints is a study that runs unchanged: it is read back and planned."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from platforms.test_imported import DOMAIN, OVF, PINNED, PROXMOX, WORDS, imported
from platforms.test_imported_sources import FIRECRACKER, KUBEVIRT, RICH, SEVERAL, VMX, XL
from run.run_driving import tare
from study.shipped_studies import assumed
from tare.platforms.imported.arm import Arm, Room, room_here
from tare.run.catalog import build_catalog
from tare.study.model.study import Study
from tare.study.planning.host_cpus import HostCpus
from tare.study.planning.plan import HostFacts, Plan, make_plan
from tare.study.reading.load import parse_study
from tare.workloads import WORKLOADS

GIB = 1 << 30
SOURCES = {
    "libvirt": DOMAIN,
    "rich": RICH,
    "several": SEVERAL,
    "pinned": PINNED,
    "qemu": WORDS,
    "shortest": "qemu-system-x86_64",
    "proxmox": PROXMOX,
    "smallest": "smbios1: uuid=7b10d7af-b932-4c66-b2c3-3996152ec465\n",
    "ovf": OVF,
    "xl": XL,
    "vmx": VMX,
    "firecracker": json.dumps(FIRECRACKER),
    "kubevirt": KUBEVIRT,
    "large": "cores: 64\nsockets: 2\nmemory: 4194304\nscsi0: local:1/d.raw,size=8T\n",
    "bare": "name: bare\ncores: 1\nmemory: 512\n",
}
ROOMS = {
    "small": Room(frozenset({0}), 2 * GIB),
    "ours": Room(frozenset({0, 1}), 24 * GIB, kvm=False),
    "large": Room(frozenset(range(256)), 8192 * GIB, frozenset({0, 1})),
    "sparse": Room(frozenset({1, 5, 7}), 16 * GIB, frozenset({1})),
}


def read_back(text: str) -> Study:
    return parse_study(text.encode(), "imported.yaml", build_catalog())


def planned(study: Study, room: Room) -> Plan:
    cpus = len(room.cpus)
    # Whether a host has the hypervisor is its own matter, and not the study's.
    facts = {arm: replace(assumed(study, arm, cpus), usable=True) for arm in study.arms}
    hosts = {name: HostFacts(HostCpus(tuple(sorted(room.cpus)))) for name in study.computers}
    return make_plan(study, 1, facts, hosts, WORKLOADS)


@pytest.mark.parametrize("room", ROOMS.values(), ids=ROOMS)
@pytest.mark.parametrize("text", SOURCES.values(), ids=SOURCES)
def test_the_printed_study_is_read_back_and_planned(text: str, room: Room) -> None:
    arm = imported(text)
    study = read_back(arm.study(room))
    plan = planned(study, room)
    assert plan.skipped == () and {batch.arm for batch in plan.batches} == set(study.arms)
    assert study.baseline == "bare" and len(study.arms) == 3
    # One shape for all, which the host has.
    shapes = {study.shape_of(name) for name in study.arms}
    assert len(shapes) == 1
    shape = shapes.pop()
    assert 1 <= shape.vcpus <= len(room.cpus) and shape.memory <= room.memory
    mine = next(
        each
        for name, each in study.arms.items()
        if not name.startswith("bare") or name == "bare-vm"
    )
    assert mine.platform == arm.settings["platform"]


def test_all_that_the_machine_has_is_in_the_study_where_the_host_has_it() -> None:
    arm = imported(PROXMOX)
    study = yaml.safe_load(arm.study(ROOMS["large"]))
    assert study["shape"] == {"vcpus": 4, "memory": "8GiB", "disk": "1GiB"}
    assert study["arms"]["mail"] == {
        key: held for key, held in arm.settings.items() if key != "shape"
    }
    assert "disk" in study["workloads"]


def test_features_missing_on_this_host_are_listed_first() -> None:
    text = imported(SOURCES["large"]).study(ROOMS["ours"])
    notes = text[: text.index("study:")]
    assert "the machine has 128 vCPUs and this host 2 CPUs: all arms have 2" in notes
    assert "`shape: {vcpus: 128}`" in notes and "`shape: {memory: 4TiB}`" in notes
    assert "this host has no KVM" in notes
    far = imported(DOMAIN).study(ROOMS["ours"])
    assert "`numa-node: 1` is left out" in far and "this host has no CPU 2, 3" in far
    # 4 GiB of huge pages of 2 MiB.
    assert "echo 2048 > /sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages" in far
    assert "NOTE" not in imported(SOURCES["smallest"]).study(ROOMS["large"])


def test_a_machine_without_a_disk_has_none_in_the_study() -> None:
    study = yaml.safe_load(imported(SOURCES["smallest"]).study(ROOMS["ours"]))
    assert "disk" not in study["shape"] and "disk" not in study["workloads"]


def test_the_host_here_has_room() -> None:
    room = room_here()
    assert room.cpus and room.memory > 1 << 28 and room.nodes


@given(
    st.builds(
        lambda vcpus, memory, disk, pinned: (vcpus, memory, disk, pinned),
        st.integers(1, 4096),
        st.integers(32 << 20, 1 << 45),
        st.none() | st.integers(32 << 20, 1 << 45),
        st.booleans(),
    ),
    st.integers(1, 64),
)
def test_any_size_is_a_study(machine: tuple[int, int, int | None, bool], cpus: int) -> None:
    vcpus, memory, disk, pinned = machine
    shape: dict[str, Any] = {"vcpus": vcpus, "memory": memory}
    if disk is not None:
        shape["disk"] = disk
    settings = {"platform": "qemu", "accelerator": "kvm", "shape": shape}
    arm = Arm("x", settings, (), pinned, has_disk=disk is not None)
    room = Room(frozenset(range(cpus)), 1 << 32)
    study = read_back(arm.study(room))
    assert study.shape_of("x").vcpus == min(vcpus, cpus)
    assert planned(study, room).skipped == ()


def test_the_command_prints_a_study_and_the_plan_takes_it(tmp_path: Path) -> None:
    source, study = tmp_path / "101.conf", tmp_path / "study.yaml"
    source.write_text("cores: 1\nmemory: 512\nkvm: 0\nnet0: virtio=AA,bridge=vmbr0\n")
    done = tare("import", source)
    assert (done.returncode, done.stderr) == (0, "")
    study.write_text(done.stdout)
    plan = tare("plan", study)
    assert plan.returncode == 0, plan.stderr
    # Proxmox calls a machine without a name by its number.
    assert "vm101: QEMU" in plan.stdout
    alone = tare("import", "--arm-only", source)
    assert alone.returncode == 0 and set(yaml.safe_load(alone.stdout)) == {"arms"}
    assert "# Not carried over:" in done.stdout and "# Not carried over:" in alone.stdout
