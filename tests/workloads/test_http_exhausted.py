"""What the client says where its ports or its descriptors run out, for real."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

PORTS, FILES, CONNECTIONS = 16, 40, 64
SERVED = """
import socket, subprocess, sys, threading, time

def answer(one):
    with one:
        one.recv(4096)
        time.sleep(0.05)
        one.sendall(b"HTTP/1.1 200 OK\\r\\nContent-Length: 2\\r\\nConnection: close\\r\\n\\r\\nok")

def serve():
    while True:
        one, _ = listener.accept()
        threading.Thread(target=answer, args=(one,), daemon=True).start()

ports, *command = sys.argv[1:]
subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
with open("/proc/sys/net/ipv4/ip_local_port_range", "w") as file:
    file.write(ports)
listener = socket.create_server(("127.0.0.1", 80), backlog=256)
threading.Thread(target=serve, daemon=True).start()
sys.exit(subprocess.run(command).returncode)
"""
"""A network with ports of its own, in which a command runs next to a server at port 80."""

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="a network of its own needs root"),
    pytest.mark.skipif(
        not all(map(shutil.which, ("ip", "unshare", "prlimit", "setpriv"))),
        reason="iproute2 or util-linux is not installed",
    ),
]


def asked_for(agent: Path, ports: int, *around: str) -> dict[str, Any]:
    """Return what the client found where a network has so few ports."""
    load = {
        "address": "127.0.0.1",
        "port": 80,
        "version": "1.0",
        "expected_bytes": 2,
        "connections": CONNECTIONS,
        "threads": 1,
        "seconds": 0.3,
        "warmup_s": 0.0,
    }
    command = [*around, str(agent), "run", "http-load", json.dumps(load)]
    span = f"20000 {20000 + ports - 1}"
    argv = ["unshare", "--net", sys.executable, "-c", SERVED, span, *command]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout)["value"])


def test_ports_that_run_out_are_counted_apart_from_all_else(agent_program: Path) -> None:
    found = asked_for(agent_program, PORTS)
    assert found["completed"] >= PORTS
    assert found["errors"]["no_port"] > 0
    assert found["failed"] == found["errors"]["no_port"]


def test_descriptors_that_run_out_are_counted_apart_from_all_else(agent_program: Path) -> None:
    # Root may have more than its limit says, and the client takes what it may have.
    nobody = ("setpriv", "--reuid=1234", "--regid=1234", "--clear-groups")
    with tempfile.TemporaryDirectory(dir="/tmp") as place:
        Path(place).chmod(0o755)
        agent = Path(shutil.copy(agent_program, place))
        found = asked_for(agent, 1000, "prlimit", f"--nofile={FILES}", *nobody)
    assert found["completed"] > 0
    assert found["errors"]["no_descriptor"] > 0
    assert found["failed"] == found["errors"]["no_descriptor"]
