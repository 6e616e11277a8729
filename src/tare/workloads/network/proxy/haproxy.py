"""HAProxy as the machine's server: a reverse proxy that parses HTTP."""

from __future__ import annotations

from tare.workloads.network.ends import HTTP_PORT, ORIGIN_PORT, End
from tare.workloads.network.proxy.parameters import ProxyParameters

PROGRAM = "haproxy"
FOLDER = "/tmp/tare-haproxy"
SOCKET = f"{FOLDER}/stats"
QUESTIONS = ("show info", "show stat")
BACKLOG = 4096

CONFIGURATION = """\
global
    maxconn {maxconn}
    stats socket {socket} mode 600 level admin
    {threads}
defaults
    mode http
    timeout connect {timeout}s
    timeout client {timeout}s
    timeout server {timeout}s
    retries 0
    {reuse}
frontend clients
    bind {{address}}:{{port}} backlog {backlog}
    default_backend origins
backend origins
    server origin {{origin}}:{origin_port} maxconn {maxconn}
"""
"""What HAProxy is told: no log, no checks of the origin's health, no request tried twice.

With one request a connection it closes the origin's connection after the answer, too.
"""
KEEPING = "option http-keep-alive\n    http-reuse always"
CLOSING = "option httpclose"


def haproxy(parameters: ProxyParameters) -> End:
    """Return HAProxy with its configuration."""
    kept = parameters.requests == "keep-alive"
    configuration = CONFIGURATION.format(
        # Client and origin have a descriptor each, and a rest is needed for itself.
        maxconn=2 * parameters.most_connections + 64,
        socket=SOCKET,
        threads=f"nbthread {parameters.haproxy_threads}" if parameters.haproxy_threads else "",
        timeout=max(1, round(parameters.timeout)),
        reuse=KEEPING if kept else CLOSING,
        backlog=BACKLOG,
        origin_port=ORIGIN_PORT,
    )
    return End(
        "serve-program",
        {
            "argv": [PROGRAM, "-db", "-f", f"{FOLDER}/haproxy.cfg"],
            "port": HTTP_PORT,
            "files": {f"{FOLDER}/haproxy.cfg": configuration},
        },
    )
