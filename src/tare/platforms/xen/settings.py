"""Settings of Xen, of dom0 and of a domain: ``xl`` reads, sets and verifies each of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tare.hosts import Host
from tare.platforms.contract import Setting
from tare.platforms.xen import output as xen_output
from tare.platforms.xen import toolstack as xen
from tare.platforms.xen.rtds import Rtds, granted

Values = dict[str, str]


class XenSetting(Setting[Values]):
    """A setting of Xen or of dom0, which all domains of a run share.

    Args:
        host: The host's dom0.
    """

    kind = "xen-setting"
    what: str
    """The word by which the ledger distinguishes this setting from others."""

    def __init__(self, host: Host) -> None:
        self._host = host

    @property
    def details(self) -> Mapping[str, Any]:
        """The kind of setting, for the ledger."""
        return {"what": self.what}

    def shown(self, value: Values) -> str:
        """Return the values in words, such as ``tslice 1000, ratelimit 500``."""
        return ", ".join(f"{name} {each}" for name, each in value.items())


class SchedulerParameters(XenSetting):
    """Parameters of the scheduler of a CPU pool: ``tslice`` and ``ratelimit``, in microseconds.

    Args:
        host: The host.
        scheduler: The pool's scheduler.
        pool: The pool.
        names: The names of the parameters to set.
    """

    what = "scheduler"

    def __init__(
        self, host: Host, scheduler: str, pool: str, names: Mapping[str, Any] | tuple[str, ...]
    ) -> None:
        super().__init__(host)
        self._scheduler = scheduler
        self._pool = pool
        self._names = tuple(names)

    @property
    def details(self) -> Mapping[str, Any]:
        """The scheduler and the pool, for the ledger."""
        return {**super().details, "scheduler": self._scheduler, "pool": self._pool}

    @property
    def words(self) -> str:
        """The scheduler and the pool, in words."""
        return f"Xen's scheduler {self._scheduler} of pool {self._pool}"

    async def read(self) -> Values:
        """Return the parameters, as far as the scheduler has them."""
        found = await scheduler_parameters(self._host, self._scheduler, self._pool)
        return {name: found[name] for name in self._names if name in found}

    async def set(self, value: Values) -> str:
        """Set the parameters; raises MachineFault with Xen's message."""
        words = []
        if "tslice" in value:
            words += ["-t", str(int(value["tslice"]) // 1000)]
        if "ratelimit" in value:
            words += ["-r", value["ratelimit"]]
        await xen.asked(self._host, f"sched-{self._scheduler}", "-s", "-p", self._pool, *words)
        return ""


async def scheduler_parameters(host: Host, scheduler: str, pool: str) -> Values:
    """Return all parameters of a pool's scheduler in microseconds, as text.

    Raises:
        MachineFault: Xen refuses, with its message.
    """
    shown = await xen.asked(host, f"sched-{scheduler}", "-s", "-p", pool)
    return {name: str(value) for name, value in xen_output.parameters(shown).items()}


class Dom0Pinning(XenSetting):
    """The CPUs that each of dom0's vCPUs may use, by its number, as ``xl vcpu-list`` writes them.

    Args:
        host: The host.
        vcpus: The numbers of the vCPUs.
    """

    what = "pin"
    words = "Xen's placement of dom0's vCPUs"

    def __init__(self, host: Host, vcpus: Mapping[str, Any]) -> None:
        super().__init__(host)
        self._vcpus = tuple(vcpus)

    async def read(self) -> Values:
        """Return the CPUs of those of these vCPUs that dom0 has."""
        found = await pinned_cpus(self._host, 0)
        return {number: found[number] for number in self._vcpus if number in found}

    async def set(self, value: Values) -> str:
        """Pin the vCPUs; raises MachineFault with Xen's message."""
        for number, cpus in value.items():
            # "-" leaves the soft affinity unchanged.
            await xen.asked(self._host, "vcpu-pin", "0", number, cpus, "-")
        return ""


async def pinned_cpus(host: Host, domain: int) -> Values:
    """Return the CPUs that each vCPU of a domain may use, by its number, as Xen writes them.

    Raises:
        MachineFault: Xen refuses, with its message.
    """
    listed = xen_output.vcpus(await xen.asked(host, "vcpu-list", str(domain)))
    return {str(vcpu.number): vcpu.hard for vcpu in listed if vcpu.domain == domain}


class Dom0Vcpus(XenSetting):
    """The number of dom0's vCPUs that are on; surplus vCPUs with the highest numbers are off."""

    what = "dom0-vcpus"
    words = "Xen's number of dom0's vCPUs"
    settling_s = 15.0
    hint = "ask for no more than Xen's dom0_max_vcpus"

    async def read(self) -> Values:
        """Return the number of dom0's vCPUs."""
        known = {domain.id: domain for domain in await xen.all_domains(self._host)}
        return {"vcpus": str(known[0].vcpus)} if 0 in known else {}

    async def set(self, value: Values) -> str:
        """Turn vCPUs on or off.

        Returns:
            The error if dom0's kernel cannot turn one on; empty if all are on.
        """
        await xen.asked(self._host, "vcpu-set", "0", value["vcpus"])
        # dom0's kernel turns vCPUs off by itself. It does not turn them on; elsewhere udev does.
        command = ["sh", "-c", _TURN_ON, "sh", value["vcpus"]]
        turned = await self._host.run(command, timeout_s=xen.COMMAND_S)
        return "" if turned.ok else turned.words()


_TURN_ON = """
number=0
while [ "$number" -lt "$1" ]; do
    switch=/sys/devices/system/cpu/cpu$number/online
    tries=0
    while [ "$number" -gt 0 ] && [ ! -e "$switch" ] && [ "$tries" -lt 20 ]; do
        sleep 0.1
        tries=$((tries + 1))
    done
    [ ! -e "$switch" ] || [ "$(cat "$switch")" = 1 ] || echo 1 >"$switch" || exit 1
    number=$((number + 1))
done
"""


class Dom0Weight(XenSetting):
    """The weight of dom0 in Xen's units.

    Args:
        host: The host.
        scheduler: The scheduler of dom0's pool.
    """

    what = "dom0-weight"
    words = "Xen's weight of dom0"

    def __init__(self, host: Host, scheduler: str) -> None:
        super().__init__(host)
        self._scheduler = scheduler

    @property
    def details(self) -> Mapping[str, Any]:
        """The scheduler, for the ledger."""
        return {**super().details, "scheduler": self._scheduler}

    async def read(self) -> Values:
        """Return dom0's weight."""
        found = await weight_and_cap(self._host, self._scheduler, 0)
        return {"weight": str(found["weight"])} if "weight" in found else {}

    async def set(self, value: Values) -> str:
        """Set dom0's weight; raises MachineFault with Xen's message."""
        words = ("-d", "0", "-w", value["weight"])
        await xen.asked(self._host, f"sched-{self._scheduler}", *words)
        return ""


async def weight_and_cap(host: Host, scheduler: str, domain: int) -> dict[str, int]:
    """Return ``weight`` and ``cap_percent`` of a domain under credit or credit2.

    Raises:
        MachineFault: Xen refuses, with its message.
    """
    return xen_output.weight_and_cap(await xen.asked(host, f"sched-{scheduler}", "-d", str(domain)))


def setting_of(host: Host, details: Mapping[str, Any]) -> XenSetting:
    """Return the setting that an entry of the ledger names."""
    match details["what"]:
        case Dom0Pinning.what:
            return Dom0Pinning(host, details["before"])
        case Dom0Vcpus.what:
            return Dom0Vcpus(host)
        case Dom0Weight.what:
            return Dom0Weight(host, str(details["scheduler"]))
        case _:
            scheduler, pool = str(details["scheduler"]), str(details["pool"])
            return SchedulerParameters(host, scheduler, pool, details["before"])


class RtdsGrant(Setting[dict[int, Rtds]]):
    """RTDS's grant for each vCPU of a domain, which ends with the domain.

    Args:
        host: The host.
        domain: The domain's number.
        name: The machine's name.
    """

    kind = "xen-grant"

    def __init__(self, host: Host, domain: int, name: str) -> None:
        self._host = host
        self._domain = domain
        self._name = name

    @property
    def details(self) -> Mapping[str, Any]:
        """The domain's number, for the ledger."""
        return {"domain": self._domain}

    @property
    def words(self) -> str:
        """The machine and the setting, in words."""
        return f"{self._name}: RTDS's budget of each vCPU"

    def shown(self, value: dict[int, Rtds]) -> str:
        """Return the grants in words, such as ``6000 of 20000 µs (vCPU 0)``."""
        return ", ".join(f"{each} (vCPU {number})" for number, each in value.items())

    async def read(self) -> dict[int, Rtds]:
        """Return the grants by vCPU number."""
        return granted(await xen.asked(self._host, "sched-rtds", *self._vcpus))

    async def set(self, value: dict[int, Rtds]) -> str:
        """Give all vCPUs the same grant; raises MachineFault with Xen's message."""
        (grant,) = set(value.values())
        times = ("-p", str(grant.period_us), "-b", str(grant.budget_us))
        extra = ("-e", str(int(grant.extra)))
        await xen.asked(self._host, "sched-rtds", *self._vcpus, *times, *extra)
        return ""

    @property
    def _vcpus(self) -> tuple[str, ...]:
        return ("-d", str(self._domain), "-v", "all")
