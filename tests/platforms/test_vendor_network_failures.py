"""Failures between the creation of an isolated network and the first cell on it.

A server refuses or loses the call that attaches a machine's card to the network. Neither the
machine nor the network is left, and the ledger is empty, for every product.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from platforms.incus_daemon import served as incus_served
from platforms.test_isolated_loads import KINDS, PRODUCTS
from platforms.vendor_served import reached, spec_of, started
from platforms.vsphere_simulated import simulator
from tare.errors import TareError
from tare.platforms.contract import Context
from tare.registry import installed
from tare.run.topologies.peers import connected
from tare.study.model.platform_options import ISOLATED

CUTS = {
    "proxmox": r"POST .*/qemu$",
    "xenserver": r"VIF\.create",
    "ovirt": r"POST .*/nics$",
    "hyperv": r"Add-VMNetworkAdapter",
}
"""The request that attaches cards, as each server remembers it."""
CALLBACK = {"callback": "127.0.0.1:0"}


@dataclass(frozen=True)
class Failing:
    """A product whose machines cannot be attached to their network.

    Args:
        options: How an arm reaches it.
        networks: Returns the networks that were created there.
        machines: Returns the VMs there.
        fail: Lets the next attachment of a card fail.
        says: What the error reports then.
        failed: Returns whether one has.
    """

    options: dict[str, Any]
    networks: Callable[[], Sequence[str]]
    machines: Callable[[], Sequence[Any]]
    fail: Callable[[], None]
    says: str
    failed: Callable[[], bool] = lambda: True


@asynccontextmanager
async def failing(kind: str, folder: Path) -> AsyncIterator[Failing]:
    """Hold a product whose next attachment of a card can fail."""
    if kind == "vsphere":
        with simulator() as running:
            options = running.options().model_dump(mode="json", exclude_defaults=True)
            yield Failing(
                options,
                running.left,
                list,
                lambda: running.refuse("CreateVM_Task", "NoPermission", count=0),
                "lacks VirtualMachine.Inventory.Create",
            )
        return
    product = PRODUCTS[kind]
    pytest.importorskip(product.module)
    server = product.server(folder)
    server.start()
    try:
        yield Failing(
            {**reached(server, *product.account(server)), **product.chosen},
            lambda: product.networks(server),
            lambda: product.machines(server),
            lambda: server.cuts.append(re.compile(CUTS[kind])),
            "the connection to 127.0.0.1 broke",
            lambda: not server.cuts,
        )
    finally:
        server.stop()


@pytest.mark.parametrize("kind", KINDS)
async def test_a_card_that_cannot_be_attached_leaves_neither_machine_nor_network(
    kind: str, tmp_path: Path, context: Context
) -> None:
    async with failing(kind, tmp_path) as there:
        await require_nothing_left(kind, there, tmp_path, context)


@pytest.fixture
def incus_folder() -> Iterator[Path]:
    with incus_served() as made:
        yield made


@pytest.mark.slow
async def test_a_refused_instance_leaves_no_network_at_incus(
    incus_folder: Path, tmp_path: Path, context: Context
) -> None:
    # The server has no such image: it refuses the instance after its network was created.
    options = {"socket": str(incus_folder / "unix.socket"), "image": "none", "type": "vm"}
    there = Failing(
        options,
        lambda: [each.name for each in (incus_folder / "networks").glob("tare-*")],
        list,
        lambda: None,
        "has no image none",
    )
    await require_nothing_left("incus", there, tmp_path, context)


async def require_nothing_left(kind: str, there: Failing, folder: Path, context: Context) -> None:
    """Start a machine on a new network, let its card fail, and check that nothing is left."""
    platform = installed().platforms[kind]
    options = platform.options.model_validate({**there.options, **CALLBACK})
    with pytest.raises(TareError) as raised:
        async with connected([context], platform, options, several=False) as connection:
            assert there.networks()
            assert context.ledger.open_entries()
            spec = spec_of(folder)
            spec = replace(spec, network=connection.network, way=ISOLATED)
            there.fail()
            await started(platform, context, options, spec)
    assert there.says in str(raised.value) and there.failed()
    assert not there.networks() and not there.machines()
    assert not context.ledger.open_entries()
