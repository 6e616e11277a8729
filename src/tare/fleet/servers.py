"""Dask's own servers as Tare runs them: without web pages, and with a host to stand for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from distributed import Scheduler, Worker
from distributed.http.routing import RoutingApplication
from tornado.httpserver import HTTPServer


@dataclass(frozen=True)
class WorkersHost:
    """The host that a worker stands for.

    Args:
        spec: What it is, as a study says it; None: as the study says.
        cpus: All CPUs of the host, where the worker itself keeps to some of them.
    """

    spec: Mapping[str, Any] | None = None
    cpus: tuple[int, ...] = ()


class _Unasked:
    """Listens for no browser unless an address is given: Dask's own servers always do."""

    def start_http_server(
        self, routes: Any, dashboard_address: Any, default_port: int = 0, ssl_options: Any = None
    ) -> None:
        """Listen for browsers where that was asked for."""
        if dashboard_address:
            super().start_http_server(routes, dashboard_address, default_port, ssl_options)  # type: ignore[misc]
        else:
            self.http_application = RoutingApplication(routes)
            self.http_server = HTTPServer(self.http_application)


class QuietScheduler(_Unasked, Scheduler):
    """Dask's scheduler, without a web server of its own."""


class HostWorker(_Unasked, Worker):
    """Dask's worker, without a web server of its own, that stands for a host."""

    stands_for: WorkersHost
