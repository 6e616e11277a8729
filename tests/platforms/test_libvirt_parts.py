"""A domain's XML says what was asked for; what libvirt lacks or refuses is reported."""

from __future__ import annotations

import os
import sys
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from pydantic import ValidationError

from platforms.libvirt_embedded import embedded, library
from tare.errors import MachineFault
from tare.hosts import clean
from tare.platforms.contract import Context, MachineSpec, Prepared, Shape
from tare.platforms.libvirt import platform as platforms
from tare.platforms.libvirt.connection import Connection
from tare.platforms.libvirt.domain import (
    BUSES,
    QEMU_WORDS,
    Files,
    domain_xml,
    expected_disk,
    reported_disk,
    reported_features,
)
from tare.platforms.libvirt.options import PERIOD_US, LibvirtOptions
from tare.platforms.libvirt.platform import Libvirt
from tare.platforms.linux.network import Link
from tare.platforms.machine import SUBJECT
from tare.platforms.qemu.unmet_settings import lacking_switches

FILES = Files(Path("/k"), Path("/i"), Path("/a.sock"), Path("/c.sock"), disk=Path("/d&<.img"))
ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="libvirt's system driver needs root")


@st.composite
def options(draw: st.DrawFn) -> LibvirtOptions:
    settings: dict[str, Any] = {
        "accelerator": draw(st.sampled_from(["tcg", "kvm"])),
        "devices": draw(st.sampled_from(["paravirtual", "emulated"])),
        "machine": draw(st.sampled_from(["q35", "pc"])),
        "cpu": draw(st.none() | st.sampled_from(["maximum", "Haswell"])),
        "disk_cache": draw(st.sampled_from(["none", "writeback", "unsafe", "directsync"])),
        "disk_io": draw(st.sampled_from(["default", "threads", "native", "io_uring"])),
        "iothread": draw(st.booleans()),
        "shares": draw(st.none() | st.integers(2, 262144)),
        "cap": draw(st.none() | st.floats(0.01, 1.0)),
        "hugepages": draw(st.booleans()),
        "disk_bus": draw(st.sampled_from(["auto", *BUSES])),
        "disk_format": draw(st.sampled_from(["raw", "qcow2", "block"])),
        "disk_queues": draw(st.none() | st.integers(1, 64)),
        "cpu_features": draw(st.lists(st.sampled_from(["+avx2", "-aes"]), unique=True)),
        "numa_node": draw(st.none() | st.integers(0, 3)),
        "extra_args": draw(st.sampled_from([[], ["-global", "a,b=<&>"]])),
    }
    try:
        return LibvirtOptions.model_validate(settings)
    except ValidationError:
        assume(False)
        raise


@given(
    options(),
    st.lists(st.integers(0, 255), min_size=1, max_size=4),
    st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cs"]), max_size=20),
)
def test_a_domain_says_what_was_asked_for(
    wanted: LibvirtOptions, pins: list[int], word: str
) -> None:
    assume(word.isprintable())
    shape = Shape(len(pins), 256 << 20)
    link = Link("tap", "10.1.2.3", 24, interface="tare-tap")
    text = domain_xml(
        wanted,
        "tare-x",
        "id",
        shape,
        FILES,
        append=["quiet", word],
        pins=pins,
        link=link,
        tuning=wanted.cpu_tuning(SUBJECT, 2),
    )
    domain = ET.fromstring(text)
    assert domain.get("type") == {"tcg": "qemu", "kvm": "kvm"}[wanted.accelerator]
    assert domain.findtext("memory") == str(256 << 10)
    assert domain.findtext("os/cmdline") == f"quiet {word}"
    placed = [each.get("cpuset") for each in domain.findall("cputune/vcpupin")]
    assert placed == [str(pin) for pin in pins]
    assert domain.findtext("cputune/shares") == (wanted.shares and str(wanted.shares))
    quota = domain.findtext("cputune/quota")
    assert (quota is None) == (wanted.cap is None)
    if wanted.cap is not None:
        assert int(quota or 0) / PERIOD_US == pytest.approx(wanted.cap, abs=1e-5)
    reported = reported_disk(text)
    assert expected_disk(wanted).items() <= reported.items()
    assert ("iothread" in reported) == wanted.iothread
    assert ("queues" in reported) == (wanted.disk_queues is not None)
    source = domain.find("devices/disk/source")
    assert source is not None
    assert source.get("dev" if reported["held"] == "block" else "file") == "/d&<.img"
    assert reported_features(text) == {each[1:]: each[0] == "+" for each in wanted.cpu_features}
    bound = domain.find("numatune/memory")
    assert (None if bound is None else bound.get("nodeset")) == (
        None if wanted.numa_node is None else str(wanted.numa_node)
    )
    passed = domain.findall(f"{{{QEMU_WORDS}}}commandline/{{{QEMU_WORDS}}}arg")
    assert tuple(each.get("value") for each in passed) == wanted.extra_args
    paravirtual = wanted.devices == "paravirtual"
    assert (domain.find("devices/channel") is not None) == paravirtual
    assert len(domain.findall("devices/serial")) == (1 if paravirtual else 2)
    nic = domain.find("devices/interface/model")
    assert nic is not None
    assert nic.get("type") == ("virtio" if paravirtual else "e1000")
    # Libvirt adds by itself what is not switched off.
    for found in ("controller[@type='usb']", "memballoon"):
        added = domain.find(f"devices/{found}")
        assert added is not None
        assert added.get("model") == "none"


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"disk_io": "native", "disk_cache": "writeback"}, "disk-io: native"),
        ({"iothread": True, "devices": "emulated"}, "iothread"),
        ({"cpu": "host-passthrough"}, "accelerator: kvm"),
        ({"disk_bus": "nvme"}, "disk_bus"),
        ({"hugepage_size": "1GiB"}, "needs `hugepages: true`"),
        ({"halt_poll": "0 s"}, "halt-poll needs `accelerator: kvm`"),
        ({"uri": "xen:///system"}, "uri"),
        ({"uri": "qemu+ssh://far/system"}, "uri"),
        ({"shares": 1}, "shares"),
        ({"cap": 0.001}, "cap"),
        ({"shares": 512, "scheduling": {"weight": 50}}, "`shares` or `scheduling: {weight}`"),
        ({"cap": 0.5, "neighbour_scheduling": {"cap": 0.5}}, "`cap` or `scheduling: {cap}`"),
        ({"scheduling": {"nice": 3}}, "`nice` is not supported by libvirt"),
        ({"scheduling": {"slice": "3ms"}}, "`slice` is not supported by libvirt"),
    ],
)
def test_incompatible_settings_are_refused(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        LibvirtOptions.model_validate(settings)


async def test_without_its_library_the_doctor_says_how_to_install_it(
    context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "libvirt", None)
    verdict = await Libvirt().check(context, LibvirtOptions())
    assert not verdict.usable
    assert "pip install 'hypertare[libvirt]'" in verdict.hint


async def test_without_its_daemon_the_doctor_says_so(context: Context, tmp_path: Path) -> None:
    library()
    uri = f"qemu+unix:///system?socket={tmp_path}/nobody.sock"
    verdict = await Libvirt().check(context, LibvirtOptions(uri=uri))
    assert not verdict.usable
    assert uri in verdict.reason
    assert "systemctl start libvirtd" in verdict.hint


async def test_a_host_of_ovirt_s_is_left_to_its_engine(
    context: Context, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(platforms, "VDSM", str(tmp_path))
    verdict = await Libvirt().check(context, LibvirtOptions())
    assert not verdict.usable and "vdsm" in verdict.reason and "ovirt" in verdict.hint


@pytest.fixture
def driver() -> Iterator[str]:
    with embedded() as uri:
        yield uri


@ROOT
async def test_a_cpu_that_is_not_there_makes_a_domain_unusable(
    driver: str, context: Context
) -> None:
    wanted = LibvirtOptions(uri=driver, iothread=True, iothread_cpus=(0, 4095))
    verdict = await Libvirt().check(context, wanted)
    assert verdict.reason == "`iothread-cpus`: the host has no CPU 4095"
    assert not verdict.usable and verdict.hint.startswith("name some of those it has: 0")


@ROOT
def test_the_embedded_driver_is_there_twice() -> None:
    # A second folder was refused, so all classes of tests but a worker's first were skipped.
    with embedded() as first:
        pass
    with embedded() as second:
        assert second == first


@ROOT
@pytest.mark.slow
@pytest.mark.boots
async def test_refusal_of_libvirt_is_reported_and_leaves_nothing(
    driver: str, context: Context, tmp_path: Path
) -> None:
    # Without a control group of CPUs libvirt refuses shares, and says so only when it starts.
    wanted = LibvirtOptions(uri=driver, shares=512)
    kernel = tmp_path / "kernel"
    kernel.write_bytes(b"nothing that boots")
    prepared = Prepared("1", "", True, 0.0, {"kernel": kernel, "initramfs": kernel})
    name = f"tare-test-{os.getpid()}-refused"
    spec = MachineSpec(name, Shape(1, 128 << 20), (), tmp_path / name, False)
    with pytest.raises(MachineFault, match=name):
        await Libvirt().start(context, wanted, prepared, spec)
    assert context.ledger.open_entries() == ()
    assert not spec.workdir.exists()
    # What a Tare that was killed had defined is removed by the ledger's word, and only that.
    connection = Connection(driver, driver)
    await connection.open()
    try:
        shape, uuid = spec.shape, "087429f0-8653-4414-aac1-c8a394a85cd0"
        plain = LibvirtOptions(uri=driver)
        files = Files(kernel, kernel, tmp_path / "a", tmp_path / "c")
        await connection.define(domain_xml(plain, name, uuid, shape, files, append=[]))
        context.ledger.record("libvirt-domain", uri=driver, name="tare-of-another", id=uuid)
        context.ledger.record("libvirt-domain", uri=driver, name="not-of-tare", id=uuid)
        assert await clean(context.host, context.ledger, Libvirt.undoers) == [
            "Left libvirt-domain 087429f0-8653-4414-aac1-c8a394a85cd0: its name does not start "
            "with tare-."
        ]
        assert await connection.why_off(uuid)
        context.ledger.record("libvirt-domain", uri=driver, name=name, id=uuid)
        (messages,) = await clean(context.host, context.ledger, Libvirt.undoers)
        assert messages == f"Removed the domain {name}."
        assert not await connection.has(uuid, name)
    finally:
        await connection.close()


def test_description_names_only_special_settings() -> None:
    wanted = LibvirtOptions(cap=0.5, disk_io="io_uring", emulator_cpus=(1,))
    description = Libvirt().describe(wanted)
    assert "at most 0.5 of a CPU" in description
    assert "disk by io_uring" in description
    assert "emulator on CPUs 1" in description
    wanted = LibvirtOptions(
        disk_bus="virtio-scsi", disk_format="qcow2", extra_args=("-global", "x.y=1"), numa_node=1
    )
    description = Libvirt().describe(wanted)
    for word in (
        "disk on virtio-scsi",
        "disk in a qcow2 file",
        "extra arguments that Tare does not interpret: -global x.y=1",
        "memory of NUMA node 1",
    ):
        assert word in description, (word, description)


async def test_switches_that_the_host_lacks_make_a_domain_unusable(
    context: Context,
) -> None:
    wanted = LibvirtOptions(disk_format="lvm", disk_volume_group="tare-no-such-group")
    problem = await lacking_switches(context.host, wanted.like_qemu)
    assert problem is not None
    assert "disk-format: lvm" in problem[0]
