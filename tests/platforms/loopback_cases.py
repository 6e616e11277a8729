"""Every platform's cases, for machines that have this computer's own loopback for a network."""

from __future__ import annotations

import pytest

from run.run_ports import ports_held
from tare.platforms.contract import Verdict
from tare.study.model.platform_options import ISOLATED
from tare.testing.conformance import PlatformCases
from tare.testing.machines import Machines


class LoopbackCases(PlatformCases):
    """What goes over the network waits for the tests of others that do so."""

    async def test_network(self, machines: Machines, verdict: Verdict) -> None:
        """A peer sends it packets of full size, and gets them back."""
        await self._skip_isolated(machines)
        async with ports_held():
            await super().test_network(machines, verdict)

    async def test_two_machines(self, machines: Machines, verdict: Verdict) -> None:
        """Two machines of one cell have their roles, and reach each other on one network."""
        await self._skip_isolated(machines)
        async with ports_held():
            await super().test_two_machines(machines, verdict)

    async def _skip_isolated(self, machines: Machines) -> None:
        """Check that a machine has its link on an isolated network, which no process can use."""
        running = await machines.subject()
        if running.spec.way != ISOLATED:
            return
        assert running.spec.network is not None
        link = running.spec.network.links[running.spec.name]
        assert link.way == ISOLATED and link.interface.startswith("tare-")
        pytest.skip(
            "a local agent plays the guest: it has no card of a server's (the tests of each "
            "driver's network check that the server made one)"
        )
