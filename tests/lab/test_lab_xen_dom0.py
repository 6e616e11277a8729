"""What dom0 is given while machines run, and where their interfaces are plugged in there."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path

import pytest
import pytest_asyncio

from lab.lab_inside import PATIENCE_S, Inside, inside
from tare.errors import MachineFault
from tare.hosts.ledger.cleanup import clean
from tare.hosts.ledger.settings import changed
from tare.lab.options import GIB, MIB, LabOptions
from tare.platforms.linux.network import lacking_switch
from tare.platforms.xen.options import XenOptions
from tare.platforms.xen.platform import Xen
from tare.platforms.xen.settings import Dom0Vcpus, Dom0Weight, pinned_cpus
from tare.run.lifecycle.undoers import all_undoers
from tare.run.topologies.peers import connected, require_network, started_peer

pytestmark = [
    pytest.mark.guest,
    pytest.mark.acceptance,
    pytest.mark.timeout(1800),
    pytest.mark.asyncio(loop_scope="module"),
]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def xen_lab(
    agent_program: Path, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Inside]:
    options = LabOptions("xen", memory=3 * GIB, dom0_memory=768 * MIB, dom0_cpus=2)
    folder = tmp_path_factory.mktemp("xen")
    async with inside(options, folder, agent_program, "generic") as found:
        yield found


async def test_dom0_is_given_its_vcpus_and_its_weight_back(xen_lab: Inside) -> None:
    host, ledger = xen_lab.host, xen_lab.context.ledger
    vcpus, weight = Dom0Vcpus(host), Dom0Weight(host, "credit2")
    assert await vcpus.read() == {"vcpus": "2"}
    async with changed(ledger, vcpus, {"vcpus": "1"}) as before:
        assert before == {"vcpus": "2"}
        assert await vcpus.read() == {"vcpus": "1"}
        assert (await xen_lab.sh("cat /sys/devices/system/cpu/online")).strip() == "0"
    assert await vcpus.read() == {"vcpus": "2"}
    assert (await xen_lab.sh("cat /sys/devices/system/cpu/online")).strip() == "0-1"
    async with changed(ledger, weight, {"weight": "512"}) as before:
        assert before == {"weight": "256"}
        assert (await xen_lab.sh("xl sched-credit2 -d 0")).split()[-2] == "512"
        # As a killed run's ledger would have it.
        messages = await clean(host, ledger, all_undoers())
        assert any("weight of dom0" in sentence for sentence in messages), messages
        assert (await xen_lab.sh("xl sched-credit2 -d 0")).split()[-2] == "256"
    with pytest.raises(MachineFault):
        async with changed(ledger, vcpus, {"vcpus": "3"}):
            pass
    assert not ledger.open_entries()


@pytest.mark.parametrize("switch", ["routed", "openvswitch"])
async def test_a_domains_interface_is_plugged_into_a_switch_of_tares_own(
    xen_lab: Inside, switch: str
) -> None:
    options = XenOptions.model_validate({"type": "pv", "switch": switch, "dom0_cpus": [0, 1]})
    platform, context = Xen(), xen_lab.context
    assert await lacking_switch(context.host, options.wanted_switch) is None
    async with AsyncExitStack() as held:
        joining = connected([context], platform, options, several=True)
        joined = await held.enter_async_context(joining)
        spec = replace(xen_lab.spec(), network=joined.network, way=joined.way)
        prepared = await platform.prepare(context, options, spec.shape, False)
        machine = await platform.start(context, options, prepared, spec)
        held.push_async_callback(machine.stop)
        hello = await machine.ready(PATIENCE_S)
        require_network(spec.name, hello.proof)
        assert machine.applied["nic"] == {"model": "netfront"}
        assert joined.network.facts["switch"] == switch
        listed = await xen_lab.sh("ls /sys/class/net")
        assert "vif" not in listed
        peer = await held.enter_async_context(started_peer(context, joined.network, spec))
        await peer.prove(machine, (2.0, 10.0, 20.0))
        assert (await pinned_cpus(context.host, 0))["0"] == "all"
    assert not context.ledger.open_entries()
