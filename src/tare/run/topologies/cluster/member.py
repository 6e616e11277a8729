"""One machine of a cluster, and the programs that run in it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tare.errors import WorkloadFault
from tare.workloads.mapreduce.daemons import ENVIRONMENT
from tare.workloads.values import words

if TYPE_CHECKING:
    from tare.agent.client import LoadHandle
    from tare.platforms.contract import Machine

KEEP = 256 << 10
SHORT_S = 120.0
"""Seconds that a shell script may take, even on an emulated machine."""
FOREVER_S = 1e6
DROPPED = "dropped"
_DROP = "sync && echo 3 >/proc/sys/vm/drop_caches"


@dataclass(frozen=True)
class Member:
    """A machine of a cluster.

    Args:
        name: Its name in the cluster.
        machine: The machine.
        address: Its address on the batch's network.
    """

    name: str
    machine: Machine
    address: str

    async def run(
        self,
        script: str,
        *arguments: str,
        env: Mapping[str, str] | None = None,
        timeout_s: float = SHORT_S,
    ) -> dict[str, Any]:
        """Run a shell script, and return the agent's result.

        Raises:
            MachineFault: The machine is lost.
            WorkloadFault: The script failed, or took too long.
        """
        request = self._request(["sh", "-c", script, "sh", *arguments], env, timeout_s)
        # The agent ends the script after timeout_s, and then still reports it.
        outcome = await self.machine.agent.run("program", request, deadline_s=timeout_s + SHORT_S)
        return outcome.value

    async def output(self, script: str, *arguments: str, timeout_s: float = SHORT_S) -> str:
        """Return the output of a shell script; see :meth:`run`."""
        return words(await self.run(script, *arguments, timeout_s=timeout_s), "output")

    async def start(self, argv: Sequence[str]) -> LoadHandle:
        """Start a program that runs until it is stopped.

        Raises:
            MachineFault: The machine is lost.
            WorkloadFault: It cannot be started.
        """
        request = self._request(argv, None, FOREVER_S)
        return await self.machine.agent.start_load("program", request, ready_s=SHORT_S)

    async def drop_caches(self) -> Mapping[str, Any]:
        """Drop the page caches of the machine and its host.

        Returns:
            The result of :meth:`tare.platforms.machine.Machine.forget_disk` for the host; for a
            machine with its own kernel also ``guest``: :data:`DROPPED`, or the reason why not.

        Raises:
            MachineFault: The machine is lost.
        """
        dropped = {}
        if not self.machine.shares_clock:
            # A process on the host only has the host's caches.
            try:
                await self.run(_DROP)
                dropped["guest"] = DROPPED
            except WorkloadFault as fault:
                dropped["guest"] = f"not dropped: {fault}"
        return {**dropped, **await self.machine.forget_disk()}

    def _request(
        self, argv: Sequence[str], env: Mapping[str, str] | None, timeout_s: float
    ) -> dict[str, Any]:
        step = {"argv": list(argv), "cwd": "/tmp", "env": {**ENVIRONMENT, **(env or {})}}
        return {"steps": [step], "timeout_s": timeout_s, "keep": KEEP}
