"""Lab hosts that boot, and messages about their ends and about wrong ways into them."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tare.errors import InputError, MachineFault
from tare.hosts.ledger.ledger import Ledger
from tare.hosts.local import LocalHost
from tare.hosts.ssh.host import SshHost
from tare.images.cache import default_cache
from tare.lab.host import hypervisor_of, lab_up, ssh_options, verify
from tare.lab.host_files import make_keys
from tare.lab.options import GIB, LabOptions
from tare.platforms.contract import Context

pytestmark = [pytest.mark.guest, pytest.mark.slow, pytest.mark.boots]


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    with Ledger(tmp_path / "ledger.jsonl") as held:
        yield held


@pytest.fixture
def context(ledger: Ledger, agent_program: Path) -> Context:
    return Context(LocalHost(agent_program), ledger, default_cache(), agent_program)


async def test_a_kvm_lab_admits_only_allowed_users_and_reports_when_it_is_killed(
    context: Context, tmp_path: Path
) -> None:
    folder = tmp_path / "tare-lab-kvm"
    lab = await lab_up(context, LabOptions("kvm", memory=GIB), folder)
    async with lab:
        assert await hypervisor_of(lab.host) == "kvm"
        assert len(lab.host.topology().online) == 2
        with pytest.raises(MachineFault, match="came up with KVM and not with Xen"):
            await verify(lab.host, "xen")
        written = await lab.host.run(["sh", "-c", "echo kept >/root/file && cat /root/file"])
        assert written.stdout == b"kept\n"

        right = ssh_options(lab.places, lab.port)
        forged = folder / "forged"
        forged.write_text(make_keys().known_hosts(lab.port))
        with pytest.raises(InputError, match="differs from the one in"):
            await SshHost(replace(right, known_hosts=forged), context.agent).connect()
        stranger = folder / "stranger"
        stranger.write_bytes(make_keys().client.export_private_key("openssh"))
        with pytest.raises(InputError, match="refuses the login"):
            await SshHost(replace(right, key=stranger), context.agent).connect()

        os.kill(lab.pid, signal.SIGKILL)
        with pytest.raises(MachineFault, match="killed by SIGKILL") as fault:
            await lab.while_alive(lab.host.run(["sleep", "60"]))
        assert "ready" in fault.value.console_tail[-1]
        with pytest.raises(MachineFault, match="cannot be reached"):
            await SshHost(right, context.agent).connect()
    assert not folder.exists()
    assert not context.ledger.open_entries()


async def test_a_lab_that_falls_silent_is_booted_once_more(
    context: Context, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tare.lab.host.FIRST_BOOT_S", 0.2)
    notices: list[str] = []
    options = LabOptions("none", memory=GIB)
    async with await lab_up(
        context, options, tmp_path / "tare-lab-none", tell=notices.append
    ) as lab:
        assert await hypervisor_of(lab.host) == "none"
    assert len(notices) == 1
    assert "not ready within 0.2 s" in notices[0]
    assert "booted once more" in notices[0]
    assert not context.ledger.open_entries()


async def test_a_lab_that_does_not_boot_says_why_and_leaves_nothing(
    context: Context, tmp_path: Path
) -> None:
    folder = tmp_path / "tare-lab-none"
    options = LabOptions("none", memory=GIB, kernel_arguments=("rdinit=/nothing", "root=/dev/x"))
    with pytest.raises(MachineFault, match="kernel panicked") as fault:
        await lab_up(context, options, folder)
    assert fault.value.console_tail
    assert not folder.exists()
    assert not context.ledger.open_entries()
