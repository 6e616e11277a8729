"""One cell of three roles: a client sends requests to an origin through the measured machine."""

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
from tare.workloads.network.ends import ORIGIN_PORT, ProxiedEnds, ProxiedTraffic, Stage
from tare.workloads.values import finite, shortened

if TYPE_CHECKING:
    from tare.agent.barrier import Barrier
    from tare.agent.client import AgentClient, LoadHandle, ProgressCallback
    from tare.agent.series import Series
    from tare.platforms.contract import CpuAccounting, HypervisorAccounting, Machine
    from tare.platforms.linux.network import Network
    from tare.run.cells.duet import Turns
    from tare.run.probes.host_counters import HostSampler

STOP_S = 30.0
VERSION_S = 60.0
EVERYWHERE = "0.0.0.0"
RESPONSES = "responses"
STAGES_USUAL = 21
"""The usual number of stages of a load search; only for the progress display."""


@dataclass(frozen=True)
class ProxiedMachines:
    """The machines of a cell in which one is between two others.

    Args:
        subject: The machine with the proxy.
        client: The machine that sends requests.
        origin: The machine that answers them.
        network: The network of all three.
        cpus: The host CPUs of each: of the subject, and of the others as far as known.
        watch: The sampler that records who uses the host's CPUs.
        tare: The processes of Tare on that host.
        direct: The address at which the client reaches the origin directly; empty: there is none.
        elsewhere: Which of ``client`` and ``origin`` run on another host than the subject, whose
            thread ids have no meaning on this one.
        neighbours: The machines that load the subject's host.
        carried: Whether the subject runs on another computer than the arm's host, such as a
            vendor's hypervisor. The users of that computer's CPUs are not known.
        unpinned: Whether the scenario binds the subject to CPUs, which its platform cannot do.
    """

    subject: Machine
    client: Machine
    origin: Machine
    network: Network
    cpus: Mapping[str, tuple[int, ...]]
    watch: HostSampler | None
    tare: tuple[int, ...] = ()
    direct: str = ""
    elsewhere: frozenset[str] = frozenset()
    neighbours: tuple[Machine, ...] = ()
    carried: bool = False
    unpinned: bool = False

    @property
    def outside(self) -> Mapping[str, Machine]:
        """Client and origin, by name."""
        return {"client": self.client, "origin": self.origin}

    async def outside_threads(self) -> dict[str, list[int]]:
        """Return the threads on the subject's host of all other machines, by owner.

        Raises:
            MachineFault: One of them has ended.
        """
        loads = [tid for each in self.neighbours for tid in await each.threads()]
        return {
            **{
                name: [] if name in self.elsewhere else sorted(await machine.threads())
                for name, machine in self.outside.items()
            },
            "neighbours": sorted(loads),
        }

    def with_own_kernel(self) -> list[str]:
        """Return which of client and origin lack the ``/proc/stat`` of the subject's host."""
        return [
            name
            for name, machine in self.outside.items()
            if name in self.elsewhere or not machine.shares_clock
        ]

    async def run(
        self,
        ends: ProxiedEnds,
        *,
        barrier: Barrier,
        deadline_s: float,
        on_progress: ProgressCallback,
        turns: Turns,
    ) -> Outcome:
        """Run both servers, and one load of the client after another.

        Each load is a turn, and so is the preparation before the first.

        Returns:
            The outcome of the load that counts, whose value has the results of all loads.

        Raises:
            MachineFault: An agent is lost.
            WorkloadFault: One of the three failed; the message names it, and the losses of a switch
                that tracks connections.
        """
        tracked = await self.network.tracked()
        try:
            host = self._host()
            begin = partial(_LoadSearch, self, ends.through, host, barrier, on_progress, turns)
            return await self._served(ends, tracked, deadline_s, begin, turns)
        except WorkloadFault as fault:
            lost = lost_by_tracking(await self._tracked(tracked))
            raise WorkloadFault("; ".join((str(fault), *lost))) from fault

    async def _served(
        self,
        ends: ProxiedEnds,
        tracked: Tracked | None,
        deadline_s: float,
        begin: Callable[[Address], _LoadSearch],
        turns: Turns,
    ) -> Outcome:
        """Run the servers and all loads; ``tracked``: the switch's connections before any load."""
        through = ends.through
        link = self.network.links[self.subject.name]
        async with AsyncExitStack() as servers:
            async with turns.turn():
                origins = await self._origins(through.origin_addresses)
                version = await self._version(through)
                # Listening everywhere is safe: only the origin's own traffic reaches its namespace.
                first, *more = dict.fromkeys(each.partition(":")[0] for each in origins)
                listens = EVERYWHERE if self.direct or more else first
                serving = await self.origin.agent.start_load(
                    through.origin.workload, through.origin.at(listens, ORIGIN_PORT)
                )
                servers.push_async_callback(_stopped, serving)
                server = ends.server.at(link.address, ends.port, origins)
                proxying = await self.subject.agent.start_load(ends.server.workload, server)
                servers.push_async_callback(_stopped, proxying)
            search = begin((link.address, ends.port, origins, self.direct))
            try:
                async with asyncio.timeout(deadline_s):
                    outcome = await _run_while_serving(
                        search.run(), {"the origin": serving, "the proxy": proxying}
                    )
                    await turns.over()
            except TimeoutError:
                raise WorkloadFault(f"the loads did not end within {deadline_s:.0f} s") from None
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
            "unpinned": self.unpinned,
            "shared": self.subject.shares_clock,
            "offloads": {
                role: each.applied.get("network", {}) for role, each in self.outside.items()
            },
        }
        try:
            summed = through.summed({**outcome.value, **about})
        except (KeyError, ValueError, TypeError) as error:
            raise WorkloadFault(f"the agents' results cannot be read: {error!r}") from error
        return replace(outcome, value=dict(summed))

    async def _origins(self, count: int) -> tuple[str, ...]:
        """Return ``count`` addresses of the origin, or ports of it if it has only one address."""
        found = await self.network.addresses(self.origin.name, count)
        if len(found) == count:
            return found
        return tuple(f"{found[0]}:{ORIGIN_PORT + more}" for more in range(count))

    async def _tracked(self, before: Tracked | None) -> dict[str, Any]:
        """Return the connections that the switch tracks, and its losses since ``before``."""
        after = None if before is None else await self.network.tracked()
        return {} if before is None or after is None else {"tracked": after.since(before)}

    async def _version(self, through: ProxiedTraffic) -> str:
        """Return the version and build that the server in the machine reports."""
        request = {"steps": [{"argv": list(through.version)}]}
        outcome = await self.subject.agent.run("program", request, deadline_s=VERSION_S)
        return str(outcome.value.get("output", ""))

    def _host(self) -> AgentClient | None:
        """Return the agent that records who uses the host's CPUs; None: it is another host."""
        if self.carried:
            return None
        agent = None if self.watch is None else self.watch.agent
        if agent is None:
            why = "there is no sampler" if self.watch is None else self.watch.reason
            raise WorkloadFault(f"the use of the host's CPUs cannot be recorded: {why}")
        return agent


Address = tuple[str, int, tuple[str, ...], str]
"""The machine's address and port, the origin's addresses, and its direct one."""


@dataclass
class _LoadSearch:
    machines: ProxiedMachines
    through: ProxiedTraffic
    host: AgentClient | None
    barrier: Barrier
    on_progress: ProgressCallback
    turns: Turns
    address: Address
    done: dict[str, dict[str, Any]] = field(default_factory=dict)
    kept: list[Series] = field(default_factory=list)

    async def run(self) -> Outcome:
        counts: list[tuple[Stage, Outcome]] = []
        direct = bool(self.machines.direct)
        while (stage := self.through.following(self.done, direct)) is not None:
            self.on_progress(min(0.99, len(self.done) / STAGES_USUAL), {"stage": stage.name})
            if stage.in_sync:
                await self.turns.wait_in_sync()
            async with self.turns.turn():
                if stage.account is None:
                    await self._loaded(stage)
                else:
                    counts.append((stage, await self._counted(stage, stage.account)))
        if not counts:
            raise WorkloadFault("none of the loads counts")
        *_, (_, last) = counts
        results = {
            "stages": self.done,
            "warnings": _warnings(self.done),
            "rounds": [each.value for _, each in counts],
        }
        earlier = [series for each in counts[:-1] for series in _renamed(each[1], each[0].name)]
        series = (*last.series, *earlier, *self.kept)
        return replace(last, value={**last.value, **results}, series=series)

    async def _loaded(self, stage: Stage) -> None:
        # The neighbours' loads start with the first load, and continue through all loads.
        found = await self._client(stage, None if self.done else self.barrier)
        self.done[stage.name] = found.value
        if stage.kept:
            self.kept += _renamed(found, stage.name)

    async def _client(self, stage: Stage, barrier: Barrier | None = None) -> Outcome:
        # The agent gives up long before this; all loads together have a limit.
        params = stage.client.at(*self.address)
        try:
            return await self.machines.client.agent.run(
                stage.client.workload, params, barrier=barrier, deadline_s=_limit(params)
            )
        except WorkloadFault as fault:
            raise WorkloadFault(f"{stage.name}: {fault}") from fault

    async def _counted(self, stage: Stage, window: tuple[float, float]) -> Outcome:
        """Run the stage that counts, and record who uses the CPUs meanwhile."""
        machines, subject = self.machines, self.machines.subject
        after_s, seconds = window
        own = machines.network.interface_of(subject.name)
        files = [path.replace("{interface}", own) for path in self.through.files]
        request = {"after_s": after_s, "seconds": seconds, "files": files}
        inside = {**request, "tasks": False, "ask": dict(self.through.ask)}
        limit_s = seconds + after_s + STOP_S
        threads, below = await subject.threads(), await subject.below()
        of_host = {**request, "cycles": True, "command": [] if below is None else list(below.argv)}
        outside = {**request, "tasks": False, "files": list(self.through.outside_files)}
        accounting = {
            "machine": subject.agent.run("account", inside, deadline_s=limit_s),
            "client": machines.client.agent.run("account", outside, deadline_s=limit_s),
            "origin": machines.origin.agent.run("account", outside, deadline_s=limit_s),
        }
        if self.host is not None:
            counting = self.host.run("account", of_host, deadline_s=limit_s)
            accounting = {"host": counting, **accounting}
        loads = [self._client(stage)]
        if stage.probe is not None:
            probe = stage.probe.at(*self.address)
            agent = machines.client.agent
            loads.append(agent.run(stage.probe.workload, probe, deadline_s=_limit(probe)))
        first, began = await subject.host_cost(), time.monotonic()
        client, *found = await _run_all(*loads, *accounting.values())
        last, took_s = await subject.host_cost(), time.monotonic() - began
        self.done[stage.name] = client.value
        if stage.probe is not None:
            probed, *found = found
            self.done[stage.probe_name] = probed.value
            self.kept += _renamed(probed, stage.probe_name)
        accounts = {name: each.value for name, each in zip(accounting, found, strict=True)}
        machine_tids = {*threads, *await subject.threads()}
        given: dict[str, Any] = {}
        if below is not None and (still := await subject.below()) is not None:
            machine_tids |= {*below.threads, *still.threads}
            given["below"] = cpu_shares_below(below, accounts["host"])
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
    """Return the response series of a stage with the stage's name in front."""
    return [
        replace(series, name=f"{stage}-{series.name}")
        for series in found.series
        if series.name == RESPONSES
    ]


def _limit(params: Mapping[str, Any]) -> float:
    seconds = sum(float(params.get(name, 0.0)) for name in ("seconds", "warmup_s", "timeout_s"))
    return 20.0 * seconds + STOP_S


async def _run_all(*works: Awaitable[Outcome]) -> list[Outcome]:
    """Return all results; the first that fails ends the others."""
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


async def _run_while_serving(
    work: Awaitable[Outcome], servers: Mapping[str, LoadHandle]
) -> Outcome:
    """Return the result of ``work``, unless a server ends before; then raise its reason."""
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
    """Stop a server and ignore its faults, which are reported where they matter."""
    if not handle.ended:
        try:
            await handle.stop(STOP_S)
        except TareError:
            return


def _warnings(done: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Return the warnings of all stages; those that rounds of a stage share only once."""
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


def cpu_shares_below(below: HypervisorAccounting, account: Mapping[str, Any]) -> dict[str, Any]:
    """Return who used the CPUs over a period, according to the hypervisor below the host's kernel.

    Args:
        below: The query of the hypervisor.
        account: The host's accounting: ``printed`` has the hypervisor's output near both ends.

    Returns:
        The machine's number (``domain``), the number of ``cpus``, and how many of them the
        ``machine``, the ``host``'s kernel and each of the ``others`` used; ``host_on``: the CPUs
        to which the host's kernel is bound, as far as known.

    Raises:
        MachineFault: The machine has ended.
        WorkloadFault: The host's agent does not report two moments.
    """
    (first, began_s), (last, ended_s) = _looks(below, account)
    seconds = ended_s - began_s
    if seconds <= 0:
        raise WorkloadFault("the two readings of the hypervisor below the host have the same time")
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


def _looks(
    below: HypervisorAccounting, account: Mapping[str, Any]
) -> list[tuple[CpuAccounting, float]]:
    printed = account.get("printed")
    try:
        looks = [(str(each["text"]), finite(each["at_s"], "at_s")) for each in printed or ()]
    except (KeyError, TypeError, ValueError) as error:
        raise WorkloadFault(f"the output of the host cannot be read: {error!r}") from error
    if len(looks) != 2:
        raise WorkloadFault(f"the host printed {shortened(printed)} instead of two readings")
    return [(below.read(text), at_s) for text, at_s in looks]
