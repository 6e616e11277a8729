"""One machine of a cluster, and what is run in it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tare.errors import WorkloadFault
from tare.workloads.mapreduce.daemons import ENVIRONMENT
from tare.workloads.values import words

if TYPE_CHECKING:
    from tare.agent.load import LoadHandle
    from tare.platforms.contract import Machine

KEEP = 256 << 10
SHORT_S = 120.0
"""Seconds that a shell's script may take, emulated machines included."""
FOREVER_S = 1e6
DROPPED = "dropped"
_DROP = "sync && echo 3 >/proc/sys/vm/drop_caches"


@dataclass(frozen=True)
class Member:
    """A machine of a cluster.

    Args:
        name: What the cluster calls it.
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
        """Run a shell's script, and return what the agent tells of it.

        Raises:
            MachineFault: The machine is lost.
            WorkloadFault: The script failed, or took too long.
        """
        request = self._request(["sh", "-c", script, "sh", *arguments], env, timeout_s)
        # The agent ends it by itself, and then has something to say.
        outcome = await self.machine.agent.run("program", request, deadline_s=timeout_s + SHORT_S)
        return outcome.value

    async def output(self, script: str, *arguments: str, timeout_s: float = SHORT_S) -> str:
        """Return what a shell's script prints; see :meth:`run`."""
        return words(await self.run(script, *arguments, timeout_s=timeout_s), "output")

    async def start(self, argv: Sequence[str]) -> LoadHandle:
        """Start a program that goes on until it is stopped.

        Raises:
            MachineFault: The machine is lost.
            WorkloadFault: It cannot be started.
        """
        request = self._request(argv, None, FOREVER_S)
        return await self.machine.agent.start_load("program", request, ready_s=SHORT_S)

    async def drop_caches(self) -> Mapping[str, Any]:
        """Have the machine and its host forget what they cache of files.

        Returns:
            What was done, as :meth:`tare.platforms.machine.Machine.forget_disk` tells of the host;
            of a machine with a kernel of its own also ``guest``: :data:`DROPPED`, or why not.

        Raises:
            MachineFault: The machine is lost.
        """
        told = {}
        if not self.machine.shares_clock:
            # What is a process of the host has no other caches than the host's.
            try:
                await self.run(_DROP)
                told["guest"] = DROPPED
            except WorkloadFault as fault:
                told["guest"] = f"not dropped: {fault}"
        return {**told, **await self.machine.forget_disk()}

    def _request(
        self, argv: Sequence[str], env: Mapping[str, str] | None, timeout_s: float
    ) -> dict[str, Any]:
        step = {"argv": list(argv), "cwd": "/tmp", "env": {**ENVIRONMENT, **(env or {})}}
        return {"steps": [step], "timeout_s": timeout_s, "keep": KEEP}
