"""A lab's own files are named with their digests, and CPUs that share others are marked."""

from __future__ import annotations

import hashlib
import itertools
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tare.lab.command import LabPaths, command
from tare.lab.emulator import Emulator, emulator_in
from tare.lab.image import LabImage
from tare.lab.options import LabOptions
from tare.registry import installed
from tare.report.sections.provenance import flat
from tare.run.hosts.assumed import assumed_host
from tare.run.hosts.booted import mark_of, marks
from tare.run.hosts.lab import lab_cpus, lab_crowding, lab_facts, lab_grown, lab_name
from tare.study.model.releases import RELEASES
from tare.study.planning.host_cpus import HostCpus
from tare.study.reading.hosting import HostSpec, LabSpec


def lab(**given: Any) -> LabSpec:
    return LabSpec.model_validate(given)


def test_own_files_are_in_the_facts_that_the_report_shows(tmp_path: Path) -> None:
    program = tmp_path / "qemu"
    program.write_bytes(b"#!/bin/sh\n")
    program.chmod(0o755)
    facts = lab_facts(lab(qemu=str(program), xen="rtds"))
    digest = hashlib.sha256(b"#!/bin/sh\n").hexdigest()
    shown = dict(flat({"lab": facts}))
    assert shown["lab.qemu.sha256"] == digest
    assert shown["lab.qemu.file"] == str(program)
    # That one has no file before it is built; its digest comes with the first boot.
    assert "xen" not in facts
    assert lab_facts(lab()).keys() == {"cpus", "memory", "deterministic"}


def test_labs_that_differ_in_a_file_have_other_names(tmp_path: Path) -> None:
    program = tmp_path / "qemu"
    program.write_bytes(b"")
    program.chmod(0o755)
    own = lab(qemu=str(program))
    assert lab_name(lab()) == "lab of 2 CPUs, 4 GiB"
    assert len({lab_name(lab()), lab_name(own), lab_name(lab(xen="rtds"))}) == 3


def test_the_lab_is_emulated_by_its_own_qemu_and_boots_its_own_xen(tmp_path: Path) -> None:
    image = LabImage(tmp_path, "d", "6.1", "4.17", {}, (), True, 0.0, own_xen=tmp_path / "mine")
    options = LabOptions("xen", qemu="/opt/qemu", xen="/x/xen")
    emulator = Emulator("7.2.22", program=options.qemu)
    argv = command(options, image, LabPaths(tmp_path), "tare-a", emulator)
    assert argv[0] == "/opt/qemu"
    assert argv[argv.index("-kernel") + 1] == str(tmp_path / "mine")


def test_nodes_and_packages_are_in_a_labs_name_and_facts_where_there_are_any() -> None:
    more = lab(cpus=4, nodes=2, packages=["lvm2", "attr"])
    assert lab_name(more) == "lab of 4 CPUs, 4 GiB, 2 NUMA nodes, with attr, lvm2"
    assert (lab_facts(more)["nodes"], lab_facts(more)["packages"]) == (2, ["attr", "lvm2"])
    assert lab_name(lab(dom0_cpus=2)) == "lab of 2 CPUs, 4 GiB, 2 CPUs for dom0"
    assert lab_facts(lab(dom0_cpus=2))["dom0_cpus"] == 2
    # Plans place machines by the nodes that its kernel will report.
    assert lab_cpus(more).nodes == {0: 0, 1: 0, 2: 1, 3: 1}


@given(st.integers(1, 64), st.integers(1, 64))
def test_more_cpus_than_there_are_mark_all_arms(cpus: int, here: int) -> None:
    own = HostCpus(online=tuple(range(here)))
    sentences = lab_crowding(lab(cpus=cpus), own)
    assert bool(sentences) == (cpus > here)
    assert not sentences or (f"{cpus} emulated CPUs" in sentences and f"share {here} " in sentences)


@pytest.mark.parametrize("cpus", [2, 4])
def test_a_plan_marks_what_runs_crowded(cpus: int) -> None:
    own = HostCpus(online=(0, 1))
    host = assumed_host(HostSpec.model_validate("lab"), lab(cpus=cpus), installed().platforms, own)
    assert host.crowding == lab_crowding(lab(cpus=cpus), own)


def test_another_release_reboots_a_lab_but_not_bare() -> None:
    platforms = installed().platforms
    host = assumed_host(HostSpec.model_validate("lab"), lab(), platforms, HostCpus(online=(0,)))
    found = {}
    for name, release in itertools.product(("bare", "qemu", "xen", "oci"), RELEASES):
        options = host.platforms[name].options
        asked = options.model_validate({"accelerator": "kvm"} if name == "qemu" else {})
        found[name, release] = host.boot_of(host.platforms[name], asked, release)
        assert host.boot_of(host.platforms[name], asked) == found[name, release].partition("@")[0]
    assert found["bare", "bookworm"] == found["bare", "trixie"] == "itself"
    assert found["qemu", "trixie"] == found["oci", "trixie"] == "kvm@trixie"
    assert found["xen", "bookworm"] == "xen@bookworm"


def test_an_emulator_of_another_release_is_marked_and_a_hypervisor_is_not() -> None:
    qemu, xen = (installed().platforms[name] for name in ("qemu", "xen"))
    emulated, boots = qemu.options.model_validate({"accelerator": "tcg"}), "kvm@trixie"
    assert "emulator of Debian 13 (trixie)" in mark_of(qemu, emulated, boots, "", ())
    assert mark_of(qemu, emulated, "kvm", "", ()) == ""
    for other in ({"accelerator": "kvm"}, None):
        where, options = (xen, xen.options()) if other is None else (qemu, qemu.options(**other))
        assert mark_of(where, options, boots, "", ()) == ""


def test_versions_booted_of_each_release_are_in_the_reports_facts() -> None:
    known = lab_facts(lab(release="bookworm"))
    for release, version in (("bookworm", "4.17"), ("trixie", "4.20"), ("trixie", "4.20")):
        image = LabImage(Path(), "d", "6.1", version, {"xen": version}, (), True, 0.0)
        known = lab_grown(known, release, image)
    shown = dict(flat({"lab": known}))
    assert shown["lab.release"] == "bookworm"
    assert (shown["lab.releases.bookworm.xen"], shown["lab.releases.trixie.xen"]) == (
        "4.17",
        "4.20",
    )
    assert lab_grown({"cpus": 2}, "", image) == {"cpus": 2}
    assert lab_name(lab(release="trixie")) != lab_name(lab())


def test_the_emulators_version_is_read_as_qemu_says_it() -> None:
    text = "QEMU emulator version 7.2.22 (Debian 1:7.2+dfsg-7+deb12u18)\nCopyright (c) 2003-2022"
    assert emulator_in(text).version == "7.2.22"


def test_several_marks_are_joined() -> None:
    assert marks("", "") == ""
    assert marks("in dom0", "") == "in dom0"
    assert marks("in dom0", "on 4 that share 2") == "in dom0 and on 4 that share 2"
