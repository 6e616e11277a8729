"""HAProxy as the machine's server: a reverse proxy that parses HTTP."""

from __future__ import annotations

from tare.identity import Identity
from tare.workloads.network.ends import HTTP_PORT, End, origin_names
from tare.workloads.network.proxy.parameters import ProxyParameters

PROGRAM = "haproxy"
FOLDER = "/tmp/tare-haproxy"
SOCKET, SITE, CONFIGURED = f"{FOLDER}/stats", f"{FOLDER}/site.pem", f"{FOLDER}/haproxy.cfg"
VERSION = (PROGRAM, "-vv")
"""The command that prints its version, its libraries, and how it was built."""
QUESTIONS = ("show info", "show stat")
BACKLOG = 4096

CONFIGURATION = """\
global
    maxconn {maxconn}
    stats socket {socket} mode 600 level admin
    {threads}
    {sessions}
defaults
    mode http
    timeout connect {timeout}s
    timeout client {timeout}s
    timeout server {timeout}s
    retries 0
    {reuse}
frontend clients
    bind {{address}}:{{port}} backlog {backlog}{sealed}
    default_backend origins
backend origins
    {origins}
"""
"""HAProxy's configuration: no log, no checks of the origin's health, no request tried twice.

With one request per connection, it also closes the connection to the origin after the answer.
"""
KEEPING = "option http-keep-alive\n    http-reuse always"
CLOSING = "option httpclose"
SUITES = {
    "aes-128-gcm": "TLS_AES_128_GCM_SHA256",
    "aes-256-gcm": "TLS_AES_256_GCM_SHA384",
    "chacha20-poly1305": "TLS_CHACHA20_POLY1305_SHA256",
}
"""Maps the cipher names of a study to those of TLS 1.3 (RFC 8446, B.4)."""


def haproxy(parameters: ProxyParameters, shown: Identity | None = None) -> End:
    """Return HAProxy with its configuration.

    Args:
        parameters: The parameters of the load.
        shown: The key and certificate with which it terminates TLS; None: no TLS.
    """
    kept = parameters.requests == "keep-alive"
    maxconn = connection_limit(parameters)
    servers = (
        f"server {name} {{{name}}}:{{{name}-port}} maxconn {maxconn}"
        for name in origin_names(parameters.origin_addresses)
    )
    configuration = CONFIGURATION.format(
        maxconn=maxconn,
        socket=SOCKET,
        threads=f"nbthread {parameters.haproxy_threads}" if parameters.haproxy_threads else "",
        timeout=max(1, round(parameters.timeout)),
        reuse=KEEPING if kept else CLOSING,
        backlog=BACKLOG,
        sealed=_sealed(parameters),
        sessions=_sessions(parameters),
        origins="\n    ".join(servers),
    )
    return End(
        "serve-program",
        {
            "argv": [PROGRAM, "-db", "-f", CONFIGURED],
            "port": HTTP_PORT,
            "files": {CONFIGURED: configuration, **({} if shown is None else {SITE: shown.pem})},
        },
    )


def connection_limit(parameters: ProxyParameters) -> int:
    """Return the number of concurrent connections that HAProxy and the origin each accept.

    It is twice the client's maximum, because connections that are being closed count too, plus 64
    for HAProxy itself.
    """
    return 2 * parameters.most_connections + 64


def _sealed(parameters: ProxyParameters) -> str:
    """Return the options for HTTP/2 and TLS on the clients' side."""
    two = parameters.http == "2"
    if parameters.tls == "none":
        return " proto h2" if two else ""
    words = f" ssl crt {SITE} ssl-min-ver TLSv1.3 ciphersuites {SUITES[parameters.tls_cipher]}"
    words += f" alpn {'h2' if two else 'http/1.1'}"
    return words if parameters.tls_resumption else f"{words} no-tls-tickets"


def _sessions(parameters: ProxyParameters) -> str:
    """Return the setting that disables session resumption; empty if that is not required."""
    off = parameters.tls != "none" and not parameters.tls_resumption
    return "tune.ssl.cachesize 0" if off else ""
