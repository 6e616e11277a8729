"""A real HAProxy between a client and an origin, and the end of a process that it needs."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import time
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from deadlines import patient
from processes import named
from run.run_driving import TARE, Event, Running, assert_no_ledger_is_left, of_type
from tare.agent.client import Outcome
from tare.errors import WorkloadFault
from tare.run.cells.placement import BatchPlacement
from tare.run.topologies.peers import shared_out
from tare.run.topologies.proxied_cell import ProxiedMachines, _run_while_serving
from tare.study.planning.host_cpus import HostCpus

STUDY = """
study: proxied
baseline: bare
blocks: {least: 2, most: 2}
shape: {vcpus: 1, memory: 128MiB}
arms:
  bare: {platform: bare}
scenarios:
  proxied: {subject: {cpus: pinned}}
  joined: {subject: {cpus: pinned}, machines: {peer: {cpus: other}, origin: {cpus: other}}}
workloads:
  proxy:
    scenarios: [proxied]
    size: 5000B
    most-connections: 4
    step: 500ms
    duration: 1500ms
    warmup: 100ms
    offered: 20
    origin-addresses: 3
  secured:
    workload: proxy
    scenarios: [proxied]
    http: "2"
    requests: keep-alive
    tls: ecdsa-p256
    size: 5000B
    most-connections: 4
    step: 300ms
    duration: 500ms
    warmup: 100ms
  between-machines:
    workload: proxy
    scenarios: [joined]
    size: 5000B
    most-connections: 4
    step: 300ms
    duration: 1s
    warmup: 100ms
"""


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0, reason="networks need root")
def test_requests_go_through_haproxy_and_an_origin_that_dies_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    study, folder = tmp_path / "proxied.yaml", tmp_path / "run"
    study.write_text(STUDY)
    with Running(folder, "run", study, "--out", folder) as running:
        # The first run of all builds a toolbox with HAProxy in it.
        running.wait_for(lambda e: e["type"] == "cell_started" and e["block"] == 2, 500)
        until = time.monotonic() + patient(60)
        while not named("nginx", running.process.pid):
            assert time.monotonic() < until, "no origin was ever started"
            time.sleep(0.01)
        # Before it listens it is not needed yet: a death before that has another reason.
        time.sleep(0.5)
        for origin in named("nginx", running.process.pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(origin, signal.SIGKILL)
        running.wait_for(lambda e: e["type"] == "cell_finished" and e["status"] == "failed")
        # The remaining cells of this block show nothing that those of the first one do not.
        running.process.send_signal(signal.SIGINT)
        running.end()
    ended = of_type(folder, "cell_finished")
    first, others = ended[:3], ended[3:]
    good = next(each for each in first if "/proxy[" in each["cell"])
    secured = next(each for each in first if "/secured[" in each["cell"])
    assert good["status"] == "ok", good["reason"]
    assert secured["status"] == "ok", secured["reason"]
    assert_machines_stand_for_both_roles(
        next(each for each in first if "/between-machines[" in each["cell"])
    )
    bad = next(each for each in others if each["status"] == "failed")
    assert bad["reason"].startswith("the origin: ")
    assert "nginx ended while it was needed" in bad["reason"]
    facts = good["facts"]["proxy"]
    assert all(number == 0 for kinds in facts["errors"].values() for number in kinds.values())
    assert "Name: HAProxy" in facts["said"]["show info"]
    assert "option httpclose" in facts["configuration"]
    assert len({*facts["origins"]}) == 3
    assert all(f" {address}:8081 " in facts["configuration"] for address in facts["origins"])
    rows = [row.split(",") for row in facts["said"]["show stat"].splitlines()]
    answered = {row[1]: int(row[7]) for row in rows if row[1:2] and row[1].startswith("origin")}
    assert set(answered) == {"origin", "origin-2", "origin-3"}
    assert min(answered.values()) > 0
    assert [tried for tried, _ in facts["proxied"]] == [4]
    assert [tried for tried, _ in facts["straight"]] == [4]
    assert "HAProxy version" in facts["version"]
    assert facts["faults"] == []
    assert facts["account"]["owned"] > 0.95
    spent = {each["who"]: each["share"] for each in facts["account"]["spent"]}
    # Its makers state 15 % with one request a connection; ticks of so short a load are few.
    own, kernel = spent["haproxy user"], spent["haproxy kernel"]
    assert 0.02 < own / (own + kernel) < 0.5
    of_first = (each for each in of_type(folder, "series") if each["cell"] == good["cell"])
    rows_by_name = {each["name"]: each["rows"] for each in of_first}
    stages = ("at-50", "at-70", "at-90", "offered", "probe")
    assert {"responses", *(f"{stage}-responses" for stage in stages)} <= set(rows_by_name)
    assert min(rows_by_name[f"{stage}-responses"] for stage in stages) >= 10
    agreed = secured["facts"]["proxy"]
    assert agreed["tls"]["suite"] == "TLS13_AES_128_GCM_SHA256"
    assert agreed["tls"]["resumed"] == 0
    assert "proto h2" not in agreed["configuration"]
    assert "PRIVATE KEY" not in str(ended)
    assert all(number == 0 for kinds in agreed["errors"].values() for number in kinds.values())
    owners = {each["who"] for each in facts["account"]["spent"]}
    assert "haproxy kernel" in owners
    assert "client" in owners
    assert "origin" in owners
    of_good = (each for each in of_type(folder, "observation") if each["cell"] == good["cell"])
    values: dict[str, Event] = {each["metric"]: each for each in of_good}
    assert "requests" in values or "requests-at-least" in values
    assert values["cpu-per-request"]["value"] > 0
    assert values["response-offered-median"]["value"] > 0
    # The probe's requests come in addition to the load's own.
    assert values["packet-out"]["value"] > 60
    assert_no_ledger_is_left(tmp_path)


def assert_machines_stand_for_both_roles(cell: Event) -> None:
    """Assert that a cell whose client and origin are machines of the arm counts them as these."""
    assert cell["status"] == "ok", cell["reason"]
    facts = cell["facts"]["proxy"]
    assert facts["straight"] == []
    assert facts["faults"] == []
    spent = {each["who"]: each["share"] for each in facts["account"]["spent"]}
    assert spent["client"] > 0.01
    assert spent["origin"] > 0.01
    assert spent["haproxy kernel"] > 0.01
    # Both are on the CPUs that the subject leaves.
    assert facts["outside"]["client"] == facts["outside"]["origin"] != []


FEW_FILES = 1000
MANY = """
study: refused
baseline: bare
blocks: {least: 2, most: 2}
arms: {bare: {platform: bare}}
workloads:
  proxy: {size: 5000B, most-connections: 2000, step: 500ms, duration: 1s, offered: 20}
"""


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0, reason="networks need root")
def test_an_haproxy_that_refuses_its_configuration_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It wants a descriptor for each end of each connection, more than it may have here."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    study, folder = tmp_path / "refused.yaml", tmp_path / "run"
    study.write_text(MANY)
    words = ("prlimit", f"--nofile={FEW_FILES}", TARE, "run", study, "--out", folder)
    limited = [str(word) for word in words]
    done = subprocess.run(limited, capture_output=True, text=True, timeout=400, check=False)
    assert done.returncode == 1, done.stdout + done.stderr
    ended = of_type(folder, "cell_finished")
    assert {cell["status"] for cell in ended} == {"failed"}
    for cell in ended:
        assert "haproxy ended before it listened; its last output: " in cell["reason"]
        assert f"limit is {FEW_FILES}" in cell["reason"]
    (event,) = of_type(folder, "run_finished")
    assert list(event["reasons"].values()) == [len(ended)]
    assert_no_ledger_is_left(tmp_path)


class Server:
    """A server under way, which ends on request."""

    def __init__(self, fault: WorkloadFault | None = None) -> None:
        self.ended = False
        self._fault = fault
        self._tell: Any = None

    def on_end(self, tell: Any) -> None:
        self._tell = tell

    def end(self) -> None:
        self.ended = True
        self._tell()

    async def stop(self, timeout_s: float = 0.0) -> None:
        if self._fault is not None:
            raise self._fault


async def served(seconds: float) -> Outcome:
    await asyncio.sleep(seconds)
    return Outcome({"done": 1})


async def test_a_server_that_ends_is_named_with_its_reason() -> None:
    proxy, origin = Server(WorkloadFault("haproxy ended; its last words: no memory")), Server()
    working = asyncio.ensure_future(_run_while_serving(served(60), {"the proxy": proxy}))  # type: ignore[dict-item]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    proxy.end()
    with pytest.raises(WorkloadFault, match=r"^the proxy: haproxy ended; .* no memory$"):
        await working
    working = asyncio.ensure_future(_run_while_serving(served(60), {"the origin": origin}))  # type: ignore[dict-item]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    origin.end()
    with pytest.raises(WorkloadFault, match=r"^the origin ended while it was needed$"):
        await working


async def test_the_result_is_returned_when_servers_keep_running() -> None:
    outcome = await _run_while_serving(served(0), {"the proxy": Server()})  # type: ignore[dict-item]
    assert outcome.value == {"done": 1}


async def test_a_load_that_fails_by_itself_says_so() -> None:
    async def failing() -> Outcome:
        raise WorkloadFault("no request succeeded")

    with pytest.raises(WorkloadFault, match="no request succeeded"):
        await _run_while_serving(failing(), {"the proxy": Server()})  # type: ignore[dict-item]


@pytest.mark.parametrize(
    ("cpus", "client", "origin"),
    [((0,), (0,), (0,)), ((0, 1), (0,), (1,)), ((0, 1, 2), (0, 1), (2,))],
)
def test_client_and_origin_have_cpus_of_their_own_where_there_are_enough(
    cpus: tuple[int, ...], client: tuple[int, ...], origin: tuple[int, ...]
) -> None:
    assert shared_out(cpus) == (client, origin)
    # A host's kernel that carries the machine's packets itself has one of its own then.
    assert shared_out((*cpus, 9), spare=True) == (client, origin)
    assert shared_out((0,), spare=True) == ((0,), (0,))


@pytest.mark.parametrize(
    ("boot", "client", "origin"),
    [("kvm", (0, 1), (2,)), ("any", (0, 1), (2,)), ("xen:credit@trixie", (0,), (1,))],
)
def test_a_hosts_kernel_above_a_hypervisor_keeps_a_cpu_for_the_machines_packets(
    boot: str, client: tuple[int, ...], origin: tuple[int, ...]
) -> None:
    platform = SimpleNamespace(stated=lambda _: SimpleNamespace(host_boot=boot))
    host = SimpleNamespace(topology=lambda: HostCpus((0, 1, 2), {}))
    parts: dict[str, Any] = {
        "batch": None,
        "arm": SimpleNamespace(platform=platform, options=None),
        "home": SimpleNamespace(context=SimpleNamespace(host=host)),
        "specs": {"subject": SimpleNamespace(cpus=(3,), carried=False)},
    }
    place = BatchPlacement(others={}, machines=AsyncExitStack(), **parts)
    assert place.outside() == {"client": client, "origin": origin}


class Outside:
    """A machine with threads, and a kernel of its own or its host's."""

    def __init__(self, threads: tuple[int, ...], *, shares_clock: bool = True) -> None:
        self.shares_clock = shares_clock
        self._threads = threads

    async def threads(self) -> dict[int, str]:
        return dict.fromkeys(self._threads, "nginx")


async def test_threads_of_another_host_are_not_counted_on_this_one() -> None:
    client, origin = Outside((20, 21)), Outside((30,), shares_clock=False)
    subject: Any = Outside((10,))
    parts: dict[str, Any] = {"network": None, "cpus": {}, "watch": None}
    parts |= {"client": client, "origin": origin}
    here = ProxiedMachines(subject, **parts)
    assert await here.outside_threads() == {"client": [20, 21], "origin": [30], "neighbours": []}
    crowded = replace(here, neighbours=(Outside((41, 40)), Outside((50,))))  # type: ignore[arg-type]
    assert (await crowded.outside_threads())["neighbours"] == [40, 41, 50]
    assert here.with_own_kernel() == ["origin"]
    far = replace(here, elsewhere=frozenset({"client"}))
    assert await far.outside_threads() == {"client": [], "origin": [30], "neighbours": []}
    assert far.with_own_kernel() == ["client", "origin"]
