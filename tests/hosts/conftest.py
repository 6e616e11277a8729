"""A host of either kind: what holds for one must hold for the other."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from hosts.hosts_sshd import Sshd, Way, serving
from tare.hosts import Host, LocalHost
from tare.hosts.ssh.host import SshHost


@pytest.fixture(scope="session")
def shared_sshd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sshd]:
    with serving(tmp_path_factory.mktemp("sshd")) as server:
        yield server


@pytest.fixture(params=["local", "ssh"])
async def host(request: pytest.FixtureRequest, agent_program: Path) -> AsyncIterator[Host]:
    if request.param == "local":
        yield LocalHost(agent_program)
        return
    options = request.getfixturevalue("shared_sshd").options()
    async with SshHost(options, agent_program) as host:
        yield host


@pytest.fixture
def sshd(tmp_path: Path) -> Iterator[Sshd]:
    with serving(tmp_path / "sshd") as server:
        yield server


@pytest.fixture
async def way(sshd: Sshd) -> AsyncIterator[Way]:
    async with Way(sshd.port) as way:
        public = (sshd.folder / "host_key.pub").read_text()
        with sshd.known_hosts.open("a") as known:
            known.write(f"[127.0.0.1]:{way.port} {public}")
        yield way
