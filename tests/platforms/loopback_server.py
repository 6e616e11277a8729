"""A server of HTTPS on loopback with a certificate of its own: the base of vendors' servers."""

from __future__ import annotations

import datetime
import ipaddress
import re
import ssl
import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


@dataclass
class Asked:
    """One request; ``label`` describes it where its address is not specific."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes
    label: str = ""
    peer: str = ""
    """The connection, by the other end's address and port."""


@dataclass
class Answer:
    """The answer to it; ``cut`` closes the connection in the middle of the body."""

    status: int
    body: bytes = b""
    reason: str | None = None
    headers: dict[str, str] = field(default_factory=dict)
    cut: bool = False


def certificate(folder: Path) -> Path:
    """Make a key and a certificate for 127.0.0.1, in one PEM file."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "a hypervisor of a test")])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(
            x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]),
            critical=False,
        )
        .sign(key, hashes.SHA256())
    )
    path = folder / "server.pem"
    path.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
        + made.public_bytes(serialization.Encoding.PEM)
    )
    return path


class LoopbackServer:
    """Answers requests in threads, and remembers them.

    Args:
        folder: Where the certificate is made.
    """

    def __init__(self, folder: Path) -> None:
        self.ca = certificate(folder)
        self.lock = threading.RLock()
        self.asked: list[str] = []
        """Every request that was answered, as ``METHOD PATH`` or by its name."""
        self.cuts: list[re.Pattern[str]] = []
        """A request that one of these finds loses its connection once, when its work is done."""
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            # An answer's head and body are two packets; the second would await a delayed ACK.
            disable_nagle_algorithm = True

            def handle_one(self) -> None:
                size = int(self.headers.get("Content-Length", "0"))
                body = self.rfile.read(size) if size else b""
                headers = {name.lower(): value for name, value in self.headers.items()}
                peer = ":".join(map(str, self.client_address))
                asked = Asked(self.command, self.path, headers, body, peer=peer)
                answer = server.reply(asked)
                if answer.cut and not answer.body:
                    self.connection.close()
                    self.close_connection = True
                    return
                self.send_response(answer.status, answer.reason)
                for name, value in answer.headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(answer.body)))
                self.end_headers()
                if answer.cut:
                    self.wfile.write(answer.body[: len(answer.body) // 2])
                    self.wfile.flush()
                    self.connection.close()
                    self.close_connection = True
                elif self.command != "HEAD":
                    self.wfile.write(answer.body)

            do_GET = do_POST = do_PUT = do_DELETE = do_HEAD = do_OPTIONS = handle_one  # noqa: N815

            def log_message(self, format: str, *args: object) -> None:
                pass

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._http.daemon_threads = True
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.ca)
        self._http.socket = context.wrap_socket(
            self._http.socket, server_side=True, do_handshake_on_connect=False
        )
        self.port = int(self._http.server_address[1])
        self._thread = threading.Thread(
            target=self._http.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True
        )

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()

    def reply(self, asked: Asked) -> Answer:
        answer = self.answer(asked)
        label = asked.label or f"{asked.method} {asked.path}"
        with self.lock:
            self.asked.append(label)
            for pattern in self.cuts:
                if pattern.search(label):
                    self.cuts.remove(pattern)
                    answer.cut = True
                    break
        return answer

    def answer(self, asked: Asked) -> Answer:
        raise NotImplementedError
