"""LXD or Incus of a host over SSH: its socket is carried here, what it is to reach is asked for."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from hosts.hosts_sshd import serving
from platforms.incus_daemon import left_in, own_address, served
from platforms.vendor_served import started
from tare.hosts import LocalHost, clean
from tare.hosts.ssh.host import SshHost
from tare.platforms.contract import Context, MachineSpec, Shape
from tare.platforms.incus.options import IncusOptions
from tare.platforms.incus.platform import Incus


@pytest.fixture
def folder() -> Iterator[Path]:
    with served() as made:
        yield made
        assert left_in(made) == []


@pytest.mark.acceptance
async def test_a_container_of_a_host_afar_measures_and_what_is_left_there_goes(
    folder: Path, context: Context, tmp_path: Path
) -> None:
    platform = Incus()
    with serving(tmp_path) as sshd:
        settings = {"type": "container", "socket": str(folder / "unix.socket")}
        near = IncusOptions.model_validate(settings)
        options = near.model_copy(update={"callback": f"{own_address()}:0"})
        async with SshHost(sshd.options(), context.agent) as host:
            afar = replace(context, host=host, here=LocalHost(context.agent))
            refused = await platform.check(afar, near)
            assert not refused.usable and "`callback`" in refused.hint
            verdict = await platform.check(afar, options)
            assert verdict.usable and host.name in verdict.reason
            name = f"tare-test-{os.getpid()}-subject"
            spec = MachineSpec(name, Shape(1, 64 << 20), (), tmp_path / "w", False)
            machine = await started(platform, afar, options, spec)
            await machine.ready(60)
            work = await machine.agent.run("numeric-sort", {"seconds": 0.2}, deadline_s=30)
            assert work.value["iterations_per_s"] > 0
            # As after a Tare that was killed: the ledger's word suffices, from here.
            messages = await clean(afar.host, afar.ledger, platform.undoers)
            assert any(line.startswith(f"Removed {name} and its project") for line in messages)
            await machine.stop()
            assert afar.ledger.open_entries() == ()
