"""A machine that is stopped for a while interrupts system calls, and no workload fails."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import threading
import time
from pathlib import Path

import pytest

DELAY_S = 0.1


def _answer(connection: socket.socket) -> None:
    """Answer each byte late, so that the client is waiting nearly all the time."""
    with connection, contextlib.suppress(OSError):
        while data := connection.recv(1):
            time.sleep(DELAY_S)
            connection.sendall(data)


def _serve(listener: socket.socket) -> None:
    while True:
        try:
            connection, _ = listener.accept()
        except OSError:
            return
        threading.Thread(target=_answer, args=(connection,), daemon=True).start()


@pytest.mark.parametrize("connections", [1, 3])
def test_stopping_in_the_middle_of_requests_is_not_an_error(
    agent_program: Path, connections: int
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=_serve, args=(listener,), daemon=True).start()
        params = {
            "address": "127.0.0.1",
            "port": listener.getsockname()[1],
            "seconds": 3.0,
            "connections": connections,
        }
        with subprocess.Popen(
            [agent_program, "run", "request-response", json.dumps(params)],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        ) as agent:  # fmt: skip
            time.sleep(0.8)
            for _ in range(4):
                os.kill(agent.pid, signal.SIGSTOP)
                time.sleep(0.2)
                os.kill(agent.pid, signal.SIGCONT)
                time.sleep(0.13)
            output, errors = agent.communicate(timeout=60)
        assert agent.returncode == 0, errors
        assert '"exchanges":' in output.replace(" ", ""), output
