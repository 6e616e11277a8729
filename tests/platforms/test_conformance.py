"""Every platform that runs on this computer passes the cases that extensions pass."""

from __future__ import annotations

import os
import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from hosts.hosts_sshd import Sshd
from tare.hosts import Ledger
from tare.hosts.ssh.host import SshHost
from tare.images.cache import default_cache
from tare.platforms.bare import Bare
from tare.platforms.contract import Context
from tare.platforms.oci.platform import Oci
from tare.platforms.qemu.platform import Qemu
from tare.testing.conformance import PlatformCases

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="disks and networks need root")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def far(
    tmp_path_factory: pytest.TempPathFactory, agent_program: Path
) -> AsyncIterator[Context]:
    """This computer once more, as a second host: over SSH."""
    folder = tmp_path_factory.mktemp("sshd")
    server = Sshd(folder)
    server.start()
    try:
        async with SshHost(server.options(), agent_program) as host:
            with Ledger(folder / "ledger", host=host.name, boot=host.boot_id) as ledger:
                yield Context(host, ledger, default_cache(), agent_program)
    finally:
        server.stop()


class TestBare(PlatformCases):
    platform = Bare()
    killed_words = "killed by signal 9"

    @pytest.fixture(scope="class")
    @classmethod
    def elsewhere(cls, far: Context) -> Context:
        return far


@pytest.mark.container
@pytest.mark.skipif(not shutil.which("runc"), reason="runc is not installed")
class TestOci(PlatformCases):
    platform = Oci()
    killed_words = "was killed (SIGKILL)"


@pytest.mark.guest
@pytest.mark.slow
class TestQemu(PlatformCases):
    platform = Qemu()
    killed_words = "QEMU was killed by SIGKILL"
