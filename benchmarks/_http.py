"""Servers that http_generator asks: nginx in a private folder, and one that pauses."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from benchmarks._runs import Unmeasured
from tare.workloads.network.nginx import CONFIGURATION

SIZES = (0, 1024, 2048, 4096, 8192, 16_384, 32_768, 49_152, 65_536)
"""Bytes of the objects that are asked for: those of the study load-balancer."""
READY_S = 10.0
_ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok"


def free_port() -> int:
    """Return a TCP port of the loopback that is free now."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port: int = one.getsockname()[1]
        return port


@contextlib.contextmanager
def nginx(cpu: int | None) -> Iterator[int]:
    """Hold nginx with one worker that serves a file of each size by that name; yields its port.

    Args:
        cpu: The CPU it is kept to; None: any.

    Raises:
        Unmeasured: It is not installed, or does not start.
    """
    program = shutil.which("nginx", path="/usr/sbin:/usr/bin:/sbin:/bin")
    if program is None:
        raise Unmeasured("nginx is missing: apt-get install --no-remove nginx-light")
    port = free_port()
    with tempfile.TemporaryDirectory(prefix="tare-bench-") as name:
        folder = Path(name)
        (folder / "files").mkdir()
        folder.chmod(0o755)
        for size in SIZES:
            (folder / "files" / str(size)).write_bytes(b"x" * size)
        text = CONFIGURATION.format(folder=folder, workers=1)
        text = text.replace("{address}", "127.0.0.1").replace("{port}", str(port))
        (folder / "nginx.conf").write_text(text)
        argv = [program, "-p", name, "-c", f"{name}/nginx.conf", "-e", "stderr"]
        errors = folder / "errors"
        with errors.open("wb") as log:
            process = subprocess.Popen(kept_to(cpu, argv), stderr=log)
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


def kept_to(cpu: int | None, argv: list[str]) -> list[str]:
    """Return a command that runs on one CPU; None: on any."""
    # Under SCHED_FIFO where that is allowed: what else runs here is not what is compared.
    first = ["chrt", "-f", "50"] if os.geteuid() == 0 else []
    return argv if cpu is None else [*first, "taskset", "-c", str(cpu), *argv]


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
