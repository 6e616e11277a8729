"""The client's TLS, against a server of another library."""

from __future__ import annotations

import json
import socket
import ssl
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest

from tare.identity import Identity, Key, identity
from tare.run.lifecycle.session import agent_path
from tare.workloads.network.proxy.haproxy import SUITES

BODY = b"x" * 30_000
ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 30000\r\nConnection: close\r\n\r\n" + BODY


@contextmanager
def serving(shown: Identity) -> Iterator[int]:
    """Hold a server that answers each connection once; yields its port."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    with tempfile.NamedTemporaryFile("w") as file:
        file.write(shown.pem)
        file.flush()
        context.load_cert_chain(file.name)
    listener = socket.create_server(("127.0.0.1", 0), backlog=64)

    def answer(plain: socket.socket) -> None:
        with suppress(OSError), context.wrap_socket(plain, server_side=True) as one:
            one.recv(4096)
            one.sendall(ANSWER)
            one.unwrap()

    def serve() -> None:
        while True:
            try:
                plain, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=answer, args=(plain,), daemon=True).start()

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield int(listener.getsockname()[1])
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join(10)


def load(port: int, certificate: str, suite: str, resumption: bool) -> dict[str, Any]:
    """Return what the client found."""
    asked = {
        "port": port,
        "connections": 2,
        "threads": 1,
        "seconds": 0.5,
        "warmup_s": 0.0,
        "expected_bytes": len(BODY),
        "patience_s": 0.0,
        "tls": {"certificate": certificate, "suite": suite, "resumption": resumption},
    }
    argv = [str(agent_path()), "run", "http-load", json.dumps(asked)]
    done = subprocess.run(argv, capture_output=True, timeout=60, text=True)
    text = done.stdout or done.stderr
    return dict(json.loads(text)["value"]) if done.returncode == 0 else {"said": done.stderr + text}


@pytest.mark.parametrize(
    ("kind", "suite", "resumption"),
    [("ecdsa-p256", "aes-128-gcm", False), ("rsa-2048", "chacha20-poly1305", True)],
)
def test_requests_are_secured_as_asked(kind: Key, suite: str, resumption: bool) -> None:
    shown = identity(kind)
    with serving(shown) as port:
        found = load(port, shown.digest, suite, resumption)
    assert found["failed"] == 0, found
    assert found["completed"] > 0
    tls = found["tls"]
    assert tls["suite"].removeprefix("TLS13") == SUITES[suite].removeprefix("TLS")
    assert tls["handshake"]["count"] == found["completed"]
    # The first requests have nothing to take up.
    assert (tls["resumed"] > 0) == resumption


def test_a_server_with_another_certificate_is_named() -> None:
    with serving(identity("ecdsa-p256")) as port:
        found = load(port, "ab" * 32, "aes-128-gcm", False)
    assert "1 handshake" in found["said"]
