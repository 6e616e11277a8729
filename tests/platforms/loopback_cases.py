"""Every platform's cases, for machines that have this computer's own loopback for a network."""

from __future__ import annotations

from run.run_ports import ports_held
from tare.platforms.contract import Verdict
from tare.testing.conformance import PlatformCases
from tare.testing.machines import Machines


class LoopbackCases(PlatformCases):
    """What goes over the network waits for the tests of others that do so."""

    async def test_network(self, machines: Machines, verdict: Verdict) -> None:
        """A peer on the host sends it packets of full size, and gets them back."""
        async with ports_held():
            await super().test_network(machines, verdict)

    async def test_two_machines(self, machines: Machines, verdict: Verdict) -> None:
        """Two machines of one cell have their roles, and reach each other on one network."""
        async with ports_held():
            await super().test_two_machines(machines, verdict)
