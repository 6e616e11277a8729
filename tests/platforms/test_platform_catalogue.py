"""What drivers state is what the page says, and what their checks begin with."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tare.hosts import Ledger, LocalHost
from tare.images.cache import default_cache
from tare.platforms.contract import Context
from tare.platforms.doctor import examine_tracing
from tare.platforms.reference import PAGE, PlatformRow, render, rows
from tare.platforms.vendors.offer import keeps_general
from tare.registry import installed
from tare.run.reference import platform_tables

ROOT = Path(__file__).parents[2]
EVERY = rows(installed().platforms)


@pytest.fixture
def context(tmp_path: Path, agent_program: Path) -> Iterator[Context]:
    ledger = Ledger(tmp_path / "ledger")
    yield Context(LocalHost(agent_program), ledger, default_cache(), agent_program)
    assert not ledger.open_entries()


def test_the_committed_page_is_current() -> None:
    committed = (ROOT / "docs" / "reference" / PAGE).read_text(encoding="utf-8")
    assert committed == platform_tables(), "run `make docs`"


def test_the_page_has_every_platform_and_variant() -> None:
    page = render(installed().platforms)
    assert {variant.platform.name for variant in EVERY} == set(installed().platforms)
    assert len(EVERY) == sum(len(each.variants) for each in installed().platforms.values())
    reference = (ROOT / "docs" / "reference" / "study.md").read_text(encoding="utf-8")
    for variant in EVERY:
        assert f"| {variant.name} |" in page
        # The anchor that the page links to.
        assert f"### Platform `{variant.platform.name}`" in reference


def test_the_live_image_and_xen_keep_others_to_the_general_kernel() -> None:
    keep = {row.platform.name for row in EVERY if keeps_general(row.stated)}
    makers = {"hyperv", "incus", "ovirt", "proxmox", "vsphere", "xenserver"}
    assert keep == makers | {"bare-live", "xen"}
    # A container of Incus's runs on its host's kernel.
    containers = [row for row in EVERY if row.options.get("type") == "container"]
    assert containers and not any(keeps_general(row.stated) for row in containers)


@pytest.mark.parametrize("variant", EVERY, ids=lambda variant: variant.name)
async def test_a_check_finds_no_more_than_is_stated(variant: PlatformRow, context: Context) -> None:
    stated = variant.stated.capabilities
    if variant.options == {"accelerator": "kvm"}:
        pytest.skip("a guest would be booted for it; tests/platforms/test_qemu_guest.py does")
    verdict = await variant.platform.check(context, variant.parsed)
    found = verdict.capabilities
    assert found.pinning == stated.pinning
    assert found.devices == stated.devices
    assert found.neighbours == stated.neighbours
    assert found.min_memory == stated.min_memory
    assert found.knobs <= stated.knobs
    assert set(stated.notes) <= set(found.notes)
    assert stated.max_vcpus in (0, found.max_vcpus)
    # What is lacking here has its reason.
    if verdict.usable:
        assert stated.knobs - found.knobs <= set(found.missing_knobs)


@pytest.mark.parametrize("variant", EVERY, ids=lambda variant: variant.name)
def test_every_statement_of_a_driver_is_filled_in(variant: PlatformRow) -> None:
    stated = variant.stated
    assert stated.kernel
    assert stated.channel
    assert variant.platform.describe(variant.parsed)
    if variant.platform.name == "xen" or variant.options == {"accelerator": "kvm"}:
        assert "lab" in stated.untested


def tracing_mounts() -> list[str]:
    # Only those of tracing: other tests mount disks of their own.
    mounts = (line.split() for line in Path("/proc/self/mounts").read_text().splitlines())
    return [" ".join(mount) for mount in mounts if mount[2] in ("tracefs", "debugfs")]


async def test_tracing_is_tried_and_undone(context: Context) -> None:
    before = tracing_mounts()
    found = await examine_tracing(context)
    assert tracing_mounts() == before
    assert found.reason
    assert found.usable or found.hint


async def test_a_host_that_is_far_away_is_traced_by_its_own_commands(context: Context) -> None:
    here = await examine_tracing(context)
    context.host.name, context.host.local = "far", False
    far = await examine_tracing(context)
    assert far.usable == here.usable, far.reason
    assert far.usable or far.hint
