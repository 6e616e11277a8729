"""What drivers state is what the page says, and what their checks begin with."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tare.hosts import Ledger, LocalHost
from tare.images.cache import default_cache
from tare.platforms import PLATFORMS
from tare.platforms.base import Context
from tare.platforms.catalogue import PAGE, Variant, render, variants
from tare.platforms.doctor import VARIANTS
from tare.platforms.tracing_check import examine_tracing

ROOT = Path(__file__).parents[2]
EVERY = variants()


@pytest.fixture
def context(tmp_path: Path, agent_program: Path) -> Iterator[Context]:
    ledger = Ledger(tmp_path / "ledger")
    yield Context(LocalHost(agent_program), ledger, default_cache(), agent_program)
    assert not ledger.open_entries()


def test_the_committed_page_is_current() -> None:
    committed = (ROOT / "docs" / PAGE).read_text(encoding="utf-8")
    assert committed == render(), "run `make docs`"


def test_the_page_has_every_platform_and_variant() -> None:
    page = render()
    assert {variant.platform.name for variant in EVERY} == set(PLATFORMS)
    assert len(EVERY) == sum(len(VARIANTS.get(name, ("",))) for name in PLATFORMS)
    reference = (ROOT / "docs" / "study.md").read_text(encoding="utf-8")
    for variant in EVERY:
        assert f"| {variant.name} |" in page
        # The anchor that the page links to.
        assert f"### Platform `{variant.platform.name}`" in reference


@pytest.mark.parametrize("variant", EVERY, ids=lambda variant: variant.name)
async def test_a_check_finds_no_more_than_is_stated(variant: Variant, context: Context) -> None:
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
def test_what_is_stated_can_be_read(variant: Variant) -> None:
    stated = variant.stated
    assert stated.kernel
    assert stated.channel
    assert variant.platform.describe(variant.parsed)
    if variant.platform.name == "xen" or variant.options == {"accelerator": "kvm"}:
        assert "lab" in stated.untested


async def test_tracing_is_tried_and_undone(context: Context) -> None:
    before = Path("/proc/self/mounts").read_text()
    found = await examine_tracing(context)
    assert Path("/proc/self/mounts").read_text() == before
    assert found.reason
    assert found.usable or found.hint


async def test_a_host_that_is_far_away_is_not_traced_from_here(context: Context) -> None:
    context.host.name = "far"
    found = await examine_tracing(context)
    assert not found.usable
    assert found.reason == "the scheduler of far can only be traced from itself"
