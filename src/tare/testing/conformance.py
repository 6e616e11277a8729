"""The cases that every platform must pass, in Tare or in a package of its own.

A test file of an extension has a few lines::

    from tare.testing.conformance import PlatformCases

    class TestMine(PlatformCases):
        platform = Mine()

The cases depend on the capabilities that the platform states and those that its check found, never
on its name. Cases of capabilities that it does not state are skipped, with the reason. The cases up
to :meth:`PlatformCases.test_two_machines` share two machines, because a boot may take a minute.
Only
cases that end a machine have their own.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import pytest
import pytest_asyncio
from pydantic import ValidationError

from tare.errors import InputError, MachineFault
from tare.hosts import Ledger, LocalHost, clean
from tare.hosts.processes import kill_and_wait
from tare.hosts.trace.threads import allowed_cpus
from tare.images.cache import default_cache
from tare.platforms.contract import Capabilities, Context, Platform, PlatformOptions, Shape, Verdict
from tare.platforms.host_hypervisor import hypervisor_of, hypervisors_of
from tare.platforms.linux.network import chosen_way, offered_network, with_network
from tare.platforms.vendors.offer import least_memory
from tare.registry import installed
from tare.run.lifecycle.session import agent_path
from tare.run.topologies.peers import Peer, connected, require_network, started_peer
from tare.testing.connected_machines import NETWORK_S, MachineKind, exchanges, two_apart
from tare.testing.hosts import SecondHost, second_host
from tare.testing.leftovers import remains_in, remains_of
from tare.testing.machines import SECOND, WORK, Machines, RunningMachine
from tare.testing.missing_capabilities import CROWDED, FITS, demanding_plan, lacking

MIB = 1 << 20
DISK = 48 * MIB
LONG_S = 300.0
MAIL = {"work": "varmail", "seconds": 0.3, "files": 40, "mean_bytes": 4096, "threads": 4}
NOTICED_S = 60.0
"""Seconds within which the death of a killed machine must be noticed."""


class PlatformCases:
    """The conformance cases. A subclass chooses the platform by overriding the first attributes."""

    pytestmark = pytest.mark.asyncio(loop_scope="module")

    platform: ClassVar[Platform[Any]]
    """The platform under test."""
    options: ClassVar[PlatformOptions]
    """The options for the tests; by default, the platform's default options."""
    patience_s: ClassVar[float] = 120.0
    """Seconds that a machine may take to boot, and to answer a request."""

    killed_words: ClassVar[str] = ""
    """A text that the reported reason must contain after `kill` ended a machine."""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if "platform" in cls.__dict__ and "options" not in cls.__dict__:
            cls.options = cls.platform.options()

    @pytest.fixture(scope="class")
    @classmethod
    def context(cls) -> Iterator[Context]:
        """Yield the context of this computer. Override it for another host."""
        agent = agent_path()
        with (
            tempfile.TemporaryDirectory(prefix="tare-test-") as folder,
            Ledger(Path(folder) / "ledger") as ledger,
        ):
            yield Context(LocalHost(agent), ledger, default_cache(), agent)

    @pytest_asyncio.fixture(scope="class", loop_scope="module")
    @classmethod
    async def elsewhere(cls, context: Context) -> AsyncIterator[SecondHost | None]:
        """Yield a second host, by default one created on the first; None if there is none."""
        with tempfile.TemporaryDirectory(prefix="tare-test-") as folder:
            async with second_host(context, Path(folder) / "ledger") as made:
                yield None if made is None else SecondHost(made)

    @classmethod
    def cpus(cls, context: Context, able: Capabilities) -> tuple[int, ...]:
        """Return the host CPUs that machines are pinned to: the last CPU of their host."""
        elsewhere = cls.platform.stated(cls.options).elsewhere
        return (able.max_vcpus - 1,) if elsewhere else context.host.topology().online[-1:]

    async def kill(self, running: RunningMachine) -> None:
        """Kill a machine from outside, with SIGKILL to the host's threads that it lists.

        A machine that is not a process of the host needs another way, such as ``xl destroy``.
        """
        threads = await running.machine.threads()
        assert threads, "it lists no threads on its host: override `kill`"
        await kill_and_wait(running.context.host, tuple(threads))

    # The fixtures that the cases share.

    @pytest_asyncio.fixture(scope="class", loop_scope="module")
    @classmethod
    async def verdict(cls, context: Context) -> Verdict:
        """Return the result of the platform's check; fail if the platform is not usable here."""
        found = await cls.platform.check(context, cls.options)
        if not found.usable:
            pytest.fail(f"{cls.platform.name} is not usable here: {found.reason}; {found.hint}")
        ways = cls.platform.stated(cls.options).network
        able = with_network(found.capabilities, *await offered_network(context, ways))
        return replace(found, capabilities=able)

    @pytest.fixture(scope="class")
    @classmethod
    def shape(cls, verdict: Verdict) -> Shape:
        """Return the size of the machines: small, with a disk if the platform supports one."""
        able = verdict.capabilities
        return Shape(1, least_memory(able, 192 * MIB), DISK if able.disk else 0)

    @pytest_asyncio.fixture(scope="class", loop_scope="module")
    @classmethod
    async def machines(
        cls, context: Context, verdict: Verdict, shape: Shape
    ) -> AsyncIterator[Machines]:
        """Yield an object that starts machines; afterwards, check that no machine left anything."""
        first = context.ledger.next_number
        async with AsyncExitStack() as held:
            able = verdict.capabilities
            connection = None
            if able.network:
                joined = connected([context], cls.platform, cls.options, several=False)
                connection = await held.enter_async_context(joined)
            machines = Machines(
                cls.platform,
                cls.options,
                context,
                shape=shape,
                cpus=cls.cpus(context, able) if able.pinning else (),
                patience_s=cls.patience_s,
                connection=connection,
            )
            held.push_async_callback(machines.close)
            yield machines
        entries = range(first, context.ledger.next_number)
        assert await remains_in(context.host, context.ledger, entries) == []

    # Cases of the platform's statement.

    async def test_states(self) -> None:
        """It says what it is in words, the same each time, and tries nothing for it."""
        stated = self.platform.stated(self.options)
        assert stated == self.platform.stated(self.options)
        assert self.platform.name and self.platform.describe(self.options)
        assert stated.kernel and stated.channel
        if word := hypervisor_of(stated.host_boot):
            known = hypervisors_of([self.platform, *installed().platforms.values()])
            assert word in known, "`host_hypervisors` says how its host's hypervisor is recognised"
        assert (type(self.platform).__doc__ or "").strip(), (
            "its docstring is its summary in the docs"
        )
        for variant in self.platform.variants:
            assert self.platform.describe(
                self.platform.options.model_validate(dict(variant.options))
            )

    async def test_check(self, verdict: Verdict) -> None:
        """Its check finds no more than it states, and gives a reason for what is lacking."""
        stated = self.platform.stated(self.options)
        best, found = stated.capabilities, verdict.capabilities
        assert verdict.reason and verdict.versions
        # A platform that is not emulated itself still counts as emulated on an emulated host.
        assert verdict.emulated >= stated.emulated
        assert found.pinning <= best.pinning
        assert found.neighbours <= best.neighbours
        assert found.devices <= best.devices
        assert found.disk <= best.disk
        assert found.toolbox <= best.toolbox
        assert found.knobs <= best.knobs
        assert best.knobs - found.knobs <= set(found.missing_knobs)
        assert found.max_vcpus > 0
        assert best.max_vcpus in (0, found.max_vcpus)
        assert found.min_memory == best.min_memory

    async def test_refuses(
        self,
        context: Context,
        shape: Shape,
        verdict: Verdict,
    ) -> None:
        """What it does not state is refused, or skipped with a reason, before anything starts."""
        with pytest.raises(ValidationError):
            self.platform.options.model_validate({"no-such-option": 1})
        if not verdict.capabilities.network:
            with pytest.raises(InputError):
                chosen_way(self.options, verdict.capabilities.network)
        plan = demanding_plan(self.platform, self.options, context, shape, verdict)
        assert all(skip.reason for skip in plan.skipped)
        assert any(skip.arm == CROWDED and skip.workload is None for skip in plan.skipped)
        refused = {(skip.scenario, skip.workload) for skip in plan.skipped if skip.arm == FITS}
        assert lacking(verdict.capabilities) <= refused

    # Cases of a running machine.

    async def test_creates(self, machines: Machines) -> None:
        """A machine is what was asked for, and the ledger knew of it first."""
        running = await machines.subject()
        assert running.machine.name == running.spec.name
        assert not running.machine.died.done()
        noted = {entry.number for entry in running.context.ledger.open_entries()}
        assert noted & set(running.entries), "the ledger does not list it"
        assert await running.context.host.exists(running.spec.workdir)

    async def test_ready(self, machines: Machines) -> None:
        """Its agent says hello, proves where it is, and reports its clock."""
        running = await machines.subject()
        assert running.hello.role in ("init", "process")
        assert running.hello.proof["kernel"]
        assert WORK in running.hello.workloads
        reading = await running.machine.agent.clock()
        if running.machine.shares_clock:
            assert reading.host_before_ns <= reading.guest_ns <= reading.host_after_ns

    async def test_pins(self, machines: Machines, verdict: Verdict) -> None:
        """Each vCPU runs on the host CPUs that it was given, and nowhere else."""
        if not verdict.capabilities.pinning:
            pytest.skip("it does not state that it can pin")
        running = await machines.subject()
        wanted = self.cpus(running.context, verdict.capabilities)
        assert await seen_cpus(running) == set(wanted)

    async def test_measures(self, machines: Machines) -> None:
        """It runs a workload, and reports what that cost the host."""
        running = await machines.subject()
        before = await running.machine.host_cost()
        outcome = await running.measure()
        after = await running.machine.host_cost()
        assert outcome.value["iterations_per_s"] > 0
        assert outcome.timing["ended_ns"] > outcome.timing["started_ns"]
        assert after.get("cpu_s", 0.0) >= before.get("cpu_s", 0.0)
        assert all(value >= 0 for value in after.values())

    async def test_network(self, machines: Machines, verdict: Verdict) -> None:
        """A peer sends it packets of full size, and gets them back."""
        if not verdict.capabilities.network:
            pytest.skip("it states no way to a network that is open here")
        running = await machines.subject()
        assert machines.connection is not None
        require_network(running.spec.name, running.hello.proof)
        network = machines.connection.network
        if machines.connection.own_ends:
            # No process of the host can reach an isolated network, so the peer is a machine on it.
            peer = Peer((await machines.second()).machine, network)
            await peer.prove(running.machine, (NETWORK_S[verdict.emulated],))
            return
        async with started_peer(running.context, network, running.spec) as peer:
            await peer.prove(running.machine, (NETWORK_S[verdict.emulated],))

    async def test_disk(self, machines: Machines, shape: Shape) -> None:
        """It has a file system on a disk of its own, of the size asked for, which takes work."""
        if not shape.disk:
            pytest.skip("it does not state that its machines can have a disk")
        running = await machines.subject()
        assert running.hello.proof["scratch"]["file_system"] == "ext4"
        assert running.machine.applied["disk"]["bytes"] == shape.disk
        mail = {**MAIL, "memory_bytes": shape.memory}
        outcome = await running.machine.agent.run("filebench", mail, deadline_s=self.patience_s)
        assert outcome.value["operations"] > 0
        assert await running.machine.forget_disk()

    async def test_neighbour(self, machines: Machines, verdict: Verdict) -> None:
        """Another machine loads the CPUs next to it, and both keep running."""
        if not verdict.capabilities.neighbours:
            pytest.skip("it does not state that machines can run next to each other")
        subject, second = await machines.subject(), await machines.second()
        load = await second.machine.agent.start_load("cpu-load", {"threads": 1})
        outcome = await subject.measure()
        assert outcome.value["iterations_per_s"] > 0
        assert not load.ended
        assert (await load.stop(self.patience_s)).value

    async def test_two_machines(self, machines: Machines, verdict: Verdict) -> None:
        """Two machines of one cell have their roles, and reach each other on one network."""
        if not verdict.capabilities.neighbours:
            pytest.skip("it does not state that machines can run next to each other")
        subject, second = await machines.subject(), await machines.second()
        assert (subject.spec.role, second.spec.role) == ("subject", SECOND)
        assert subject.machine.name != second.machine.name
        if subject.spec.network is None:
            pytest.skip("it states no way to a network that is open here")
        links = subject.spec.network.links
        there = links[second.spec.name]
        if there.forwards:
            pytest.skip(f"machines of a {there.way} network reach nothing by themselves")
        seconds = NETWORK_S[verdict.emulated]
        assert await exchanges(subject, second, there, seconds, self.patience_s) > 0

    # Cases of a machine's end.

    async def test_stops(self, machines: Machines) -> None:
        """It stops when asked, twice as well as once, and leaves nothing behind."""
        running = machines.take(await machines.subject())
        await running.machine.stop()
        await running.machine.stop()
        assert not running.machine.died.done()
        assert await running.remains() == []

    async def test_dies(self, machines: Machines, verdict: Verdict) -> None:
        """It is killed from outside: the reason is known, its cell fails, and nothing is left."""
        running = machines.take(await machines.second())
        work = asyncio.ensure_future(running.measure(LONG_S))
        await asyncio.sleep(0.2)
        await self.kill(running)
        fault = await asyncio.wait_for(running.machine.died, NOTICED_S)
        assert running.spec.name in fault.message
        assert self.killed_words in fault.message
        with pytest.raises(MachineFault):
            await work
        await running.machine.stop()
        assert await running.remains() == []

    async def test_loses_its_connection(self, machines: Machines) -> None:
        """The channel to its agent breaks: its cell fails, and stopping still removes it all."""
        running = await machines.fresh()
        work = asyncio.ensure_future(running.measure(LONG_S))
        await asyncio.sleep(0.2)
        await running.machine.agent.close()
        with pytest.raises(MachineFault):
            await work
        with pytest.raises(MachineFault):
            await running.machine.agent.clock()
        await running.machine.stop()
        assert await running.remains() == []

    async def test_is_cleaned(self, machines: Machines) -> None:
        """The ledger alone suffices to remove it, as after a Tare that was killed as it began."""
        running = await machines.begin()
        host, ledger = running.context.host, running.context.ledger
        messages = await clean(host, ledger, self.platform.undoers, since=running.entries.start)
        assert await running.remains() == [], messages
        await running.machine.stop()
        assert await running.remains() == []

    async def test_two_hosts(
        self, context: Context, verdict: Verdict, shape: Shape, elsewhere: SecondHost | None
    ) -> None:
        """Two machines of one cell are on two hosts, and reach each other on one network."""
        if elsewhere is None:
            pytest.skip("no second host can be made here: be root, or override `elsewhere`")
        kinds = (
            MachineKind(context, self.platform, self.options),
            MachineKind(
                elsewhere.context,
                elsewhere.platform or self.platform,
                elsewhere.options or self.options,
            ),
        )
        firsts = [kind.context.ledger.next_number for kind in kinds]
        async with two_apart(kinds, shape, self.patience_s) as both:
            subject, second = both
            for outcome in await asyncio.gather(*(each.measure() for each in both)):
                assert outcome.value["iterations_per_s"] > 0
            if subject.spec.network is None:
                assert not all([await kind.way() for kind in kinds])
            else:
                links, seconds = subject.spec.network.links, NETWORK_S[verdict.emulated]
                for one, other in ((subject, second), (second, subject)):
                    there = links[other.spec.name]
                    assert await exchanges(one, other, there, seconds, self.patience_s) > 0
            for each in both:
                await each.machine.stop()
                assert await remains_of(each.context.host, each.spec) == []
        for kind, first in zip(kinds, firsts, strict=True):
            host, ledger = kind.context.host, kind.context.ledger
            assert await remains_in(host, ledger, range(first, ledger.next_number)) == []


async def seen_cpus(running: RunningMachine) -> set[int]:
    """Return the host CPUs that a machine's vCPUs may run on, as reported by the host.

    If vCPUs are threads of the host, their affinity is read; if the machine is a process, that of
    all
    its threads. Other machines report their CPUs once they are ready: in ``applied["scheduling"]``,
    ``vcpus`` has the list of CPUs as text for each vCPU.
    """
    machine = running.machine
    threads = await machine.vcpu_threads() or tuple(await machine.threads())
    if threads:
        allowed = [await allowed_cpus(running.context.host, thread) for thread in threads]
        return {cpu for cpus in allowed for cpu in cpus}
    listed = machine.applied.get("scheduling", {}).get("vcpus", {})
    return {int(cpu) for words in listed.values() for cpu in words.split(",")}
