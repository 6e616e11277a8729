"""Domains get the weight, the cap and the policy that a study asks for, from a real libvirt."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from platforms.libvirt_embedded import CONFIGURED
from platforms.test_libvirt_remote import SHAPE, Daemon, serving_daemon
from tare.platforms.contract import Context, MachineSpec
from tare.platforms.libvirt.options import LibvirtOptions
from tare.platforms.libvirt.platform import Libvirt, scheduled_here
from tare.platforms.linux.cgroups import cgroup_mounts
from tare.platforms.linux.cpu_groups import offered_by_groups, version_of
from tare.platforms.machine import SUBJECT

NONE, CPU = "cgroup_controllers = []", 'cgroup_controllers = ["cpu", "cpuacct", "cpuset"]'
HALF = {"global_period": 20_000, "global_quota": 10_000}


def options(**more: Any) -> LibvirtOptions:
    return LibvirtOptions.model_validate(more)


def test_a_weight_is_the_shares_of_either_version_of_control_groups() -> None:
    wanted = options(scheduling={"weight": 1000}, neighbour_scheduling={"weight": 50})
    assert wanted.cpu_tuning(SUBJECT, 1) == {"shares": 10_240}
    assert wanted.cpu_tuning(SUBJECT, 2) == {"shares": 1000}
    assert wanted.cpu_tuning("neighbour-1", 2) == {"shares": 50}
    assert options(shares=512).cpu_tuning(SUBJECT, 2) == {"shares": 512}


def test_a_cap_limits_the_whole_domain_and_the_older_option_each_vcpu() -> None:
    wanted = options(scheduling={"cap": 0.5, "period": "20ms"})
    assert wanted.cpu_tuning(SUBJECT, 1) == wanted.cpu_tuning(SUBJECT, 2) == HALF
    assert wanted.cpu_tuning("neighbour-1", 2) == {}
    assert options(cap=0.25).cpu_tuning(SUBJECT, 2) == {"period": 100_000, "quota": 25_000}


@pytest.mark.parametrize("uri", ["qemu:///session", "qemu+unix:///session?socket=/x"])
async def test_a_users_own_daemon_has_no_knobs(context: Context, uri: str) -> None:
    able = Libvirt().stated(options()).capabilities
    assert able.knobs == {"policy", "fifo", "weight", "cap"}
    found = await scheduled_here(context, options(uri=uri), able)
    assert not found.knobs and "session daemon" in found.missing_knobs["weight"]


@pytest.fixture(scope="module")
def daemon() -> Iterator[Daemon]:
    with serving_daemon(CONFIGURED.replace(NONE, CPU)) as running:
        yield running


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder whose name is short, for sockets' names are."""
    with tempfile.TemporaryDirectory(prefix="lvs-") as named:
        yield Path(named)


@pytest.mark.slow
@pytest.mark.guest
@pytest.mark.boots
@pytest.mark.skipif(os.geteuid() != 0, reason="libvirt's system driver needs root")
@pytest.mark.parametrize("policy", ["batch", "fifo"])
async def test_a_domain_is_scheduled_as_asked_before_it_runs(
    context: Context, daemon: Daemon, folder: Path, policy: str
) -> None:
    if not (await offered_by_groups(context.host))[0]:
        pytest.skip("no control groups here")
    fair = {"weight": 200, "cap": 0.5, "period": "20ms"} if policy == "batch" else {}
    wanted = options(uri=daemon.uri, scheduling={"policy": policy, **fair})
    platform = Libvirt()
    verdict = await platform.check(context, wanted)
    assert verdict.capabilities.knobs >= {policy if policy == "fifo" else "policy"}
    prepared = await platform.prepare(context, wanted, SHAPE, realtime=False)
    spec = MachineSpec("tare-scheduled", SHAPE, (), folder / "m", realtime=False)
    machine = await platform.start(context, wanted, prepared, spec)
    try:
        kernels = {"batch": (os.SCHED_BATCH, 0), "fifo": (os.SCHED_FIFO, 1)}
        for thread in await machine.vcpu_threads():
            priority = os.sched_getparam(thread).sched_priority
            assert (os.sched_getscheduler(thread), priority) == kernels[policy]
        proof = machine.applied["scheduling"]
        assert [each["policy"] for each in proof["threads"]] == [f"SCHED_{policy.upper()}"]
        if fair:
            shares = 2048 if version_of(await cgroup_mounts(context.host)) == 1 else 200
            expected = {"cpu_shares": shares, **HALF}
            assert expected.items() <= proof["libvirt"].items()
    finally:
        await machine.stop()
    assert daemon.domains() == [] and not context.ledger.open_entries()
