"""A machine that exists passes the cases that every platform passes; sshd here stands for it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from hosts.hosts_sshd import Sshd
from platforms.loopback_cases import LoopbackCases
from tare.platforms.ssh.options import SshArmOptions
from tare.platforms.ssh.platform import Ssh
from tare.testing.machines import RunningMachine

pytestmark = [
    pytest.mark.slow,
    pytest.mark.boots,
    pytest.mark.skipif(os.geteuid() != 0, reason="disks need root"),
]


def options_for(server: Sshd, **more: object) -> SshArmOptions:
    return SshArmOptions.model_validate(
        {
            "ssh": "127.0.0.1",
            "user": "root",
            "port": server.port,
            "known_hosts": str(server.known_hosts),
            "key": str(server.user_key),
            **more,
        }
    )


class TestSsh(LoopbackCases):
    platform = Ssh()
    options = SshArmOptions.model_validate({"ssh": "set-by-the-fixture"})
    killed_words = "was killed by signal 9"

    @pytest.fixture(scope="class", autouse=True)
    @classmethod
    def machine(cls, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sshd]:
        server = Sshd(tmp_path_factory.mktemp("sshd"))
        server.start()
        cls.options = options_for(server, folder=str(server.folder), network_way="given")
        try:
            yield server
        finally:
            server.stop()
            # The agent was taken back, each time.
            assert not list(server.folder.glob("tare-*"))

    async def kill(self, running: RunningMachine) -> None:
        """Kill the agent in the machine: the process with the machine's folder for its log."""
        for entry in Path("/proc").glob("[0-9]*/fd/2"):
            try:
                log = entry.readlink()
            except OSError:
                continue
            if log.parent == running.spec.workdir and log.name == "console.log":
                os.kill(int(entry.parts[2]), 9)
                return
        raise AssertionError("there is no agent")
