"""VMs of LXD and of Incus under KVM in a lab: Debian's own daemons, over their sockets by SSH."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from lab.lab_inside import OWN, Inside, inside
from platforms.incus_daemon import image_of
from platforms.vendor_served import started
from tare.images.live.image import make_live_image
from tare.lab.options import GIB, LabOptions
from tare.platforms.contract import MachineSpec, Shape
from tare.platforms.incus.options import IncusOptions
from tare.platforms.incus.platform import Incus
from tare.platforms.incus.session import logged_in
from tare.study.releases import Release

pytestmark = [
    pytest.mark.guest,
    pytest.mark.slow,
    pytest.mark.boots,
    pytest.mark.acceptance,
    pytest.mark.timeout(2400),
]

POOL, BRIDGE, ADDRESS = "test", "taretest0", "10.213.7.1"
LEASES = "10.213.7.10,10.213.7.99"
# The lab's emulator ends where a guest of KVM's writes CR8 while an interrupt waits for it, as
# UEFI's firmware does (docs/lab.md). With the APIC in QEMU, KVM takes such writes for itself.
IN_USER_SPACE = {
    "raw.qemu": "-cpu host,kvm-asyncpf-int=off",
    "raw.qemu.conf": '[machine]\nkernel_irqchip = "off"\n',
}
THREADS = (
    "for name in $(grep -lx qemu-system-x86 /proc/[0-9]*/comm); do "
    "grep -h Cpus_allowed_list ${name%comm}task/*/status; done"
)
"""Tells where each thread of a VM's QEMU may run."""
BOOT_S = 900.0
UP_S = 120.0
VMS = (
    *("ovmf", "ipxe-qemu", "qemu-system-common", "qemu-utils"),
    *("dnsmasq-base", "libdbus-1-3", "socat"),
)
"""What both want for VMs with a network: QEMU's modules are kept whole, and dnsmasq wants D-Bus."""


@dataclass(frozen=True)
class Product:
    """One of the two, as Debian has it: packages, how its daemon starts, and what waits for it."""

    release: Release
    packages: tuple[str, ...]
    daemon: str
    ready: str


LXD = Product(
    "bookworm",
    ("lxd", "lxd-client", *VMS),
    "env LXD_OVMF_PATH=/usr/share/OVMF lxd --group root",
    f"lxd waitready --timeout {UP_S:.0f}",
)
INCUS = Product(
    "trixie",
    ("incus", "incus-base", "incus-client", "qemu-system-modules-spice", *VMS),
    "env INCUS_EDK2_PATH=/usr/share/OVMF INCUS_OVMF_PATH=/usr/share/OVMF "
    "PATH=/usr/libexec/incus:$PATH /usr/libexec/incus/incusd --group root",
    f"/usr/libexec/incus/incusd waitready --timeout {UP_S:.0f}",
)


async def ask(lab: Inside, method: str, path: str, body: Any = None) -> Any:
    """Return what the server in the lab answers."""
    way = IncusOptions(image="x").way()
    async with logged_in(lab.host, way) as session:
        return await session.ask(method, path, body)


def own_address() -> str:
    """Return an address of this computer that is not its loopback's."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as found:
        try:
            found.connect(("192.0.2.1", 9))
        except OSError:
            pytest.skip("this computer has no network but its loopback")
        return str(found.getsockname()[0])


@contextlib.contextmanager
def carried_back(lab: Inside, address: str, port: int) -> Iterator[None]:
    """Carry a port of the lab's loopback to one of this computer, by ssh."""
    places = lab.lab.places
    options = {"UserKnownHostsFile": places.known_hosts, "ExitOnForwardFailure": "yes"}
    words = [word for key, value in options.items() for word in ("-o", f"{key}={value}")]
    way = f"127.0.0.1:{port}:{address}:{port}"
    reach = ["-F", "none", "-i", str(places.key), *words, "-p", str(lab.lab.port)]
    process = subprocess.Popen(["ssh", "-N", "-R", way, *reach, "root@127.0.0.1"])
    try:
        yield
    finally:
        process.terminate()
        process.wait()


@asynccontextmanager
async def serving(
    product: Product, folder: Path, agent: Path, address: str, port: int
) -> AsyncIterator[Inside]:
    """Hold a lab in which a server runs, with a pool, a network and the live image."""
    options = LabOptions("kvm", memory=3 * GIB, release=product.release, packages=product.packages)
    async with inside(options, folder, agent, "generic") as lab:
        await lab.sh(f"setsid {product.daemon} >/var/log/daemon 2>&1 </dev/null &")
        await lab.sh(f"{product.ready} || {{ tail -20 /var/log/daemon; exit 1; }} >&2")
        await ask(lab, "POST", "/1.0/storage-pools", {"name": POOL, "driver": "dir"})
        # As udev has it elsewhere: a VM's QEMU opens it as nobody.
        await lab.sh("chmod 666 /dev/net/tun")
        # A bridge of the host's: for one of its own the server wants a firewall for IPv6, and the
        # lab's kernel has no modules for that.
        await lab.sh(
            f"ip link add {BRIDGE} type bridge; ip address add {ADDRESS}/24 dev {BRIDGE}; "
            f"ip link set {BRIDGE} up; dnsmasq --user=root --port=0 --interface={BRIDGE} "
            f"--bind-interfaces --dhcp-range={LEASES} --dhcp-leasefile=/run/leases"
        )
        made = await make_live_image(
            lab.here.host,
            folder / "live.iso",
            kernel="generic",
            toolbox=None,
            words=(),
            agent=agent,
            cache=lab.here.cache,
            say=print,
        )
        content = await asyncio.to_thread(image_of, made.file, folder)
        found = await ask(lab, "POST", "/1.0/images", content)
        alias = {"name": "tare-live", "target": found["fingerprint"]}
        await ask(lab, "POST", "/1.0/images/aliases", alias)
        # The lab's network is closed: what VMs dial there is carried out of it by the test.
        await lab.sh(
            f"ip address add {address}/32 dev lo; setsid socat TCP-LISTEN:{port},bind={address},"
            f"fork,reuseaddr TCP:127.0.0.1:{port} >/dev/null 2>&1 </dev/null &"
        )
        with carried_back(lab, address, port):
            yield lab


@pytest.mark.parametrize(
    "product",
    [
        pytest.param(LXD, id="lxd"),
        # Seen with 6.0.4, on a computer with much else to do: its server made the VM.
        pytest.param(
            INCUS,
            id="incus",
            marks=pytest.mark.skip(
                reason="Incus gives the start of its VM up in the lab: context deadline exceeded"
            ),
        ),
    ],
)
async def test_a_vm_boots_under_kvm_is_measured_and_leaves_nothing(
    product: Product, agent_program: Path, tmp_path: Path
) -> None:
    address = own_address()
    with socket.socket() as taken:
        taken.bind((address, 0))
        port = int(taken.getsockname()[1])
    platform = Incus()
    options = IncusOptions.model_validate(
        {"image": "tare-live", "network": BRIDGE, "callback": f"{address}:{port}"}
        | {"secure_boot": False, "extra_config": IN_USER_SPACE}
    )
    async with serving(product, tmp_path, agent_program, address, port) as lab:
        verdict = await platform.check(lab.context, options)
        assert verdict.usable, f"{verdict.reason}; {verdict.hint}"
        name = lab.spec().name
        spec = MachineSpec(name, Shape(1, 512 << 20), (OWN,), Path("/tmp") / name, False)
        machine = await lab.lab.while_alive(started(platform, lab.context, options, spec))
        try:
            hello = await lab.lab.while_alive(machine.ready(BOOT_S))
            assert hello.role == "init"
            assert hello.proof["hypervisor"]["signatures"] == ["KVMKVMKVM"]
            assert f"Cpus_allowed_list:\t{OWN}" in (await lab.sh(THREADS)).splitlines()
            work = await machine.agent.run("numeric-sort", {"seconds": 0.2}, deadline_s=60)
            assert work.value["iterations_per_s"] > 0
        finally:
            await machine.stop()
        assert not lab.context.ledger.open_entries()
        instances = await ask(lab, "GET", "/1.0/instances?all-projects=true")
        projects = await ask(lab, "GET", "/1.0/projects")
        assert (instances, len(projects)) == ([], 1)
