"""Apply scheduling to the threads of a machine on a Linux host, and read back what took."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tare.errors import MachineFault, TareError
from tare.hosts.contract import Host
from tare.platforms.contract import Context
from tare.platforms.scheduled_options import ScheduledOptions
from tare.platforms.scheduling import DEFAULT_PRIORITY, Scheduling

GIVEN_VARIABLE = "TARE_SCHEDULING_GIVEN"
"""Tells the agent that workloads keep the policy they inherit (agent/src/measure/realtime.rs)."""

LONGEST_SLICE_S = 0.1
LEAST_QUOTA_S = 1e-3
TRY_S = 20.0
AUTOGROUP = "/proc/sys/kernel/sched_autogroup_enabled"


def within_linux(wanted: Scheduling) -> Scheduling:
    """Refuse what no Linux kernel takes, though the scheduler of another platform may."""
    if wanted.slice is not None and wanted.slice > LONGEST_SLICE_S:
        # The kernel would cut it without a word (kernel/sched/syscalls.c, __setparam_fair).
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
        """Refuse what no Linux kernel takes; see :func:`within_linux`."""
        return within_linux(wanted)

    @property
    def scheduling_words(self) -> tuple[str, ...]:
        """What reports add to an arm's description."""
        told = [self.scheduling.words()]
        if self.neighbour_scheduling.asks:
            told.append(f"neighbours {self.neighbour_scheduling.words()}")
        return tuple(filter(None, told))


def own_policy(wanted: Scheduling) -> Scheduling:
    """Return the scheduling of a workload that is itself a thread of the host.

    A real-time workload would choose SCHED_FIFO, under which neither weight nor quota counts:
    whoever asks for those asks for the ordinary policy.
    """
    if wanted.policy is None and wanted.asks:
        return wanted.model_copy(update={"policy": "other"})
    return wanted


def flags(wanted: Scheduling) -> list[str]:
    """Return the agent's arguments that set policy, priority, nice and slice; maybe none."""
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
    """Return whole nanoseconds."""
    return round(seconds * 1e9)


async def offered_by_threads(context: Context) -> tuple[frozenset[str], dict[str, str]]:
    """Try which knobs of threads this host has; never raises for what is missing.

    Returns:
        The names of those it has, and the reason for each other one.
    """
    trials = {
        "policy": ["--policy", "batch"],
        "fifo": ["--policy", "fifo", "--priority", "1"],
        "nice": ["--nice", "-1"],
        "slice": ["--slice-ns", "3000000"],
    }
    offered: set[str] = set()
    lacking: dict[str, str] = {}
    agent = str(context.host_agent)
    for knob, trial in trials.items():
        try:
            tried = await context.host.run(
                [agent, "exec", *trial, "--", agent, "version"], timeout_s=TRY_S
            )
        except TareError as error:
            lacking[knob] = error.message
            continue
        if tried.ok:
            offered.add(knob)
        else:
            lacking[knob] = tried.words().removeprefix("tare-agent: ")
    return frozenset(offered), lacking


async def apply(
    context: Context, name: str, threads: Sequence[int], wanted: Scheduling
) -> list[dict[str, Any]]:
    """Schedule threads as wanted; what the kernel then says of each.

    Raises:
        MachineFault: The kernel refused, or does otherwise than asked; in its own words.
    """
    return await _agent(context, name, threads, flags(wanted))


async def prove(
    context: Context, name: str, threads: Sequence[int], wanted: Scheduling
) -> list[dict[str, Any]]:
    """Read back how threads are scheduled.

    Raises:
        MachineFault: One of them is not as wanted.
    """
    told = await _agent(context, name, threads, [])
    for one in told:
        if differs := difference(one, wanted):
            raise MachineFault(f"{name}: thread {one['thread']}: {differs}")
    return told


def difference(told: Mapping[str, Any], wanted: Scheduling) -> str:
    """Return in words how a thread is scheduled otherwise than wanted; empty if it is not."""
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
        f"{key} was set to {value}, but the kernel says {told.get(key)}"
        for key, value in expected.items()
        if told.get(key) != value
    )


def alike(told: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Put threads that are scheduled the same together, to be recorded."""
    groups: dict[str, dict[str, Any]] = {}
    for one in told:
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
        said = done.words().removeprefix("tare-agent: ")
        raise MachineFault(f"{name}: the host does not schedule it as asked: {said}")
    told: list[dict[str, Any]] = json.loads(done.stdout)
    return told


async def nice_session(host: Host, pid: int, nice: int) -> str | None:
    """Make a process's session as nice as its threads, where the kernel groups by session.

    Each session then has a group of its own, and nice counts only inside of it (sched(7), "The
    autogroup feature").

    Args:
        host: Where it runs.
        pid: A process that leads a session of its own.
        nice: What its threads have.

    Returns:
        What the kernel then says of the group; None where it has no such groups.

    Raises:
        MachineFault: It was not taken.
    """
    path = f"/proc/{pid}/autogroup"
    try:
        if (await host.read(AUTOGROUP)).strip() != b"1":
            return None
        await host.write(path, str(nice).encode())
        said = (await host.read(path)).decode().strip()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise MachineFault(f"{path}: {error.strerror}") from error
    if said and not said.endswith(f" nice {nice}"):
        raise MachineFault(f"{path} was set to nice {nice}, but the kernel says {said}")
    return said or None
