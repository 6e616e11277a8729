# ruff: noqa: E501 - domains as libvirt has them
"""A domain, and the command line that libvirt itself makes of it, give the same arm."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import pytest

from platforms.libvirt_embedded import embedded, library
from platforms.test_imported import imported

DISK = (
    "<disk type='{kind}' device='disk'><driver name='qemu' type='{form}' cache='{cache}' io='{io}' "
    "discard='unmap'{more}/><source {source}/><target dev='{dev}' bus='{bus}'/>{boot}</disk>"
)


def disk(bus: str, cache: str, io: str, form: str = "qcow2", more: str = "", boot: str = "") -> str:
    dev = {"virtio": "vda", "scsi": "sda", "sata": "sda", "ide": "hda"}[bus]
    return DISK.format(
        kind="file", form=form, cache=cache, io=io, more=more, boot=boot, bus=bus, dev=dev,
        source="file='/tmp/tare-no-such-disk'",
    )  # fmt: skip


DOMAINS = {
    f"{bus}-{cache}": (
        disk(bus, cache, "native" if cache in ("none", "directsync") else "threads"),
        "q35" if bus != "ide" else "pc",
        "",
    )
    for bus, cache in itertools.product(
        ("virtio", "scsi", "sata", "ide"),
        ("none", "writeback", "writethrough", "directsync", "unsafe"),
    )
} | {
    "queues": (disk("virtio", "none", "io_uring", more=" queues='4' iothread='1'"), "q35", ""),
    "raw": (disk("virtio", "none", "native", form="raw"), "pc", ""),
    "host": (disk("virtio", "none", "native"), "q35", "<cpu mode='host-passthrough' migratable='on'/>"),
    "host-off": (
        disk("virtio", "none", "native"),
        "q35",
        "<cpu mode='host-passthrough' migratable='off'/>",
    ),
    "maximum": (disk("virtio", "none", "native"), "q35", "<cpu mode='maximum'/>"),
    "model": (
        disk("virtio", "none", "native"),
        "pc",
        "<cpu mode='custom' check='none'><model>Haswell</model>"
        "<feature policy='disable' name='rtm'/><feature policy='require' name='pcid'/></cpu>",
    ),
    "hyperv": (
        disk("virtio", "none", "native"),
        "q35",
        "<features><acpi/><hyperv><relaxed state='on'/><vapic state='on'/>"
        "<spinlocks state='on' retries='8191'/><vpindex state='on'/><runtime state='on'/>"
        "<synic state='on'/><stimer state='on'><direct state='on'/></stimer><reset state='on'/>"
        "<frequencies state='on'/></hyperv><kvm><hidden state='off'/><poll-control state='on'/>"
        "<hint-dedicated state='on'/></kvm></features><cpu mode='host-passthrough'/>",
    ),
    "hidden": (
        disk("virtio", "none", "native"),
        "q35",
        "<features><acpi/><kvm><hidden state='on'/></kvm></features><cpu mode='host-passthrough'/>",
    ),
    "timers": (
        disk("virtio", "none", "native"),
        "q35",
        "<clock offset='utc'><timer name='kvmclock' present='no'/>"
        "<timer name='hypervclock' present='yes'/></clock><cpu mode='host-passthrough'/>",
    ),
    "pvspinlock": (
        disk("virtio", "none", "native"),
        "q35",
        "<features><acpi/><apic eoi='on'/><pvspinlock state='off'/></features>"
        "<cpu mode='host-passthrough'/>",
    ),
    "locked": (
        disk("virtio", "none", "native"),
        "q35",
        "<memoryBacking><locked/><allocation mode='immediate'/></memoryBacking>"
        "<memtune><hard_limit unit='GiB'>4</hard_limit></memtune>",
    ),
    "several": (
        disk("virtio", "writeback", "threads")
        + disk("scsi", "none", "native", boot="<boot order='1'/>")
        + "<controller type='scsi' model='virtio-scsi'><driver queues='3' iothread='2'/></controller>",
        "q35",
        "",
    ),
    "topology": (
        disk("virtio", "none", "native"),
        "q35",
        "<cpu mode='host-passthrough'><topology sockets='1' dies='1' cores='2' threads='2'/></cpu>",
    ),
    "tcg": (disk("ide", "writeback", "threads"), "pc", ""),
}  # fmt: skip


def domain(name: str) -> str:
    devices, board, more = DOMAINS[name]
    boot = "<boot dev='hd'/>" if "<boot order" not in devices else ""
    kind = "qemu" if name == "tcg" else "kvm"
    return (
        f"<domain type='{kind}'><name>x-{name}</name><memory unit='MiB'>1536</memory>"
        f"<vcpu current='2'>4</vcpu><iothreads>2</iothreads>{more}<os><type arch='x86_64' "
        f"machine='{board}'>hvm</type>{boot}</os><devices>"
        f"<emulator>/usr/bin/qemu-system-x86_64</emulator>{devices}"
        "<interface type='ethernet'><model type='e1000'/></interface></devices></domain>"
    )


@pytest.fixture(scope="module")
def libvirt() -> Iterator[Any]:
    library()
    with embedded() as uri:
        connection = library().open(uri)
        yield connection
        connection.close()


@pytest.mark.parametrize("name", DOMAINS)
def test_a_domain_and_its_command_line_give_the_same_arm(libvirt: Any, name: str) -> None:
    line = libvirt.domainXMLToNative("qemu-argv", domain(name), 0)
    described, started = imported(domain(name)), imported(line)
    assert described.settings == started.settings
    assert described.name == started.name
