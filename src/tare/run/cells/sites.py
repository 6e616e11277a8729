"""Where the machines of one batch run: their arm's host, and others that a scenario names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from tare.errors import MachineFault
from tare.platforms.contract import Context, Machine, Platform, PlatformOptions, Prepared, Shape
from tare.run.probes.host_hardware import HostHardware
from tare.run.probes.memory_traffic import MemoryTraffic

if TYPE_CHECKING:
    from tare.probes import Probe
    from tare.run.hosts.contract import RunHost
    from tare.study.model.releases import Release
    from tare.study.planning.cells import Batch
    from tare.workloads import MachineFacts
    from tare.workloads.contract import Workload


@dataclass(frozen=True)
class ReadyArm:
    """An arm that can run here: its platform, what that boots, and its size.

    ``needs`` are those of the study's workloads, for which what it boots was made.
    """

    name: str
    platform: Platform[Any]
    options: PlatformOptions
    kernel: str | None
    prepared: Prepared
    shape: Shape
    realtime: bool
    facts: MachineFacts
    needs: frozenset[str] = frozenset()
    release: Release | None = None

    def at(self, context: Context) -> Context:
        """Return where its machines are started: with the kernel and the release that it names."""
        return replace(context, kernel=self.kernel, release=self.release)

    def memory_probes(
        self,
        context: Context,
        workload: Workload[Any],
        given: Mapping[str, Any],
        machines: Mapping[str, Machine],
        apart: Sequence[int],
    ) -> tuple[Probe, ...]:
        """Return the probes of the host's caches and memory bus; none where a cell wants none.

        Args:
            context: Where the machines run.
            workload: Of the cell.
            given: The cell's parameters.
            machines: The machines by role.
            apart: CPUs that the counting process avoids.
        """
        asked = workload.parameters.model_validate(dict(given))
        elsewhere = self.platform.stated(self.options).elsewhere
        if elsewhere or not workload.counts_memory(asked):
            return ()
        return (HostHardware(context, machines, apart), MemoryTraffic(context.host))


@dataclass(frozen=True)
class Site:
    """One host as the machines of one arm need it.

    Args:
        run_host: The host.
        context: Where platforms work, on the host as it is booted for the arm.
        platform: The arm's platform as it is there.
        prepared: What its machines boot there.
    """

    run_host: RunHost
    context: Context
    platform: Platform[Any]
    prepared: Prepared


@dataclass
class OtherHosts:
    """The hosts beside an arm's own on which further machines of the arm run.

    Args:
        run_hosts: All hosts of the run by name.
    """

    run_hosts: Mapping[str, RunHost]
    _prepared: dict[tuple[str, str], Prepared] = field(default_factory=dict)

    async def sites(self, batch: Batch, arm: ReadyArm) -> dict[str, Site]:
        """Return the hosts that a batch names beside its arm's own, booted for it, by name.

        Raises:
            MachineFault: One does not come up, or the platform cannot be used there.
            InputError: One cannot be booted so.
        """
        names = dict.fromkeys(each.host for each in batch.placement.companions if each.host)
        return {name: await self._site(name, batch, arm) for name in names}

    async def _site(self, name: str, batch: Batch, arm: ReadyArm) -> Site:
        run_host = self.run_hosts[name]
        platform = run_host.platforms[arm.platform.name]
        where = await run_host.under(
            run_host.boot_of(platform, arm.options, arm.release), batch.block
        )
        context = replace(arm.at(where), needs=arm.needs)
        if (arm.name, name) not in self._prepared:
            verdict = await platform.check(context, arm.options)
            if not verdict.usable:
                raise MachineFault(f"{name}: {verdict.reason}", verdict.hint)
            made = await platform.prepare(context, arm.options, arm.shape, arm.realtime)
            self._prepared[arm.name, name] = replace(made, toolbox=arm.prepared.toolbox)
        return Site(run_host, context, platform, self._prepared[arm.name, name])
