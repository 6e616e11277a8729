"""Every platform that runs on this computer passes the cases that extensions pass."""

from __future__ import annotations

import os
import shutil
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
import pytest_asyncio

from hosts.hosts_namespaces import sshd_inside
from tare.hosts import Ledger, LocalHost
from tare.hosts.ssh.host import SshHost
from tare.images.cache import default_cache
from tare.platforms.bare import Bare
from tare.platforms.contract import Context
from tare.platforms.oci.options import OciOptions
from tare.platforms.oci.platform import Oci
from tare.platforms.qemu.options import QemuOptions
from tare.platforms.qemu.platform import Qemu
from tare.testing.conformance import PlatformCases
from tare.testing.hosts import SecondHost, second_host

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="disks and networks need root")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def far(
    tmp_path_factory: pytest.TempPathFactory, agent_program: Path
) -> AsyncIterator[SecondHost]:
    """A second host with a network of its own, over SSH."""
    folder = tmp_path_factory.mktemp("far")
    with Ledger(folder / "here") as ledger:
        here = Context(LocalHost(agent_program), ledger, default_cache(), agent_program)
        async with second_host(here, folder / "there") as there:
            assert there is not None
            with sshd_inside(there, folder) as server:
                async with SshHost(server.options(), agent_program) as host:
                    noted = Ledger(folder / "afar", host=host.name, boot=host.boot_id)
                    with noted:
                        yield SecondHost(replace(there, host=host, ledger=noted))


class TestBare(PlatformCases):
    platform = Bare()
    killed_words = "killed by signal 9"

    @pytest.fixture(scope="class")
    @classmethod
    def elsewhere(cls, far: SecondHost) -> SecondHost:
        return far


@pytest.mark.container
@pytest.mark.skipif(not shutil.which("runc"), reason="runc is not installed")
class TestOci(PlatformCases):
    platform = Oci()
    killed_words = "was killed (SIGKILL)"


@pytest.mark.container
@pytest.mark.skipif(not shutil.which("runc"), reason="runc is not installed")
class TestRootless(PlatformCases):
    platform = Oci()
    options = OciOptions(rootless=True)
    killed_words = "was killed (SIGKILL)"


@pytest.mark.container
@pytest.mark.skipif(not shutil.which("runsc"), reason="runsc is not installed")
class TestGvisor(PlatformCases):
    platform = Oci()
    options = OciOptions(runtime="runsc")
    killed_words = "was killed"


@pytest.mark.guest
@pytest.mark.slow
@pytest.mark.boots
class TestQemu(PlatformCases):
    platform = Qemu()
    killed_words = "QEMU was killed by SIGKILL"


@pytest.mark.guest
@pytest.mark.acceptance
class TestUring(PlatformCases):
    platform = Qemu()
    options = QemuOptions(disk_aio="io_uring", disk_cache="writeback", iothread=True)
    killed_words = "QEMU was killed by SIGKILL"


@pytest.mark.guest
@pytest.mark.acceptance
class TestMicrovm(PlatformCases):
    platform = Qemu()
    options = QemuOptions(machine="microvm")
    killed_words = "QEMU was killed by SIGKILL"
