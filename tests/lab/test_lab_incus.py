"""LXD and Incus in a lab: Debian's own daemons, over their sockets by SSH; VMs under KVM."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pytest
import pytest_asyncio

from lab.lab_inside import OWN, PATIENCE_S, Inside, inside
from platforms.incus_daemon import image_of, own_address
from platforms.vendor_served import started
from tare.images.live.image import make_live_image
from tare.lab.options import GIB, LabOptions
from tare.platforms.contract import Capabilities, Context, MachineSpec, Shape
from tare.platforms.incus.instance import project_of
from tare.platforms.incus.options import IncusOptions
from tare.platforms.incus.platform import Incus
from tare.platforms.incus.session import logged_in
from tare.study.model.releases import Release
from tare.testing.conformance import PlatformCases
from tare.testing.hosts import SecondHost
from tare.testing.machines import Machines, RunningMachine

pytestmark = [
    pytest.mark.guest,
    pytest.mark.slow,
    pytest.mark.boots,
    pytest.mark.acceptance,
    pytest.mark.timeout(2400),
    pytest.mark.asyncio(loop_scope="module"),
]

POOL, BRIDGE, ADDRESS = "test", "taretest0", "10.213.7.1"
LEASES = "10.213.7.10,10.213.7.99"
# The lab's emulator ends where a guest of KVM's writes CR8 while an interrupt waits for it, as
# UEFI's firmware does (`tare help lab`). With the APIC in QEMU, KVM takes such writes for itself.
IN_USER_SPACE = {
    "raw.qemu": "-cpu host,kvm-asyncpf-int=off",
    "raw.qemu.conf": '[machine]\nkernel_irqchip = "off"\n',
}
THREADS = (
    "for name in $(grep -lx qemu-system-x86 /proc/[0-9]*/comm); do "
    "grep -h Cpus_allowed_list ${name%comm}task/*/status; done"
)
"""Prints where each thread of a VM's QEMU may run."""
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
    way = IncusOptions(image="x").connection()
    async with logged_in(lab.host, way) as session:
        return await session.ask(method, path, body)


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
async def serving(product: Product, folder: Path, agent: Path) -> AsyncIterator[tuple[Inside, str]]:
    """Hold a lab in which a server with a pool runs, and an address that its machines may dial."""
    address = own_address()
    with socket.socket() as taken:
        taken.bind((address, 0))
        port = int(taken.getsockname()[1])
    options = LabOptions("kvm", memory=3 * GIB, release=product.release, packages=product.packages)
    async with inside(options, folder, agent, "generic") as lab:
        # As systemd and the packages' scripts have it elsewhere: containers are limited by all that
        # the kernel controls, and have users of their own.
        await lab.sh("echo +cpuset +cpu +memory +pids +io >/sys/fs/cgroup/cgroup.subtree_control")
        await lab.sh("for ids in uid gid; do echo root:1000000:1000000000 >/etc/sub$ids; done")
        await lab.sh(f"setsid {product.daemon} >/var/log/daemon 2>&1 </dev/null &")
        await lab.sh(f"{product.ready} || {{ tail -20 /var/log/daemon; exit 1; }} >&2")
        await ask(lab, "POST", "/1.0/storage-pools", {"name": POOL, "driver": "dir"})
        # The lab's network is closed: the test forwards what machines dial there.
        await lab.sh(
            f"ip address add {address}/32 dev lo; setsid socat TCP-LISTEN:{port},bind={address},"
            f"fork,reuseaddr TCP:127.0.0.1:{port} >/dev/null 2>&1 </dev/null &"
        )
        with carried_back(lab, address, port):
            yield lab, f"{address}:{port}"


async def furnish_for_vms(lab: Inside, folder: Path) -> None:
    """Give a server in a lab what its VMs need: a network, and the live image."""
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
        agent=lab.here.agent,
        cache=lab.here.cache,
        say=print,
    )
    content = await asyncio.to_thread(image_of, made.file, folder)
    found = await ask(lab, "POST", "/1.0/images", content)
    alias = {"name": "tare-live", "target": found["fingerprint"]}
    await ask(lab, "POST", "/1.0/images/aliases", alias)


async def nothing_is_left(lab: Inside) -> None:
    """See that of Tare's neither the ledger nor the server holds anything."""
    assert not lab.context.ledger.open_entries()
    instances = await ask(lab, "GET", "/1.0/instances?all-projects=true")
    projects = await ask(lab, "GET", "/1.0/projects")
    assert (instances, len(projects)) == ([], 1)


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
    platform = Incus()
    async with serving(product, tmp_path, agent_program) as (lab, callback):
        await furnish_for_vms(lab, tmp_path)
        options = IncusOptions.model_validate(
            {"image": "tare-live", "network": BRIDGE, "callback": callback}
            | {"secure_boot": False, "extra_config": IN_USER_SPACE}
        )
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
        await nothing_is_left(lab)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def of_incus(
    agent_program: Path, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[tuple[Inside, str]]:
    """A lab with Incus, which need have nothing for VMs; and what its containers dial."""
    async with serving(INCUS, tmp_path_factory.mktemp("incus"), agent_program) as found:
        yield found
        await nothing_is_left(found[0])


class Containers(PlatformCases):
    platform = Incus()
    options = IncusOptions()
    chosen: ClassVar[dict[str, object]] = {}
    patience_s = PATIENCE_S
    killed_words = "Incus says that it is Stopped"
    lab: ClassVar[Inside]

    @pytest.fixture(scope="class", autouse=True)
    @classmethod
    def server(cls, of_incus: tuple[Inside, str]) -> None:
        cls.lab, callback = of_incus
        settings = {"type": "container", "callback": callback, **cls.chosen}
        cls.options = IncusOptions.model_validate(settings)

    @pytest.fixture(scope="class")
    @classmethod
    def context(cls, of_incus: tuple[Inside, str]) -> Context:
        return of_incus[0].context

    @pytest_asyncio.fixture(scope="class", loop_scope="module")
    @classmethod
    async def elsewhere(cls, context: Context) -> AsyncIterator[SecondHost | None]:
        yield None

    @classmethod
    def cpus(cls, context: Context, able: Capabilities) -> tuple[int, ...]:
        return (OWN,)

    async def kill(self, running: RunningMachine) -> None:
        """End the container from outside, as its owner does."""
        name = running.spec.name
        path = f"/1.0/instances/{name}/state?project={project_of(name)}"
        await ask(self.lab, "PUT", path, {"action": "stop", "timeout": 30, "force": True})


class TestIncusContainers(Containers):
    async def test_the_server_is_incus(self, machines: Machines) -> None:
        applied = (await machines.subject()).machine.applied["hypervisor"]
        assert applied["product"] == "Incus"


class TestIncusContainersCapped(Containers):
    chosen: ClassVar[dict[str, object]] = {"privileged": True, "scheduling": {"cap": 0.5}}

    async def test_the_kernel_caps_it(self, machines: Machines) -> None:
        running = await machines.subject()
        path = f"/1.0/instances/{running.spec.name}/state?project={project_of(running.spec.name)}"
        pid = (await ask(self.lab, "GET", path))["pid"]
        shown = await self.lab.sh(
            f"group=$(sed -n s/^0:://p /proc/{pid}/cgroup); "
            'while [ "$group" != / ]; do cat "/sys/fs/cgroup$group/cpu.max"; '
            'group=$(dirname "$group"); done'
        )
        quotas = [line.split() for line in shown.splitlines() if not line.startswith("max")]
        assert [int(quota) / int(period) for quota, period in quotas] == [0.5]
