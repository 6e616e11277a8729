"""nginx as a server of one file, from memory and without a log."""

from __future__ import annotations

from tare.workloads.network.ends import End

FOLDER = "/tmp/tare-nginx"
LEAST_CONNECTIONS = 4096
"""The number of concurrent connections that a worker accepts at least."""

CONFIGURATION = """\
daemon off;
user root;
worker_processes {workers};
worker_rlimit_nofile {descriptors};
pid {folder}/nginx.pid;
error_log stderr error;
events {{ worker_connections {connections}; }}
http {{
    access_log off;
    sendfile on;
    tcp_nopush on;
    keepalive_requests 1000000;
    default_type application/octet-stream;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    server {{
        {listens}
        root {folder}/files;
    }}
}}
"""
"""Nginx's configuration: a worker for each CPU, no access log, files from memory by sendfile.

nginx keeps its user: in a container, it lacks the capabilities to change to another.
"""


def nginx(
    size: int, port: int, workers: int | None = None, connections: int = 0, ports: int = 1
) -> End:
    """Return a server of one file, ``/file``.

    Args:
        size: The file's size in bytes; it may be 0.
        port: The port that it listens on, at the given address.
        workers: The number of its processes; None: one for each CPU that it may use.
        connections: The number of concurrent connections that each process must accept at least.
        ports: The number of ports that it listens on, from ``port`` on.
    """
    numbers = ("{port}", *(str(port + more) for more in range(1, ports)))
    most = max(LEAST_CONNECTIONS, connections)
    configuration = CONFIGURATION.format(
        folder=FOLDER,
        listens="\n        ".join(f"listen {{address}}:{each} backlog=4096;" for each in numbers),
        workers=workers or "auto",
        connections=most,
        # Each connection has a socket and the file open; a login's usual limit is 1024 in total.
        descriptors=2 * most + 64,
    )
    return End(
        "serve-program",
        {
            "argv": ["nginx", "-p", FOLDER, "-c", f"{FOLDER}/nginx.conf", "-e", "stderr"],
            "port": port,
            "files": {f"{FOLDER}/nginx.conf": configuration},
            "filled": {f"{FOLDER}/files/file": size},
        },
    )
