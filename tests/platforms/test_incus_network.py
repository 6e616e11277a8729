"""The isolated network at LXD or Incus: created before machines, and removed after them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from platforms.incus_daemon import POOL, asked, served, way_of
from platforms.vendor_served import spec_of
from tare.hosts import clean
from tare.platforms.contract import Context
from tare.platforms.incus.instance import container, differing, virtual_machine
from tare.platforms.incus.options import IncusOptions
from tare.platforms.incus.platform import Incus
from tare.platforms.vendors.isolated_network import IsolatedNic

NAME = "tare-0123abce"


@pytest.fixture
def folder() -> Iterator[Path]:
    with served() as made:
        yield made


def options_of(folder: Path) -> IncusOptions:
    return IncusOptions.model_validate(
        {"socket": str(folder / "unix.socket"), "image": "live", "callback": "127.0.0.1:0"}
    )


async def ask(folder: Path, *words: Any) -> Any:
    return await asyncio.to_thread(asked, way_of(folder), *words)


async def bridges(folder: Path) -> list[str]:
    return [each for each in await ask(folder, "GET", "/1.0/networks") if NAME[:-1] in each]


@pytest.mark.slow
@pytest.mark.boots
async def test_a_bridge_without_addresses_is_created_and_removed(
    folder: Path, context: Context
) -> None:
    async with Incus().isolated_network(context, options_of(folder), NAME):
        found = await ask(folder, "GET", f"/1.0/networks/{NAME}")
        assert found["type"] == "bridge" and found["managed"] is True
        assert found["config"]["ipv4.address"] == found["config"]["ipv6.address"] == "none"
        # The kernel's own bridge has no address and no port.
        assert Path(f"/sys/class/net/{NAME}/bridge").is_dir()
        assert not list(Path(f"/sys/class/net/{NAME}/brif").iterdir())
        (entry,) = context.ledger.open_entries()
        assert entry.kind == "incus-network" and entry.details["name"] == NAME
    assert not await bridges(folder) and not Path(f"/sys/class/net/{NAME}").exists()
    assert not context.ledger.open_entries()


@pytest.mark.slow
@pytest.mark.boots
async def test_clean_removes_the_network_of_a_killed_run_and_leaves_those_of_others(
    folder: Path, context: Context
) -> None:
    none = {"ipv4.address": "none", "ipv6.address": "none"}
    others = "tare-0123abcf"
    body: dict[str, Any] = {"type": "bridge", "config": {**none, "user.tare": NAME}}
    await ask(folder, "POST", "/1.0/networks", {**body, "name": NAME})
    await ask(folder, "POST", "/1.0/networks", {"type": "bridge", "config": none, "name": others})
    for name in (NAME, others):
        context.ledger.record("incus-network", **options_of(folder).connection(), name=name)
    await clean(context.host, context.ledger, Incus.undoers)
    assert await bridges(folder) == [f"/1.0/networks/{others}"]
    assert not context.ledger.open_entries()
    await ask(folder, "DELETE", f"/1.0/networks/{others}")


def test_the_second_card_is_on_the_network_with_the_mac(tmp_path: Path) -> None:
    nic = IsolatedNic(NAME, "52:54:00:0a:02:0b", "10.10.2.11/24", 1500)
    options, spec = options_of(tmp_path), spec_of(tmp_path)
    first = {"type": "nic", "network": "lxdbr0"}
    wanted = virtual_machine(options, spec, POOL, "f00d", first, isolated=nic)
    second = {"type": "nic", "network": NAME, "hwaddr": "52:54:00:0a:02:0b"}
    assert wanted["devices"]["eth1"] == second and wanted["devices"]["eth0"] == first
    found = {"expanded_config": wanted["config"], "expanded_devices": {**wanted["devices"]}}
    assert differing(wanted, found) == ""
    limited = virtual_machine(options, spec, POOL, "f00d", first, isolated=replace(nic, rate=1e9))
    assert limited["devices"]["eth1"] == {**second, "limits.max": "1000000000bit"}
    del found["expanded_devices"]["eth1"]
    assert differing(wanted, found).startswith("eth1 was to be")
    assert "eth1" not in virtual_machine(options, spec, POOL, "f00d", first)["devices"]


def test_a_container_has_that_card_alone_and_its_own_name_for_it(tmp_path: Path) -> None:
    nic = IsolatedNic(NAME, "52:54:00:0a:02:0b", "10.10.2.11/24", 1500)
    options, spec = options_of(tmp_path), spec_of(tmp_path)
    wanted = container(options, spec, POOL, "f00d", "127.0.0.1:1", isolated=nic)
    cards = {name: each for name, each in wanted["devices"].items() if each["type"] == "nic"}
    card = {"type": "nic", "network": NAME, "hwaddr": "52:54:00:0a:02:0b", "name": "eth0"}
    assert cards == {"eth0": card}
    without = container(options, spec, POOL, "f00d", "127.0.0.1:1")
    assert not [each for each in without["devices"].values() if each["type"] == "nic"]
