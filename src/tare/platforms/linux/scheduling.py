"""Apply scheduling to a machine's threads on a Linux host, and read back the result."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from tare.errors import MachineFault, TareError
from tare.hosts.contract import Host
from tare.hosts.realtime import RT_RUNTIME, unthrottled
from tare.platforms.contract import Context
from tare.platforms.linux.cpu_groups import (
    CpuGroup,
    cpu_group,
    offered_by_groups,
    read_back,
    require_member,
)
from tare.platforms.scheduled_options import ScheduledOptions
from tare.platforms.scheduling import DEFAULT_PRIORITY, Scheduling

GIVEN_VARIABLE = "TARE_SCHEDULING_GIVEN"
"""Makes workloads keep the policy that they inherit (agent/src/measure/realtime.rs)."""

LONGEST_SLICE_S = 0.1
LEAST_QUOTA_S = 1e-3
TRY_S = 20.0
AUTOGROUP = "/proc/sys/kernel/sched_autogroup_enabled"


def within_linux(wanted: Scheduling) -> Scheduling:
    """Refuse settings that no Linux kernel accepts, though another platform's scheduler may."""
    if wanted.slice is not None and wanted.slice > LONGEST_SLICE_S:
        # The kernel would clamp it silently (kernel/sched/syscalls.c, __setparam_fair).
        raise ValueError("Linux knows slices of 0.1 to 100 ms")
    if wanted.cap is not None and wanted.cap * wanted.period_s < LEAST_QUOTA_S:
        raise ValueError(
            "the cap is less than 1 ms of each period, which Linux does not grant; "
            "lengthen the period"
        )
    return wanted


class LinuxOptions(ScheduledOptions):
    """Options of every platform whose machines are threads of a Linux host."""

    @classmethod
    def within(cls, wanted: Scheduling) -> Scheduling:
        """Refuse settings that no Linux kernel accepts; see :func:`within_linux`."""
        return within_linux(wanted)

    @property
    def scheduling_words(self) -> tuple[str, ...]:
        """The phrases that reports add to an arm's description."""
        phrases = [self.scheduling.words()]
        if self.neighbour_scheduling.asks:
            phrases.append(f"neighbours {self.neighbour_scheduling.words()}")
        return tuple(filter(None, phrases))


def own_policy(wanted: Scheduling) -> Scheduling:
    """Return the scheduling of a workload that is itself a thread of the host.

    By default, a real-time workload chooses SCHED_FIFO, under which weight and quota have no
    effect. An arm that asks for either of them gets the ordinary policy.
    """
    if wanted.policy is None and wanted.asks:
        return wanted.model_copy(update={"policy": "other"})
    return wanted


def flags(wanted: Scheduling) -> list[str]:
    """Return the agent's arguments that set policy, priority, nice and slice; may be empty."""
    given: list[str] = []
    if wanted.policy is not None:
        given += ["--policy", wanted.policy]
    if wanted.realtime:
        given += ["--priority", str(wanted.priority or DEFAULT_PRIORITY)]
    if wanted.nice is not None:
        given += ["--nice", str(wanted.nice)]
    if wanted.slice is not None:
        given += ["--slice-ns", str(nanoseconds(wanted.slice))]
    return given


def nanoseconds(seconds: float) -> int:
    """Convert seconds to whole nanoseconds."""
    return round(seconds * 1e9)


async def offered_by_threads(context: Context) -> tuple[frozenset[str], dict[str, str]]:
    """Find out which scheduler knobs this host supports for threads; missing ones raise no error.

    Returns:
        The names of the supported knobs, and the reason for each missing one.
    """
    trials = {
        "policy": ["--policy", "batch"],
        "fifo": ["--policy", "fifo", "--priority", "1"],
        "nice": ["--nice", "-1"],
        "slice": ["--slice-ns", "3000000"],
    }
    agent = str(context.host_agent)

    async def lacks(trial: Sequence[str]) -> str | None:
        argv = [agent, "exec", *trial, "--", agent, "version"]
        try:
            tried = await context.host.run(argv, timeout_s=TRY_S)
        except TareError as error:
            return error.message
        return None if tried.ok else tried.words().removeprefix("tare-agent: ")

    found = dict(zip(trials, await asyncio.gather(*map(lacks, trials.values())), strict=True))
    lacking = {knob: reason for knob, reason in found.items() if reason is not None}
    return frozenset(trials).difference(lacking), lacking


async def apply(
    context: Context, name: str, threads: Sequence[int], wanted: Scheduling
) -> list[dict[str, Any]]:
    """Apply the wanted scheduling to threads, and return how the kernel reports each.

    Raises:
        MachineFault: The kernel refused, or does something else. The message quotes the agent.
    """
    return await _agent(context, name, threads, flags(wanted))


async def prove(
    context: Context, name: str, threads: Sequence[int], wanted: Scheduling
) -> list[dict[str, Any]]:
    """Read back how threads are scheduled.

    Raises:
        MachineFault: A thread's scheduling differs from the wanted one.
    """
    found = await _agent(context, name, threads, [])
    for one in found:
        if differs := difference(one, wanted):
            raise MachineFault(f"{name}: thread {one['thread']}: {differs}")
    return found


def difference(found: Mapping[str, Any], wanted: Scheduling) -> str:
    """Describe how a thread's scheduling differs from the wanted one; empty if it does not."""
    expected: dict[str, Any] = {}
    if wanted.policy is not None:
        expected["policy"] = f"SCHED_{wanted.policy.upper()}"
    if wanted.realtime:
        expected["priority"] = wanted.priority or DEFAULT_PRIORITY
    if wanted.nice is not None:
        expected["nice"] = wanted.nice
    if wanted.slice is not None:
        expected["slice_ns"] = nanoseconds(wanted.slice)
    return "; ".join(
        f"{key} was set to {value}, but the kernel says {found.get(key)}"
        for key, value in expected.items()
        if found.get(key) != value
    )


def alike(found: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Group threads with the same scheduling, for the record."""
    groups: dict[str, dict[str, Any]] = {}
    for one in found:
        rest = {key: value for key, value in one.items() if key not in ("thread", "cpus")}
        group = groups.setdefault(json.dumps(rest, sort_keys=True), {"threads": [], **rest})
        group["threads"].append(one["thread"])
    return list(groups.values())


async def _agent(
    context: Context, name: str, threads: Sequence[int], arguments: Sequence[str]
) -> list[dict[str, Any]]:
    which = ",".join(map(str, dict.fromkeys(threads)))
    command = [str(context.host_agent), "sched", "--threads", which, *arguments]
    done = await context.host.run(command, timeout_s=TRY_S)
    if not done.ok:
        reason = done.words().removeprefix("tare-agent: ")
        raise MachineFault(f"{name}: the host does not schedule it as asked: {reason}")
    found: list[dict[str, Any]] = json.loads(done.stdout)
    return found


async def nice_session(host: Host, pid: int, nice: int) -> str | None:
    """Give a process's session the nice value of its threads, if the kernel groups by session.

    The kernel then has one group for each session, and a thread's nice value applies only within
    its group (sched(7), "The autogroup feature").

    Args:
        host: The host on which it runs.
        pid: The id of a process that leads its own session.
        nice: The nice value of its threads.

    Returns:
        The kernel's report about the group; None if the kernel has no such groups.

    Raises:
        MachineFault: The kernel did not apply it.
    """
    path = f"/proc/{pid}/autogroup"
    try:
        if (await host.read(AUTOGROUP)).strip() != b"1":
            return None
        await host.write(path, str(nice).encode())
        group = (await host.read(path)).decode().strip()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise MachineFault(f"{path}: {error.strerror}") from error
    if group and not group.endswith(f" nice {nice}"):
        raise MachineFault(f"{path} was set to nice {nice}, but the kernel says {group}")
    return group or None


LINUX_KNOBS = frozenset({"policy", "fifo", "nice", "slice", "weight", "cap"})
"""The knobs of a Linux host that supports all of them."""


async def linux_knobs(context: Context) -> tuple[frozenset[str], dict[str, str]]:
    """Find out which scheduler knobs this host supports for machines that are its threads.

    Returns:
        The names of the supported knobs, and the reason for each missing one.
    """
    (threads, no_threads), (groups, no_groups) = await asyncio.gather(
        offered_by_threads(context), offered_by_groups(context.host)
    )
    lacking = {**no_threads, **no_groups}
    lacking["reservation"] = "Linux reserves no CPU time for ordinary threads"
    return threads | groups, lacking


class Scheduled:
    """The settings that one machine wants from the host's scheduler.

    Args:
        context: The host on which it runs, and Tare's state there.
        name: The machine's name.
        wanted: The requested scheduling.
    """

    def __init__(self, context: Context, name: str, wanted: Scheduling) -> None:
        self.wanted = wanted
        self._context = context
        self._name = name
        self._group: CpuGroup | None = None
        self._limits: tuple[str, ...] = ()

    async def hold(self, held: AsyncExitStack, *, realtime: bool, group: bool = True) -> bool:
        """Prepare the host before the machine starts; closing ``held`` restores the host.

        Args:
            held: The exit stack that restores changed settings.
            realtime: Whether the machine runs real-time work in threads of the host.
            group: Whether to make a control group if one is needed.

        Returns:
            Whether real-time throttling stays on although it should not.

        Raises:
            MachineFault: A control group cannot be made as asked.
        """
        host, ledger = self._context.host, self._context.ledger
        throttled = False
        if realtime or self.wanted.realtime:
            self._limits = await held.enter_async_context(unthrottled(host, ledger))
            # The fair server may stay on: it does not throttle control groups.
            throttled = any(str(RT_RUNTIME) in limit for limit in self._limits)
        if group:
            made = cpu_group(host, ledger, self._name, self.wanted, throttled=throttled)
            self._group = await held.enter_async_context(made)
        return throttled

    def around(self, argv: Sequence[str], *, threads: bool) -> list[str]:
        """Return the command that starts ``argv`` in the machine's control group.

        Args:
            argv: A program and its arguments.
            threads: Whether all its threads are to get the wanted scheduling, too.
        """
        given = [*(self._group.flags if self._group else ()), *(flags(self.wanted) * threads)]
        agent = str(self._context.host_agent)
        return [agent, "exec", *given, "--", *argv] if given else list(argv)

    def inside(self, argv: Sequence[str]) -> tuple[str, ...]:
        """Return the command that starts ``argv`` with the wanted scheduling within a container."""
        given = flags(self.wanted)
        return (argv[0], "exec", *given, "--", *argv) if given else tuple(argv)

    @property
    def group(self) -> Path | None:
        """The machine's control group for its CPUs; None if it has none."""
        return None if self._group is None else self._group.folder

    @property
    def environment(self) -> dict[str, str]:
        """The variable that makes an agent's workloads keep the policy that they inherit."""
        return {GIVEN_VARIABLE: "1"} if self.wanted.asks else {}

    async def apply(self, threads: Sequence[int], pid: int) -> Mapping[str, Any]:
        """Apply the wanted scheduling to some threads of the process ``pid``, and verify it.

        Raises:
            MachineFault: It was not applied. The message quotes the kernel.
        """
        if not self.wanted.asks:
            return self._limits_record()
        scheduled = await apply(self._context, self._name, threads, self.wanted)
        return await self._proof(scheduled, pid)

    async def prove(self, threads: Sequence[int], pid: int) -> Mapping[str, Any]:
        """Verify that threads which were started with the wanted scheduling still have it.

        Raises:
            MachineFault: The scheduling of one of them differs.
        """
        if not self.wanted.asks:
            return self._limits_record()
        return await self._proof(await prove(self._context, self._name, threads, self.wanted), pid)

    def adopt(self, folder: Path, values: Mapping[str, str]) -> None:
        """Use a control group that a container's runtime makes as the machine's own group."""
        self._group = CpuGroup(folder, values)

    async def _proof(self, scheduled: list[dict[str, Any]], pid: int) -> Mapping[str, Any]:
        host = self._context.host
        proof: dict[str, Any] = {"asked": self.wanted.asked(), "threads": alike(scheduled)}
        if self._group is not None:
            folder = self._group.folder
            await require_member(host, folder, pid)
            found = await read_back(host, folder, self._group.values)
            proof["group"] = {"path": str(folder), **found}
        elif self.wanted.nice is not None:
            session = await nice_session(host, pid, self.wanted.nice)
            if session is not None:
                proof["session"] = session
        return {"scheduling": proof, **self._limits_record()}

    def _limits_record(self) -> Mapping[str, Any]:
        """Return the record of limits on real-time threads that could not be turned off."""
        return {"realtime_limits": list(self._limits)} if self._limits else {}
