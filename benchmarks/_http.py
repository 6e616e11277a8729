"""What http_generator needs: nginx in a private folder, a server that pauses, and the peers."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks._peers import bench_cache
from benchmarks._runs import Unmeasured
from tare.run.session import agent_path
from tare.workloads.network.nginx import CONFIGURATION

FILE_BYTES = 1024
READY_S = 10.0
SLACK_S = 60.0
_ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok"


def free_port() -> int:
    """Return a TCP port of the loopback that is free now."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port: int = one.getsockname()[1]
        return port


@contextlib.contextmanager
def nginx(cpu: int | None) -> Iterator[int]:
    """Hold nginx with one worker that serves ``/file``; yields its port.

    Args:
        cpu: The CPU it is kept to; None: any.

    Raises:
        Unmeasured: It is not installed, or does not start.
    """
    program = shutil.which("nginx", path="/usr/sbin:/usr/bin:/sbin:/bin")
    if program is None:
        raise Unmeasured("nginx is missing: apt-get install -y nginx-light")
    port = free_port()
    with tempfile.TemporaryDirectory(prefix="tare-bench-") as name:
        folder = Path(name)
        (folder / "files").mkdir()
        folder.chmod(0o755)
        (folder / "files" / "file").write_bytes(b"x" * FILE_BYTES)
        text = CONFIGURATION.format(folder=folder, workers=1)
        text = text.replace("{address}", "127.0.0.1").replace("{port}", str(port))
        (folder / "nginx.conf").write_text(text)
        argv = [program, "-p", name, "-c", f"{name}/nginx.conf", "-e", "stderr"]
        errors = folder / "errors"
        with errors.open("wb") as log:
            process = subprocess.Popen(_kept_to(cpu, argv), stderr=log)
        try:
            _await_port(port, lambda: process.poll() is None, errors)
            yield port
        finally:
            process.terminate()
            process.wait(READY_S)


def _await_port(port: int, lives: Callable[[], bool], errors: Path) -> None:
    deadline = time.monotonic() + READY_S
    while time.monotonic() < deadline and lives():
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        time.sleep(0.02)
    raise Unmeasured(f"nginx does not answer: {errors.read_text(errors='replace').strip()}")


def _kept_to(cpu: int | None, argv: list[str]) -> list[str]:
    # Under SCHED_FIFO where that is allowed: what else runs here is not what is compared.
    first = ["chrt", "-f", "50"] if os.geteuid() == 0 else []
    return argv if cpu is None else [*first, "taskset", "-c", str(cpu), *argv]


@dataclass(frozen=True)
class Generator:
    """A load generator: how to have it make one request per connection.

    Args:
        name: What it is called.
        version: As it calls itself.
        measure: Takes port, connections, seconds and CPU; returns connections per second.
    """

    name: str
    version: str
    measure: Callable[[int, int, float, int | None], float]


def agent_load(params: dict[str, Any], cpu: int | None = None) -> dict[str, Any]:
    """Have the agent carry out ``http-load``; return its result."""
    argv = [str(agent_path()), "run", "http-load", json.dumps(params)]
    limit_s = params["seconds"] + SLACK_S
    value: dict[str, Any] = json.loads(_output(_kept_to(cpu, argv), limit_s))["value"]
    return value


def tare() -> Generator:
    """Return Tare's own generator."""

    def measure(port: int, connections: int, seconds: float, cpu: int | None) -> float:
        value = agent_load(
            {
                "port": port,
                "paths": ["/file"],
                "connections": connections,
                "threads": 1,
                "seconds": seconds,
                "warmup_s": 0.0,
            },
            cpu,
        )
        if value["failed"]:
            raise Unmeasured(f"tare: {value['failed']} requests failed: {value['errors']}")
        return float(value["connections_per_s"])

    said = _output([str(agent_path()), "version"], SLACK_S)
    return Generator("tare", said.strip(), measure)


def peers() -> tuple[list[Generator], list[str]]:
    """Return the peers that are here, and why the others are not."""
    found, lacking = [], []
    for make in (_wrk, _ab, _oha):
        try:
            found.append(make())
        except Unmeasured as why:
            lacking.append(str(why))
    return found, lacking


def _wrk() -> Generator:
    program = _program("wrk", "apt-get install -y wrk")

    def measure(port: int, connections: int, seconds: float, cpu: int | None) -> float:
        argv = [program, "-t1", f"-c{connections}", f"-d{seconds:.0f}s"]
        argv += ["-H", "Connection: close", f"http://127.0.0.1:{port}/file"]
        return _rate(argv, r"Requests/sec:\s+([\d.]+)", seconds, cpu)

    return Generator("wrk", _first_line([program, "-v"]), measure)


def _ab() -> Generator:
    program = _program("ab", "apt-get install -y apache2-utils")

    def measure(port: int, connections: int, seconds: float, cpu: int | None) -> float:
        # -t sets a number of requests too, so the real one comes after it.
        argv = [program, "-q", f"-c{connections}", f"-t{seconds:.0f}", "-n", "100000000"]
        argv.append(f"http://127.0.0.1:{port}/file")
        return _rate(argv, r"Requests per second:\s+([\d.]+)", seconds, cpu)

    return Generator("ab", _first_line([program, "-V"]), measure)


def _oha() -> Generator:
    program = str(bench_cache() / "oha" / "bin" / "oha")
    if not Path(program).exists():
        raise Unmeasured(f"{program} is missing: run scripts/setup bench")

    def measure(port: int, connections: int, seconds: float, cpu: int | None) -> float:
        argv = [program, "--no-tui", "--output-format", "json", "--disable-keepalive"]
        argv += ["-c", str(connections), "-z", f"{seconds:.0f}s", f"http://127.0.0.1:{port}/file"]
        return float(json.loads(_output(_kept_to(cpu, argv), seconds + SLACK_S))["rps"]["mean"])

    return Generator("oha", _first_line([program, "--version"]), measure)


def closed_loop_p99_s(port: int, seconds: float) -> float:
    """Return what ab tells as the 99th percentile of a server's times, in seconds.

    ab asks again when it is answered, so one pause of the server is one slow request to it,
    however many should have been made meanwhile.

    Raises:
        Unmeasured: ab is not here, or tells none.
    """
    program = _program("ab", "apt-get install -y apache2-utils")
    argv = [program, "-q", "-c1", f"-t{seconds:.0f}", "-n", "100000000"]
    said = _output([*argv, f"http://127.0.0.1:{port}/"], seconds + SLACK_S)
    found = re.search(r"^ +99%\s+(\d+)", said, re.MULTILINE)
    if found is None:
        raise Unmeasured(f"ab told no percentiles: {said[-300:]!r}")
    return float(found[1]) / 1000


def _program(name: str, install: str) -> str:
    found = shutil.which(name)
    if found is None:
        raise Unmeasured(f"{name} is missing: {install}")
    return found


def _rate(argv: list[str], pattern: str, seconds: float, cpu: int | None) -> float:
    said = _output(_kept_to(cpu, argv), seconds + SLACK_S)
    found = re.search(pattern, said)
    if found is None:
        raise Unmeasured(f"{argv[0]} told no rate: {said[-300:]!r}")
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
    # wrk tells its version with a status of 1.
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=SLACK_S)
    lines = (done.stdout + done.stderr).strip().splitlines()
    return lines[0] if lines else ""


@contextlib.contextmanager
def pausing_server(after_s: float, pause_s: float) -> Iterator[int]:
    """Hold a server that answers at once, but stops once for ``pause_s``; yields its port.

    Args:
        after_s: When it stops, in seconds after the first request.
        pause_s: How long it answers nobody.
    """
    listener = socket.create_server(("127.0.0.1", 0), backlog=4096)
    ended = threading.Event()

    def serve() -> None:
        pause_at: float | None = None
        paused = False
        while not ended.is_set():
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            with connection, contextlib.suppress(OSError):
                now = time.monotonic()
                pause_at = pause_at or now + after_s
                if not paused and now >= pause_at:
                    paused = True
                    time.sleep(pause_s)
                connection.recv(4096)
                connection.sendall(_ANSWER)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        port: int = listener.getsockname()[1]
        yield port
    finally:
        ended.set()
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join(READY_S)
