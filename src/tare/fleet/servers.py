"""Dask's servers as Tare runs them: without web pages, and with one host for each worker."""

from __future__ import annotations

import resource
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from distributed import Scheduler, Worker
from distributed.http.routing import RoutingApplication
from tornado.httpserver import HTTPServer

MOST_DESCRIPTORS = 1 << 20
"""Linux's default limit of a process's file descriptors (``fs.nr_open``)."""


def allow_many() -> None:
    """Raise this process's limit of file descriptors: the default of 1,024 suffices for 200 hosts.

    Source: getrlimit(2); a process may raise its soft limit up to the hard one.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = MOST_DESCRIPTORS if hard == resource.RLIM_INFINITY else hard
    if soft != resource.RLIM_INFINITY and soft < most:
        with suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


@dataclass(frozen=True)
class WorkersHost:
    """The host of a worker.

    Args:
        spec: The host in the form of a study; None: as the study defines it.
        cpus: All CPUs of the host, if the worker itself is bound to some of them.
    """

    spec: Mapping[str, Any] | None = None
    cpus: tuple[int, ...] = ()


class _OptionalDashboard:
    """Serves web pages only if an address is given; Dask's own servers always do."""

    def start_http_server(
        self, routes: Any, dashboard_address: Any, default_port: int = 0, ssl_options: Any = None
    ) -> None:
        """Listen for browsers if an address is given."""
        if dashboard_address:
            super().start_http_server(routes, dashboard_address, default_port, ssl_options)  # type: ignore[misc]
        else:
            self.http_application = RoutingApplication(routes)
            self.http_server = HTTPServer(self.http_application)


class QuietScheduler(_OptionalDashboard, Scheduler):
    """Dask's scheduler, without a web server of its own."""


class HostWorker(_OptionalDashboard, Worker):
    """Dask's worker of one host, without a web server of its own."""

    stands_for: WorkersHost
