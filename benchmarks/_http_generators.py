"""Load generators that http_generator compares, and what a connection costs each of them."""

from __future__ import annotations

import json
import os
import re
import resource
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks._http import kept_to
from benchmarks._peers import bench_cache
from benchmarks._runs import Unmeasured
from tare.run.lifecycle.session import agent_path
from tare.workloads.network.proxy.kernel_text import STAT, cpu_ticks

SLACK_S = 60.0
H2LOAD_FIRST = 5000.0
"""Connections per second that its first go is long enough for."""


@dataclass(frozen=True)
class Target:
    """A file of a server at the loopback."""

    port: int
    path: str

    @property
    def url(self) -> str:
        """Where it is."""
        return f"http://127.0.0.1:{self.port}{self.path}"


@dataclass(frozen=True)
class Reached:
    """What a generator reached in one go, and what that cost it.

    Args:
        per_s: Connections per second, one request each.
        cpu_s: CPU seconds of the generator for each.
        softirq_s: What of that the kernel's sampling saw in software interrupts on its CPU; None:
            it was not kept to one.
    """

    per_s: float
    cpu_s: float
    softirq_s: float | None


Measure = Callable[[Target, int, float, int | None], tuple[float, float]]


@dataclass(frozen=True)
class Generator:
    """A load generator: how to have it make one request per connection.

    Args:
        name: What it is called.
        version: As it calls itself.
        measure: Takes target, connections, seconds and CPU; returns connections per second, and how
            many it made.
    """

    name: str
    version: str
    measure: Measure

    def reach(self, target: Target, connections: int, seconds: float, cpu: int | None) -> Reached:
        """Run it once; raises Unmeasured."""
        before, soft = _children_s(), _softirq_s(cpu)
        per_s, made = self.measure(target, connections, seconds, cpu)
        cpu_s = _children_s() - before
        after = _softirq_s(cpu)
        softirq = None if soft is None or after is None else (after - soft) / made
        return Reached(per_s, cpu_s / made, softirq)


def _children_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _softirq_s(cpu: int | None) -> float | None:
    """Return the seconds that a CPU spent in software interrupts since it was started."""
    if cpu is None:
        return None
    return cpu_ticks(Path(STAT).read_text())[cpu]["softirq"] / os.sysconf("SC_CLK_TCK")


def agent_load(params: dict[str, Any], cpu: int | None = None) -> dict[str, Any]:
    """Have the agent run ``http-load``; return its result."""
    argv = [str(agent_path()), "run", "http-load", json.dumps(params)]
    limit_s = params["seconds"] + SLACK_S
    value: dict[str, Any] = json.loads(_output(kept_to(cpu, argv), limit_s))["value"]
    return value


def closed_loop(
    target: Target, connections: int, seconds: float, cpu: int | None
) -> dict[str, Any]:
    """Have the agent ask for one object as fast as it is answered; return its result."""
    return agent_load(
        {
            "port": target.port,
            "paths": [target.path],
            "connections": connections,
            "threads": 1,
            "seconds": seconds,
            "warmup_s": 0.0,
        },
        cpu,
    )


def tare() -> Generator:
    """Return Tare's own generator."""

    def measure(
        target: Target, connections: int, seconds: float, cpu: int | None
    ) -> tuple[float, float]:
        value = closed_loop(target, connections, seconds, cpu)
        if value["failed"]:
            raise Unmeasured(f"tare: {value['failed']} requests failed: {value['errors']}")
        return float(value["connections_per_s"]), float(value["completed"])

    version = _output([str(agent_path()), "version"], SLACK_S)
    return Generator("tare", version.strip(), measure)


def peers() -> tuple[list[Generator], list[str]]:
    """Return the peers that are here, and why the others are not."""
    found, lacking = [], []
    for make in (_wrk, _ab, _oha, _h2load):
        try:
            found.append(make())
        except Unmeasured as why:
            lacking.append(str(why))
    return found, lacking


def _wrk() -> Generator:
    program = _program("wrk", "apt-get install --no-remove wrk")

    def measure(
        target: Target, connections: int, seconds: float, cpu: int | None
    ) -> tuple[float, float]:
        argv = [program, "-t1", f"-c{connections}", f"-d{seconds:.0f}s"]
        argv += ["-H", "Connection: close", target.url]
        rate = _rate(argv, r"Requests/sec:\s+([\d.]+)", seconds, cpu)
        return rate, rate * seconds

    return Generator("wrk", _first_line([program, "-v"]), measure)


def _ab() -> Generator:
    program = _program("ab", "apt-get install --no-remove apache2-utils")

    def measure(
        target: Target, connections: int, seconds: float, cpu: int | None
    ) -> tuple[float, float]:
        # -t sets a number of requests too, so the real one comes after it.
        argv = [program, "-q", f"-c{connections}", f"-t{seconds:.0f}", "-n", "100000000"]
        rate = _rate([*argv, target.url], r"Requests per second:\s+([\d.]+)", seconds, cpu)
        return rate, rate * seconds

    return Generator("ab", _first_line([program, "-V"]), measure)


def _oha() -> Generator:
    program = str(bench_cache() / "oha" / "bin" / "oha")
    if not Path(program).exists():
        raise Unmeasured(f"{program} is missing: run scripts/setup bench")

    def measure(
        target: Target, connections: int, seconds: float, cpu: int | None
    ) -> tuple[float, float]:
        argv = [program, "--no-tui", "--output-format", "json", "--disable-keepalive"]
        argv += ["-c", str(connections), "-z", f"{seconds:.0f}s", target.url]
        report = json.loads(_output(kept_to(cpu, argv), seconds + SLACK_S))
        rate = float(report["rps"]["mean"])
        return rate, rate * seconds

    return Generator("oha", _first_line([program, "--version"]), measure)


def _h2load() -> Generator:
    program = _program("h2load", "apt-get install --no-remove nghttp2-client")

    # It does not end after a stated time where answers end connections, so it has a stated number:
    # what the last go makes of the seconds. The first counts for nobody.
    rates: dict[Target, float] = {}

    def measure(
        target: Target, connections: int, seconds: float, cpu: int | None
    ) -> tuple[float, float]:
        count = max(connections, round(rates.get(target, H2LOAD_FIRST) * seconds))
        argv = [program, "--h1", "-t1", f"-c{connections}", f"-n{count}"]
        argv += ["-H", "Connection: close", target.url]
        rates[target] = _rate(argv, r"finished in \S+, ([\d.]+) req/s", seconds, cpu)
        return rates[target], count

    return Generator("h2load", _first_line([program, "--version"]), measure)


def closed_loop_p99_s(port: int, seconds: float) -> float:
    """Return what ab reports as the 99th percentile of a server's times, in seconds.

    ab asks again when it is answered, so one pause of the server is one slow request to it,
    however many should have been made meanwhile.

    Raises:
        Unmeasured: ab is not installed, or reports none.
    """
    program = _program("ab", "apt-get install --no-remove apache2-utils")
    argv = [program, "-q", "-c1", f"-t{seconds:.0f}", "-n", "100000000"]
    output = _output([*argv, f"http://127.0.0.1:{port}/"], seconds + SLACK_S)
    found = re.search(r"^ +99%\s+(\d+)", output, re.MULTILINE)
    if found is None:
        raise Unmeasured(f"ab reported no percentiles: {output[-300:]!r}")
    return float(found[1]) / 1000


def _program(name: str, install: str) -> str:
    found = shutil.which(name)
    if found is None:
        raise Unmeasured(f"{name} is missing: {install}")
    return found


def _rate(argv: list[str], pattern: str, seconds: float, cpu: int | None) -> float:
    output = _output(kept_to(cpu, argv), seconds + SLACK_S)
    found = re.search(pattern, output)
    if found is None or not float(found[1]):
        raise Unmeasured(f"{argv[0]} reported no rate: {output.strip()[-1000:]!r}")
    return float(found[1])


def _output(argv: list[str], limit_s: float) -> str:
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=limit_s, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Unmeasured(f"{argv[0]}: {error}") from error
    if done.returncode:
        raise Unmeasured(f"{argv[0]} failed: {done.stderr.strip()[-300:]}")
    return done.stdout


def _first_line(argv: list[str]) -> str:
    # wrk prints its version and exits with 1.
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=SLACK_S)
    lines = (done.stdout + done.stderr).strip().splitlines()
    return lines[0] if lines else ""
