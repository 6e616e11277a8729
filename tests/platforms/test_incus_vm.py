"""A VM of Debian's LXD or Incus boots the live image, emulated, dials back and is measured.

What this computer may lack of what these want for VMs is played; see :mod:`platforms.incus_daemon`.
"""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import pytest
import pytest_asyncio

from images.live_guest import make_disc
from platforms.incus_daemon import (
    POOL,
    asked,
    image_of,
    killed_words,
    left_in,
    served,
    way_of,
)
from platforms.vendor_served import started
from tare.hosts.trace.threads import allowed_cpus
from tare.platforms.contract import Context, MachineSpec, Shape
from tare.platforms.incus.instance import project_of
from tare.platforms.incus.options import IncusOptions
from tare.platforms.incus.platform import Incus
from tare.run.topologies.peers import Peer, connected
from tare.testing.conformance import PlatformCases
from tare.testing.hosts import SecondHost
from tare.testing.machines import RunningMachine

BRIDGE, ADDRESS = "taretest0", "10.213.7.1"
BOOT_S = 900.0
WITHOUT_VSOCK = {"raw.qemu.conf": '[device "qemu_vsock"]\n'}

pytestmark = [
    pytest.mark.slow,
    pytest.mark.guest,
    pytest.mark.acceptance,
    pytest.mark.timeout(2400),
    pytest.mark.skipif(
        any(shutil.which(tool) is None for tool in ("xorriso", "mcopy", "qemu-img", "dnsmasq")),
        reason="xorriso, mtools, qemu-utils or dnsmasq-base is not installed",
    ),
]


@pytest.fixture(scope="module")
def folder(agent_program: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A server with a network, and with the live image as a VM's."""
    here = tmp_path_factory.mktemp("image")
    content = image_of(make_disc(agent_program, here / "live.iso", "base"), here)
    with served(led=True) as server:
        config = {
            "ipv4.address": f"{ADDRESS}/24",
            "ipv4.nat": "false",
            "ipv4.firewall": "false",
            "ipv6.address": "none",
        }
        way = way_of(server)
        asked(way, "POST", "/1.0/networks", {"name": BRIDGE, "type": "bridge", "config": config})
        found = asked(way, "POST", "/1.0/images", content)
        alias = {"name": "tare-live", "target": found["fingerprint"]}
        asked(way, "POST", "/1.0/images/aliases", alias)
        try:
            yield server
            assert left_in(server) == []
            assert len(asked(way, "GET", "/1.0/images")) == 1
        finally:
            asked(way, "DELETE", f"/1.0/networks/{BRIDGE}")


def options_of(folder: Path) -> IncusOptions:
    return IncusOptions.model_validate(
        {
            "socket": str(folder / "unix.socket"),
            "image": "tare-live",
            "pool": POOL,
            "network": BRIDGE,
            "callback": f"{ADDRESS}:0",
            "accelerator": "tcg",
            "secure_boot": False,
            "extra_config": WITHOUT_VSOCK,
        }
    )


class TestIncusVms(PlatformCases):
    platform = Incus()
    options = IncusOptions()
    patience_s = BOOT_S
    way: ClassVar[dict[str, Any]]

    @pytest.fixture(scope="class", autouse=True)
    @classmethod
    def server(cls, folder: Path) -> None:
        cls.way, cls.options = way_of(folder), options_of(folder)
        cls.killed_words = killed_words()

    @pytest_asyncio.fixture(scope="class", loop_scope="module")
    @classmethod
    async def elsewhere(cls, context: Context) -> AsyncIterator[SecondHost | None]:
        yield None

    async def kill(self, running: RunningMachine) -> None:
        """End the VM from outside, as its owner does."""
        name = running.spec.name
        path = f"/1.0/instances/{name}/state?project={project_of(name)}"
        body = {"action": "stop", "timeout": 10, "force": True}
        await asyncio.to_thread(asked, self.way, "PUT", path, body)


@pytest.mark.parametrize("secure", [False, True], ids=["", "secure-boot"])
async def test_a_vcpu_is_where_the_kernel_says_and_what_is_there_of_virtio(
    folder: Path, context: Context, tmp_path: Path, secure: bool
) -> None:
    platform, options = Incus(), options_of(folder).model_copy(update={"secure_boot": secure})
    name, last = f"tare-test-{os.getpid()}-subject", context.host.topology().online[-1]
    spec = MachineSpec(name, Shape(1, 512 << 20), (last,), tmp_path / "w", False)
    machine = await started(platform, context, options, spec)
    try:
        hello = await machine.ready(BOOT_S)
        assert hello.role == "init"
        assert {nic["driver"] for nic in hello.proof["nics"]} == {"virtio_net"}
        # LXD has it among its logs, Incus in a folder `run`.
        (pid_file,) = folder.glob("*/*/qemu.pid")
        threads = Path(f"/proc/{pid_file.read_text().strip()}/task").iterdir()
        allowed = [await allowed_cpus(context.host, int(thread.name)) for thread in threads]
        assert (last,) in allowed
        # Both products leave that to an agent of theirs in the guest.
        assert await machine.host_cost() == {}
    finally:
        await machine.stop()
    assert context.ledger.open_entries() == ()


async def test_two_vms_exchange_packets_over_an_isolated_network(
    folder: Path, context: Context, tmp_path: Path
) -> None:
    platform, options = Incus(), options_of(folder)
    shape = Shape(1, 512 << 20)
    async with AsyncExitStack() as held:
        joining = connected([context], platform, options, several=False)
        connection = await held.enter_async_context(joining)
        assert connection.own_ends
        machines = []
        for role in ("subject", "peer"):
            name = f"tare-test-{os.getpid()}-{role}"
            spec = MachineSpec(name, shape, (), tmp_path / role, False, role=role)
            spec = replace(spec, network=connection.network, way=connection.way)
            machine = await started(platform, context, options, spec)
            held.push_async_callback(machine.stop)
            machines.append(machine)
        for hello in await asyncio.gather(*(each.ready(BOOT_S) for each in machines)):
            about = hello.proof["network"]
            assert (about["error"], about["driver"]) == (None, "virtio_net")
        subject, other = machines
        await Peer(other, connection.network).prove(subject, (1.0, 5.0))
    assert context.ledger.open_entries() == ()
    assert not list((folder / "networks").glob("tare-*"))
