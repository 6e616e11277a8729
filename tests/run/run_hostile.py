"""Machines in this process whose agents send messages that a test has changed."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from agent.agent_doubles import ScriptedAgent
from tare.agent.client import AgentClient, Hello
from tare.agent.framing import FrameKind, encode
from tare.errors import MachineFault
from tare.events import Fold
from tare.hosts import Ledger, LocalHost
from tare.platforms.bare import BareOptions
from tare.platforms.contract import (
    Capabilities,
    Context,
    Machine,
    MachineSpec,
    Platform,
    Prepared,
    Shape,
    Statement,
    Verdict,
)
from tare.platforms.oci.options import OciOptions
from tare.probes import ProbeKind
from tare.run.catalog import build_catalog
from tare.run.hosts.contract import LocalRunHost
from tare.run.lifecycle.executor import execute
from tare.run.lifecycle.folder import create_folder
from tare.run.lifecycle.setup import Decision, RunSetup, StudySource
from tare.study.reading.load import parse_study
from tare.workloads import WORKLOADS

Message = dict[str, Any]
Says = Message | bytes | tuple[Message, bytes]
"""A message, the bytes of one, or a series: its header and its data."""
Twist = Callable[[Message], list[Says]]
"""The messages in place of an honest one."""

STUDY = """
study: hostile
baseline: good
blocks: {least: 2, most: 2}
arms:
  good: {platform: bare}
  bad: {platform: oci}
scenarios:
  alone: {subject: {cpus: any}}
workloads:
  numeric-sort: {duration: 100ms, deadline: PATIENCE}
"""
PROOF = {"kernel": {"release": "6.1"}, "cpu": {"model": 1}, "hypervisor": None}
ABLE = Capabilities(pinning=False, max_vcpus=4, min_memory=1 << 20)


def honest(message: Message) -> list[Says]:
    """Return it unchanged."""
    return [message]


class TwistedAgent(ScriptedAgent):
    """An agent that changes each of its honest answers by a twist before it sends it."""

    def __init__(self, twist: Twist) -> None:
        super().__init__(self._nothing)
        self._twist = twist
        self.utter({"type": "hello", "protocol": 1, "agent": "9", "role": "init", "proof": PROOF,
                    "workloads": ["numeric-sort"], "boot": {"hello_ns": 5}})  # fmt: skip

    def _nothing(self, request: Message) -> list[Message]:
        for message in _answers(request):
            self.utter(message)
        return []

    def utter(self, message: Message) -> None:
        """Send a message as the twist changes it."""
        for each in self._twist(message):
            if isinstance(each, tuple):
                self.put(self.series_frame(*each))
            elif isinstance(each, bytes):
                self.put(encode(FrameKind.MESSAGE, self._seq, each))
                self._seq += 1
            else:
                self.say(each)


def _answers(request: Message) -> list[Message]:
    id = request.get("id")
    now = time.clock_gettime_ns(time.CLOCK_MONOTONIC_RAW)
    match request["op"]:
        case "clock":
            return [_result(id, {"monotonic_raw_ns": now, "realtime_ns": now, "tsc": now})]
        case "run":
            return [{"type": "accepted", "id": id}, {"type": "ready", "id": id}]
        case "go":
            timing = {"accepted_ns": now, "started_ns": now, "ended_ns": now + 10, "stolen_ns": 0}
            value = {"iterations_per_s": 700.5, "warnings": []}
            return [
                _result(id, {"found": True}),
                {"type": "progress", "id": request["target"], "done": 0.5},
                {**_result(request["target"], value), "timing": timing},
            ]
        case "hello" | "counters" | "stop" | "shutdown":
            return [_result(id, {})]
        case _:
            return []


def _result(id: Any, value: Message) -> Message:
    return {"type": "result", "id": id, "value": value}


class TwistedMachine(Machine):
    """A machine that is nothing but its agent."""

    def __init__(self, name: str, twist: Twist, ready_s: float) -> None:
        self.name = name
        self.died: asyncio.Future[MachineFault] = asyncio.get_running_loop().create_future()
        self.agent = AgentClient(TwistedAgent(twist), name=name, repeat_s=0.05)
        self._ready_s = ready_s

    async def ready(self, timeout_s: float) -> Hello:
        return await self.agent.hello(min(timeout_s, self._ready_s))

    async def stop(self) -> None:
        await self.agent.close()

    async def host_cost(self) -> dict[str, float]:
        return {"cpu_s": 0.0}


class Twisted(Platform[Any]):
    """A platform of such machines."""

    def __init__(self, name: str, options: type[Any], twist: Twist, ready_s: float = 30.0) -> None:
        self.name = name  # type: ignore[misc]
        self.options = options
        self._twist = twist
        self._ready_s = ready_s

    def describe(self, options: Any) -> str:
        return "a double"

    def stated(self, options: Any) -> Statement:
        return Statement(capabilities=ABLE, kernel="none", channel="a queue")

    async def check(self, context: Context, options: Any) -> Verdict:
        return Verdict(True, "it is a double", "", False, {}, ABLE)

    async def prepare(
        self, context: Context, options: Any, shape: Shape, realtime: bool
    ) -> Prepared:
        return Prepared(kernel="none", digest="", cached=True, took_s=0.0)

    async def start(
        self, context: Context, options: Any, prepared: Prepared, spec: MachineSpec
    ) -> Machine:
        return TwistedMachine(spec.name, self._twist, self._ready_s)


async def run_twisted(
    twist: Twist,
    folder: Path,
    agent: Path,
    patience_s: float = 5.0,
    run_host: Callable[..., LocalRunHost] = LocalRunHost,
    probe_kinds: tuple[ProbeKind, ...] = (),
) -> Fold:
    """Run a study whose arm ``bad`` sends answers changed by ``twist``; return its fold."""
    return await run_with(
        Twisted("bare", BareOptions, honest),
        Twisted("oci", OciOptions, twist, patience_s),
        folder,
        agent,
        patience_s,
        run_host,
        probe_kinds,
    )


async def run_with(
    bare: Platform[Any],
    oci: Platform[Any],
    folder: Path,
    agent: Path,
    patience_s: float = 5.0,
    run_host: Callable[..., LocalRunHost] = LocalRunHost,
    probe_kinds: tuple[ProbeKind, ...] = (),
) -> Fold:
    """Run the same study on two platforms; return its fold."""
    study = STUDY.replace("PATIENCE", f"{patience_s}s")
    platforms: Mapping[str, Platform[Any]] = {"bare": bare, "oci": oci}
    fold = Fold()
    with Ledger(folder.parent / f"{folder.name}.ledger") as ledger:
        context = Context(LocalHost(agent), ledger, folder.parent / "cache", agent)
        setup = RunSetup(
            run_hosts={"": run_host(context, platforms, {})},
            workloads=WORKLOADS,
            decide=lambda *_: Decision(False, "one block is all"),
            preflight=_nothing_checked,
            probe_kinds=probe_kinds,
        )
        parsed = parse_study(study.encode(), "hostile.yaml", build_catalog())
        source = StudySource("hostile.yaml", "0" * 64)
        finished = await execute(setup, parsed, source, create_folder(folder), "r", 1, fold)
    assert finished is not None and finished.status == "complete", finished
    return fold


async def _nothing_checked() -> tuple[Any, ...]:
    return ()


def raw(text: str) -> Callable[[Message], list[Says]]:
    """Send these bytes, with the message's id in place of ``ID``."""
    return lambda message: [text.replace("ID", json.dumps(message.get("id"))).encode()]
