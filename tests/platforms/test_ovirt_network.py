"""The isolated network of an oVirt engine: created before machines, and removed after them."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from platforms.ovirt_server import USER, OvirtServer
from platforms.vendor_served import reached, spec_of, started
from tare.errors import TareError
from tare.hosts import clean
from tare.platforms.contract import Context
from tare.platforms.linux.network import Addresses, Isolated, choose_subnet, spanning_network
from tare.platforms.ovirt.engine import MARK
from tare.platforms.ovirt.options import OvirtOptions
from tare.platforms.ovirt.platform import Ovirt

pytest.importorskip("ovirtsdk4")

NAME = "tare-0123abcd"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[OvirtServer]:
    made = OvirtServer(tmp_path)
    made.start()
    yield made
    made.stop()


def options_of(server: OvirtServer, **more: Any) -> OvirtOptions:
    way = {**reached(server, USER, server.password), "image": "tare-live.iso"}
    return OvirtOptions.model_validate({**way, **more})


@pytest.mark.parametrize(
    ("more", "model"),
    [({}, "virtio"), ({"devices": "emulated", "nic": "e1000"}, "e1000")],
)
async def test_a_machine_gets_a_second_card_on_a_network_that_is_removed(
    server: OvirtServer, context: Context, tmp_path: Path, more: dict[str, Any], model: str
) -> None:
    platform, options = Ovirt(), options_of(server, **more)
    addresses = Addresses(choose_subnet([], random.Random(1)))
    async with platform.isolated_network(context, options, NAME):
        (network,) = server.networks.values()
        assert network.name == NAME and server.attached_networks == {network.id}
        assert [each.kind for each in context.ledger.open_entries()] == ["ovirt-network"]
        async with spanning_network(
            [context], False, isolated=Isolated(NAME, addresses)
        ) as network_of_batch:
            spec = replace(
                spec_of(tmp_path),
                network=network_of_batch.on(context.host.name),
                way="isolated",
            )
            machine = await started(platform, context, options, spec)
            (cards,) = server.cards.values()
            assert [card.interface.value for card in cards] == [model, model]
            first, second = cards
            assert first.vnic_profile.id == "n1"
            assert second.vnic_profile.id == f"p-{network.id}"
            last = addresses.machine(0).split(".")[3]
            assert second.mac.address.startswith("52:54:00:")
            assert int(second.mac.address.split(":")[5], 16) == int(last)
            await machine.stop()
    assert not server.networks and not server.left and not context.ledger.open_entries()
    assert [each.name for each in server.there["vnicprofiles"]] == ["ovirtmgmt"]


async def test_clean_removes_the_network_of_a_killed_run_and_no_other(
    server: OvirtServer, context: Context
) -> None:
    options, types = options_of(server), server.types
    for number, mark in enumerate((MARK + NAME, "mine")):
        network = types.Network(id=f"w{number}", name=NAME, comment=mark)
        server.networks[network.id] = network
    context.ledger.record("ovirt-network", **options.connection(), name=NAME)
    await clean(context.host, context.ledger, Ovirt.undoers)
    assert set(server.networks) == {"w1"} and not context.ledger.open_entries()


async def test_without_a_provider_the_reason_for_no_network_is_given(
    server: OvirtServer, context: Context
) -> None:
    server.providers.clear()
    verdict = await Ovirt().check(context, options_of(server))
    assert verdict.usable
    why = verdict.capabilities.no_network
    assert "no OVN network provider" in why and "`isolated-profile`" in why
    for more in ({"network_way": "given"}, {"isolated_profile": "ovirtmgmt"}):
        verdict = await Ovirt().check(context, options_of(server, **more))
        assert verdict.usable and not verdict.capabilities.no_network


async def test_an_account_that_may_not_create_networks_leaves_nothing(
    server: OvirtServer, context: Context
) -> None:
    server.may_write = False
    with pytest.raises(TareError, match="not authorized"):
        async with Ovirt().isolated_network(context, options_of(server), NAME):
            pass
    assert not server.networks and not context.ledger.open_entries()


async def test_a_network_that_the_arm_names_is_neither_created_nor_removed(
    server: OvirtServer, context: Context
) -> None:
    options = options_of(server, isolated_profile="ovirtmgmt")
    async with Ovirt().isolated_network(context, options, NAME):
        assert not server.networks and not context.ledger.open_entries()


LIMITED = {
    f"{direction}_{key}": value
    for direction in ("inbound", "outbound")
    for key, value in (("average", 100), ("peak", 100), ("burst", 1))
}


# A rate that a study writes in another unit may have the remainder of a conversion.
@pytest.mark.parametrize("rate", [1e8, math.nextafter(1e8, math.inf)])
async def test_a_link_limits_the_cards_of_the_network_in_both_directions(
    server: OvirtServer, context: Context, rate: float
) -> None:
    options = options_of(server)
    assert Ovirt().stated(options).capabilities.limits_cards
    async with Ovirt().isolated_network(context, options, NAME, rate):
        (quality,), (network,) = server.qualities, server.networks.values()
        assert {key: getattr(quality, key) for key in LIMITED} == LIMITED
        (profile,) = (each for each in server.there["vnicprofiles"] if each.network)
        assert (profile.qos.id, profile.network.id) == (quality.id, network.id)
    assert not server.networks and not server.left and not context.ledger.open_entries()


async def test_clean_removes_the_limit_of_a_killed_run_and_no_other(
    server: OvirtServer, context: Context
) -> None:
    options, types = options_of(server), server.types
    for number, mark in enumerate((MARK + NAME, "mine")):
        server.qualities.append(
            types.Qos(id=f"q{number}", name=NAME, description=mark, type=types.QosType.NETWORK)
        )
    context.ledger.record("ovirt-network", **options.connection(), name=NAME, limited=True)
    await clean(context.host, context.ledger, Ovirt.undoers)
    assert [each.id for each in server.qualities] == ["q1"]
    assert not context.ledger.open_entries()


@pytest.mark.parametrize(
    ("rate", "lost", "why"),
    [
        (1.5e6, False, "whole Mbit/s"),
        (1e10, False, "out of range"),
        (1e9, True, "did not take the limit"),
    ],
)
async def test_a_limit_that_the_engine_does_not_take_leaves_nothing(
    server: OvirtServer, context: Context, rate: float, lost: bool, why: str
) -> None:
    server.loses_limits = lost
    with pytest.raises(TareError, match=why):
        async with Ovirt().isolated_network(context, options_of(server), NAME, rate):
            pass
    assert not server.networks and not server.left and not context.ledger.open_entries()


def test_tare_does_not_limit_the_cards_of_a_network_that_the_arm_names(
    server: OvirtServer,
) -> None:
    able = Ovirt().stated(options_of(server, isolated_profile="ovirtmgmt")).capabilities
    assert not able.limits_cards and "your vNIC profile" in able.no_limits
