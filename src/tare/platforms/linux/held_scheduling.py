"""The scheduling of one machine on a Linux host: held from before its start until its end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from tare.hosts.realtime import RT_RUNTIME, unthrottled
from tare.platforms.contract import Context
from tare.platforms.linux.cpu_groups import (
    CpuGroup,
    cpu_group,
    offered_by_groups,
    read_back,
    require_member,
)
from tare.platforms.linux.scheduling import (
    GIVEN_VARIABLE,
    alike,
    apply,
    flags,
    nice_session,
    offered_by_threads,
    prove,
)
from tare.platforms.scheduling import Scheduling

LINUX_KNOBS = frozenset({"policy", "fifo", "nice", "slice", "weight", "cap"})
"""The knobs that a Linux host has where nothing is missing."""


async def linux_knobs(context: Context) -> tuple[frozenset[str], dict[str, str]]:
    """Find out which knobs machines have that are threads of this host.

    Returns:
        The names of those they have, and the reason for each other one.
    """
    threads, no_threads = await offered_by_threads(context)
    groups, no_groups = await offered_by_groups(context.host)
    lacking = {**no_threads, **no_groups}
    lacking["reservation"] = "Linux reserves no CPU time for ordinary threads"
    return threads | groups, lacking


class Scheduled:
    """What one machine asks of the host's scheduler.

    Args:
        context: Where it runs.
        name: The machine's name.
        wanted: What is asked for.
    """

    def __init__(self, context: Context, name: str, wanted: Scheduling) -> None:
        self.wanted = wanted
        self._context = context
        self._name = name
        self._group: CpuGroup | None = None
        self._limits: tuple[str, ...] = ()

    async def hold(self, held: AsyncExitStack, *, realtime: bool, group: bool = True) -> bool:
        """Prepare the host before the machine starts; all is given back with ``held``.

        Args:
            held: Takes what is to be given back.
            realtime: Whether the machine carries real-time work in threads of the host.
            group: Whether a control group is to be made, where one is needed.

        Returns:
            Whether real-time throttling stays on although it should not.

        Raises:
            MachineFault: A control group cannot be made as asked.
        """
        host, ledger = self._context.host, self._context.ledger
        throttled = False
        if realtime or self.wanted.realtime:
            self._limits = await held.enter_async_context(unthrottled(host, ledger))
            # The fair server may stay on by itself: it is no throttling of control groups.
            throttled = any(str(RT_RUNTIME) in limit for limit in self._limits)
        if group:
            made = cpu_group(host, ledger, self._name, self.wanted, throttled=throttled)
            self._group = await held.enter_async_context(made)
        return throttled

    def around(self, argv: Sequence[str], *, threads: bool) -> list[str]:
        """Return the command that starts ``argv`` in the machine's control group.

        Args:
            argv: A program and its arguments.
            threads: Whether all its threads are to be scheduled as wanted, too.
        """
        given = [*(self._group.flags if self._group else ()), *(flags(self.wanted) * threads)]
        agent = str(self._context.host_agent)
        return [agent, "exec", *given, "--", *argv] if given else list(argv)

    def inside(self, argv: Sequence[str]) -> tuple[str, ...]:
        """Return the command that starts the agent ``argv`` as wanted within a container."""
        given = flags(self.wanted)
        return (argv[0], "exec", *given, "--", *argv) if given else tuple(argv)

    @property
    def group(self) -> Path | None:
        """The machine's control group for its CPUs, where it has one."""
        return None if self._group is None else self._group.folder

    @property
    def environment(self) -> dict[str, str]:
        """What tells an agent that its workloads keep the policy that they are given."""
        return {GIVEN_VARIABLE: "1"} if self.wanted.asks else {}

    async def apply(self, threads: Sequence[int], pid: int) -> Mapping[str, Any]:
        """Schedule some threads of the process ``pid`` as wanted, and prove it.

        Raises:
            MachineFault: It did not take; in the kernel's words.
        """
        if not self.wanted.asks:
            return self._told()
        told = await apply(self._context, self._name, threads, self.wanted)
        return await self._proof(told, pid)

    async def prove(self, threads: Sequence[int], pid: int) -> Mapping[str, Any]:
        """Prove that threads which were started so are scheduled as wanted.

        Raises:
            MachineFault: One is not.
        """
        if not self.wanted.asks:
            return self._told()
        return await self._proof(await prove(self._context, self._name, threads, self.wanted), pid)

    def adopt(self, folder: Path, values: Mapping[str, str]) -> None:
        """Take a group that a container's runtime makes for the machine's own."""
        self._group = CpuGroup(folder, values)

    async def _proof(self, told: list[dict[str, Any]], pid: int) -> Mapping[str, Any]:
        host = self._context.host
        proof: dict[str, Any] = {"asked": self.wanted.asked(), "threads": alike(told)}
        if self._group is not None:
            folder = self._group.folder
            await require_member(host, folder, pid)
            found = await read_back(host, folder, self._group.values)
            proof["group"] = {"path": str(folder), **found}
        elif self.wanted.nice is not None:
            session = await nice_session(host, pid, self.wanted.nice)
            if session is not None:
                proof["session"] = session
        return {"scheduling": proof, **self._told()}

    def _told(self) -> Mapping[str, Any]:
        """What takes the CPU from real-time threads here and could not be turned off."""
        return {"realtime_limits": list(self._limits)} if self._limits else {}
