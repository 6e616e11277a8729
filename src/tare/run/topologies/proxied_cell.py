"""One cell of three roles: a client asks an origin through the machine that is measured."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from tare.agent.client import Outcome
from tare.errors import TareError, WorkloadFault
from tare.platforms.linux.network import Tracked
from tare.platforms.linux.network import warnings as lost_by_tracking
from tare.workloads.network.ends import ORIGIN_PORT, ProxiedEnds, Stage, Through
from tare.workloads.values import finite, shortened

if TYPE_CHECKING:
    from tare.agent.barrier import Barrier
    from tare.agent.client import AgentClient, ProgressCallback
    from tare.agent.load import LoadHandle
    from tare.agent.series import Series
    from tare.platforms.contract import Below, CpuAccounting, Machine
    from tare.platforms.linux.network import Network
    from tare.run.cells.turns import Turns
    from tare.run.probes.host_counters import HostSampler

STOP_S = 30.0
VERSION_S = 60.0
EVERYWHERE = "0.0.0.0"
RESPONSES = "responses"
STAGES_USUAL = 21
"""So many stages a course has, about; only for what is told of its progress."""
RUNS = "http-load"


@dataclass(frozen=True)
class ProxiedMachines:
    """The machines of a cell in which one stands between two others.

    Args:
        subject: It; carries the proxy.
        client: Asks.
        origin: Answers.
        network: What all three are on.
        cpus: The host CPUs of each: of the subject, and of the others as far as it is known.
        watch: Where it is taken down who uses the host's CPUs.
        tare: The processes of that host that conduct it all.
        straight: Under which address the client reaches the origin with nothing between them;
            empty: there is always something.
        elsewhere: Which of ``client`` and ``origin`` run on another host than the subject, where
            a thread's number says nothing about this one's.
        neighbours: What loads the subject's host beside it all.
    """

    subject: Machine
    client: Machine
    origin: Machine
    network: Network
    cpus: Mapping[str, tuple[int, ...]]
    watch: HostSampler | None
    tare: tuple[int, ...] = ()
    straight: str = ""
    elsewhere: frozenset[str] = frozenset()
    neighbours: tuple[Machine, ...] = ()

    @property
    def outside(self) -> Mapping[str, Machine]:
        """Both that are outside the subject, by name."""
        return {"client": self.client, "origin": self.origin}

    async def outside_threads(self) -> dict[str, list[int]]:
        """Return the threads of the subject's host by whose they are beside the subject's own.

        Raises:
            MachineFault: One of them has ended.
        """
        beside = [tid for each in self.neighbours for tid in await each.threads()]
        return {
            **{
                name: [] if name in self.elsewhere else sorted(await machine.threads())
                for name, machine in self.outside.items()
            },
            "neighbours": sorted(beside),
        }

    def with_own_kernel(self) -> list[str]:
        """Return which of both tell by ``/proc/stat`` of CPUs that the subject's host has not."""
        return [
            name
            for name, machine in self.outside.items()
            if name in self.elsewhere or not machine.shares_clock
        ]

    async def carry_out(
        self,
        ends: ProxiedEnds,
        *,
        barrier: Barrier,
        deadline_s: float,
        on_progress: ProgressCallback,
        turns: Turns,
    ) -> Outcome:
        """Let both servers serve and the client put on one load after another.

        Each load is a turn, and so is what comes before the first.

        Returns:
            The outcome of the load that counts, whose value holds the results of all.

        Raises:
            MachineFault: An agent is lost.
            WorkloadFault: One of the three failed; the message names it, and what a switch that
                tracks connections lost meanwhile.
        """
        tracked = await self.network.tracked()
        try:
            host = self._host()
            conduct = partial(_Course, self, ends.through, host, barrier, on_progress, turns)
            return await self._served(ends, tracked, deadline_s, conduct, turns)
        except WorkloadFault as fault:
            lost = lost_by_tracking(await self._tracked(tracked))
            raise WorkloadFault("; ".join((str(fault), *lost))) from fault

    async def _served(
        self,
        ends: ProxiedEnds,
        tracked: Tracked | None,
        deadline_s: float,
        conduct: Callable[[Address], _Course],
        turns: Turns,
    ) -> Outcome:
        """Return the outcome of it all; ``tracked`` is what the switch listed before any load."""
        through = ends.through
        link = self.network.links[self.subject.name]
        async with AsyncExitStack() as servers:
            async with turns.turn():
                origins = await self.network.addresses(self.origin.name, through.origin_addresses)
                version = await self._version(through)
                # In a namespace of its own, where nothing but what is meant for it leads.
                listens = EVERYWHERE if self.straight or len(origins) > 1 else origins[0]
                serving = await self.origin.agent.start_load(
                    through.origin.workload, through.origin.at(listens, ORIGIN_PORT)
                )
                servers.push_async_callback(_stopped, serving)
                server = ends.server.at(link.address, ends.port, origins)
                proxying = await self.subject.agent.start_load(ends.server.workload, server)
                servers.push_async_callback(_stopped, proxying)
            course = conduct((link.address, ends.port, origins, self.straight))
            try:
                async with asyncio.timeout(deadline_s):
                    outcome = await _while_serving(
                        course.carry_out(), {"the origin": serving, "the proxy": proxying}
                    )
                    await turns.over()
            except TimeoutError:
                raise WorkloadFault(f"the course did not end within {deadline_s:.0f} s") from None
        network = {"way": link.way, **self.network.facts, **await self._tracked(tracked)}
        about = {
            "configuration": next(iter(server["files"].values())),
            "version": version,
            "interface": self.network.interface_of(self.subject.name),
            "network": network,
            "origins": list(origins),
            "warnings": [*outcome.value.get("warnings", ()), *lost_by_tracking(network)],
            "outside": {role: list(self.cpus.get(role, ())) for role in self.outside},
            "elsewhere": sorted(self.elsewhere),
            "own_kernel": self.with_own_kernel(),
            "cpus": list(self.cpus.get("subject", ())),
            "shared": self.subject.shares_clock,
            "offloads": {
                role: each.applied.get("network", {}) for role, each in self.outside.items()
            },
        }
        try:
            summed = through.summed({**outcome.value, **about})
        except (KeyError, ValueError, TypeError) as error:
            raise WorkloadFault(f"what the agents told cannot be read: {error!r}") from error
        return replace(outcome, value=dict(summed))

    async def _tracked(self, before: Tracked | None) -> dict[str, Any]:
        """Return for the record what the switch tracks, and what it lost since ``before``."""
        after = None if before is None else await self.network.tracked()
        return {} if before is None or after is None else {"tracked": after.since(before)}

    async def _version(self, through: Through) -> str:
        """Return what the server in the machine says of its version and build."""
        asked = {"steps": [{"argv": list(through.version)}]}
        told = await self.subject.agent.run("program", asked, deadline_s=VERSION_S)
        return str(told.value.get("output", ""))

    def _host(self) -> AgentClient:
        agent = None if self.watch is None else self.watch.agent
        if agent is None:
            why = "nothing watches it" if self.watch is None else self.watch.reason
            raise WorkloadFault(f"it cannot be taken down who uses the host's CPUs: {why}")
        return agent


Address = tuple[str, int, tuple[str, ...], str]
"""Of the machine and its port, of the origin, and the one that leads straight to it."""


@dataclass
class _Course:
    machines: ProxiedMachines
    through: Through
    host: AgentClient
    barrier: Barrier
    on_progress: ProgressCallback
    turns: Turns
    address: Address
    done: dict[str, dict[str, Any]] = field(default_factory=dict)
    beside: list[Series] = field(default_factory=list)

    async def carry_out(self) -> Outcome:
        counts: list[tuple[Stage, Outcome]] = []
        straight = bool(self.machines.straight)
        while (stage := self.through.following(self.done, straight)) is not None:
            self.on_progress(min(0.99, len(self.done) / STAGES_USUAL), {"stage": stage.name})
            if stage.in_sync:
                await self.turns.wait_in_sync()
            async with self.turns.turn():
                if stage.account is None:
                    await self._loaded(stage)
                else:
                    counts.append((stage, await self._counted(stage, stage.account)))
        if not counts:
            raise WorkloadFault("no load of the course counts")
        *_, (_, last) = counts
        told = {
            "stages": self.done,
            "warnings": _warnings(self.done),
            "rounds": [each.value for _, each in counts],
        }
        earlier = [series for each in counts[:-1] for series in _renamed(each[1], each[0].name)]
        series = (*last.series, *earlier, *self.beside)
        return replace(last, value={**last.value, **told}, series=series)

    async def _loaded(self, stage: Stage) -> None:
        # What stands beside the machine begins with the first load, and loads them all.
        found = await self._client(stage, None if self.done else self.barrier)
        self.done[stage.name] = found.value
        if stage.kept:
            self.beside += _renamed(found, stage.name)

    async def _client(self, stage: Stage, barrier: Barrier | None = None) -> Outcome:
        # The agent gives itself up long before; the course as a whole has a limit.
        params = stage.client.at(*self.address)
        try:
            return await self.machines.client.agent.run(
                stage.client.workload, params, barrier=barrier, deadline_s=_limit(params)
            )
        except WorkloadFault as fault:
            raise WorkloadFault(f"{stage.name}: {fault}") from fault

    async def _counted(self, stage: Stage, window: tuple[float, float]) -> Outcome:
        """Carry out the stage that counts, and take down who uses the CPUs meanwhile."""
        machines, subject = self.machines, self.machines.subject
        after_s, seconds = window
        own = machines.network.interface_of(subject.name)
        files = [path.replace("{interface}", own) for path in self.through.files]
        asked = {"after_s": after_s, "seconds": seconds, "files": files}
        inside = {**asked, "tasks": False, "ask": dict(self.through.ask)}
        limit_s = seconds + after_s + STOP_S
        threads, below = await subject.threads(), await subject.below()
        of_host = {**asked, "cycles": True, "command": [] if below is None else list(below.argv)}
        outside = {**asked, "tasks": False, "files": list(self.through.outside_files)}
        beside = [
            self.host.run("account", of_host, deadline_s=limit_s),
            subject.agent.run("account", inside, deadline_s=limit_s),
            machines.client.agent.run("account", outside, deadline_s=limit_s),
            machines.origin.agent.run("account", outside, deadline_s=limit_s),
        ]
        if stage.probe is not None:
            probe = stage.probe.at(*self.address)
            agent = machines.client.agent
            beside.append(agent.run(stage.probe.workload, probe, deadline_s=_limit(probe)))
        first, began = await subject.host_cost(), time.monotonic()
        found = await _together(self._client(stage), *beside)
        last, took_s = await subject.host_cost(), time.monotonic() - began
        client = found[0]
        names = ("host", "machine", "client", "origin")
        accounts = {name: each.value for name, each in zip(names, found[1:5], strict=True)}
        self.done[stage.name] = client.value
        if stage.probe is not None:
            self.done[stage.probe_name] = found[5].value
            self.beside += _renamed(found[5], stage.probe_name)
        machine_tids = {*threads, *await subject.threads()}
        given: dict[str, Any] = {}
        if below is not None and (still := await subject.below()) is not None:
            machine_tids |= {*below.threads, *still.threads}
            given["below"] = given_out_meanwhile(below, accounts["host"])
        vcpus = await subject.vcpu_threads()
        owners = {
            "machine": sorted(machine_tids),
            "vcpus": list(vcpus),
            **await machines.outside_threads(),
            "tare": list(machines.tare),
            "server": self.through.server if subject.shares_clock else "",
        }
        cost = {name: last[name] - first.get(name, 0.0) for name in last if name == "cpu_s"}
        value = {
            "accounts": accounts,
            "owners": owners,
            "cost": {**cost, "wall_s": took_s},
            **given,
        }
        return replace(client, value=value)


def _renamed(found: Outcome, stage: str) -> list[Series]:
    """Return the course of a stage under a name of its own, beside that of the load that counts."""
    return [
        replace(series, name=f"{stage}-{series.name}")
        for series in found.series
        if series.name == RESPONSES
    ]


def _limit(params: Mapping[str, Any]) -> float:
    seconds = sum(float(params.get(name, 0.0)) for name in ("seconds", "warmup_s", "timeout_s"))
    return 20.0 * seconds + STOP_S


async def _together(*works: Awaitable[Outcome]) -> list[Outcome]:
    """Return what all found; the first that fails ends the others."""
    tasks = [asyncio.ensure_future(work) for work in works]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
        for task in tasks:
            if task.done():
                task.result()
        return [await task for task in tasks]
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _while_serving(work: Awaitable[Outcome], servers: Mapping[str, LoadHandle]) -> Outcome:
    """Return what ``work`` found, unless a server ends before it does; it says why then."""
    ended = asyncio.Event()
    for handle in servers.values():
        handle.on_end(ended.set)
    working, ending = asyncio.ensure_future(work), asyncio.ensure_future(ended.wait())
    try:
        await asyncio.wait({working, ending}, return_when=asyncio.FIRST_COMPLETED)
        fault = working.exception() if working.done() else None
        if fault is None and working.done():
            return working.result()
        for who, handle in servers.items():
            if handle.ended:
                try:
                    await handle.stop(STOP_S)
                except WorkloadFault as error:
                    raise WorkloadFault(f"{who}: {error}") from error
                raise WorkloadFault(f"{who} ended while it was needed")
        return await working
    finally:
        for task in (working, ending):
            task.cancel()
        await asyncio.gather(working, ending, return_exceptions=True)


async def _stopped(handle: LoadHandle) -> None:
    """Stop a server; why it ended is told already where it mattered."""
    if not handle.ended:
        try:
            await handle.stop(STOP_S)
        except TareError:
            return


def _warnings(done: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Return the warnings of all stages; those that rounds of a stage share, once."""
    found: dict[tuple[str, str], list[str]] = {}
    for name, result in done.items():
        stage = name.partition(".")[0]
        for text in result.get("warnings", ()):
            words = re.sub(r"[\d.]+", "", text)
            found.setdefault((stage, words), []).append(text)
    return [
        f"{stage}: {texts[0]}" + (f" (and in {len(texts) - 1} more rounds)" if texts[1:] else "")
        for (stage, _), texts in found.items()
    ]


def given_out_meanwhile(below: Below, account: Mapping[str, Any]) -> dict[str, Any]:
    """Return who had the CPUs over a stretch of time, by the hypervisor below the host's kernel.

    Args:
        below: How the host was asked.
        account: What it accounts for: ``printed`` has what it was given near both ends.

    Returns:
        The machine's number (``domain``), how many ``cpus`` there are, and how many of them the
        ``machine``, the ``host``'s kernel and each of the ``others`` had; ``host_on``, which CPUs
        the host's kernel is kept on, as far as that is known.

    Raises:
        MachineFault: The machine has ended.
        WorkloadFault: The host's agent does not tell of two moments.
    """
    (first, began_s), (last, ended_s) = _looks(below, account)
    seconds = ended_s - began_s
    if seconds <= 0:
        raise WorkloadFault("the hypervisor below the host was asked twice in one moment")
    return {
        "domain": last.domain,
        "cpus": last.cpus,
        "machine": (last.machine_s - first.machine_s) / seconds,
        "host": (last.host_s - first.host_s) / seconds,
        "host_on": list(below.host_on),
        "others": {
            name: (spent - first.others.get(name, 0.0)) / seconds
            for name, spent in last.others.items()
        },
    }


def _looks(below: Below, account: Mapping[str, Any]) -> list[tuple[CpuAccounting, float]]:
    printed = account.get("printed")
    try:
        looks = [(str(each["text"]), finite(each["at_s"], "at_s")) for each in printed or ()]
    except (KeyError, TypeError, ValueError) as error:
        raise WorkloadFault(f"what the host printed cannot be read: {error!r}") from error
    if len(looks) != 2:
        raise WorkloadFault(f"the host printed {shortened(printed)}, not what it saw at both ends")
    return [(below.read(text), at_s) for text, at_s in looks]
