"""Connections to a Dask cluster, a cluster of labs on this computer, and workers of hosts."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import dask
from distributed import Client, Scheduler, Worker

from tare.errors import InputError
from tare.fleet.cluster import RESOURCE, Cluster, Task
from tare.fleet.labs import lab_names
from tare.fleet.scratch import scratch
from tare.fleet.servers import HostWorker, QuietScheduler, WorkersHost
from tare.fleet.worker_task import run_part
from tare.lab.memory import require_memory

if TYPE_CHECKING:
    from distributed import Security

    from tare.study.model.study import Study

CONNECT_S = 15.0
MOST_ASKED = 1 << 16
"""Requests that a controller may have open at once: one waits for the messages of each host. With
Dask's default of 512, that many hosts would take all, and nothing could be sent to them."""
SETTINGS = {
    # A worker runs next to the workload: it must not sample itself a hundred times a second, nor
    # check fifty times a second how late its own loop is.
    "distributed.worker.profile.enabled": False,
    "distributed.admin.tick.interval": "1s",
    "distributed.admin.system-monitor.interval": "10s",
    "distributed.admin.system-monitor.gil.enabled": False,
    "distributed.client.scheduler-info-interval": "60s",
    "distributed.worker.memory.target": False,
    "distributed.worker.memory.spill": False,
    "distributed.worker.memory.pause": False,
    "distributed.worker.memory.terminate": False,
    # Tare repeats lost cells, not Dask.
    "distributed.scheduler.allowed-failures": 0,
    "distributed.scheduler.worker-ttl": "30s",
    "distributed.admin.tick.limit": "30s",
}
"""Dask's settings for measurements: https://docs.dask.org/en/stable/configuration.html."""


@contextmanager
def _settings() -> Iterator[None]:
    logging.getLogger("distributed").setLevel(logging.WARNING)
    with dask.config.set(SETTINGS):
        yield


@asynccontextmanager
async def connected(
    address: str,
    security: Security | None,
    program: Sequence[str] = (),
    task: Task = run_part,
) -> AsyncIterator[Cluster]:
    """Connect to a scheduler.

    Args:
        address: ``tcp://NAME:PORT`` or ``tls://NAME:PORT``.
        security: The certificates for ``tls://``.
        program: The program that runs a host's part; Tare's own if empty.
        task: The Dask task of each attempt.

    Raises:
        InputError: It does not answer.
    """
    client = Client(
        address,
        asynchronous=True,
        security=security,
        timeout=CONNECT_S,
        set_as_default=False,
        connection_limit=MOST_ASKED,
    )
    try:
        try:
            await _answered(client)
        except (OSError, ValueError, TypeError, RuntimeError) as error:
            reason = str(error) or "it accepts connections but does not answer"
            raise InputError(
                f"no scheduler answers at {address}: {reason}",
                f"start one: tare scheduler {address}, and a `tare worker` for each host; "
                + _encrypted(address),
            ) from error
        yield Cluster(client, program, task)
    finally:
        with suppress(OSError, TimeoutError, asyncio.TimeoutError):
            await client.close(timeout=2)


async def _answered(client: Client) -> None:
    """Wait until a scheduler has answered.

    Dask waits for ever for a scheduler that accepts the connection but does not answer, and
    sometimes ignores Ctrl-C meanwhile. So this waits with a time limit of its own.

    Raises:
        TimeoutError: It does not answer.
    """

    async def connect() -> None:
        await client

    connecting = asyncio.create_task(connect())
    try:
        await asyncio.wait({connecting}, timeout=CONNECT_S + 5)
        if not connecting.done():
            raise TimeoutError
        connecting.result()
    finally:
        connecting.cancel()


@asynccontextmanager
async def scheduler(
    address: str, security: Security | None = None, dashboard: str = ""
) -> AsyncIterator[Scheduler]:
    """Serve a scheduler with the settings for measurements.

    Args:
        address: The address to listen at, ``tcp://NAME:PORT`` or ``tls://NAME:PORT``.
        security: The certificates for ``tls://``.
        dashboard: The address of Dask's own page; empty: none.

    Raises:
        InputError: It cannot listen there.
    """
    protocol, _, place = address.rpartition("://")
    host, _, port = place.rpartition(":")
    with _settings():
        try:
            async with QuietScheduler(
                host=host,
                port=int(port),
                protocol=protocol or "tcp",
                security=security,
                dashboard=bool(dashboard),
                dashboard_address=dashboard or None,
            ) as serving:
                yield serving
        except OSError as error:
            raise InputError(f"cannot listen at {address}: {error}", "choose another") from error


@dataclass(frozen=True)
class ListenAddress:
    """An address of this computer, and a port; 0: any free port."""

    name: str
    port: int = 0


@asynccontextmanager
async def worker(
    address: str,
    name: str,
    host: WorkersHost,
    security: Security | None = None,
    listen: ListenAddress | None = None,
) -> AsyncIterator[Worker]:
    """Run the worker of a host in a cluster.

    Args:
        address: The scheduler's address.
        name: The host's name in the cluster.
        host: The host.
        security: The certificates for ``tls://``.
        listen: The worker's own address; None: any port at the address that faces the scheduler.

    Raises:
        InputError: The scheduler does not answer, the host has a worker already, or the worker
            cannot listen at the address.
    """
    if listen is not None:
        _require_listenable(listen)
    at = listen or ListenAddress(_own_address(address))
    with _settings(), scratch("worker") as place:
        serving = HostWorker(
            address,
            name=name,
            nthreads=1,
            resources={RESOURCE + name: 1},
            # Dask needs IPv6 addresses in brackets, as in URLs.
            host=f"[{at.name}]" if ":" in at.name else at.name,
            port=at.port,
            memory_limit=0,
            dashboard=False,
            local_directory=str(place.folder),
            security=security,
            death_timeout=CONNECT_S,
        )
        serving.stands_for = host
        try:
            await serving
        except (RuntimeError, OSError, TimeoutError) as error:
            raise _refused(address, name, error) from error
        try:
            yield serving
        finally:
            await serving.close()


def _require_listenable(place: ListenAddress) -> None:
    """Check that this computer can listen at an address, which Dask's errors do not name.

    Raises:
        InputError: It cannot.
    """
    family = socket.AF_INET6 if ":" in place.name else socket.AF_INET
    try:
        socket.create_server((place.name, place.port), family=family).close()
    except OSError as error:
        raise InputError(
            f"cannot listen at {place.name}: {error.strerror or error}",
            "name an address of this computer, and a free port",
        ) from error


def _refused(address: str, name: str, error: BaseException) -> InputError:
    cause = error.__cause__ or error
    if "name taken" in str(cause):
        return InputError(
            f"the host {name} has a worker already",
            "end it first: a host measures one thing at a time",
        )
    return InputError(
        f"no scheduler answers at {address}: {cause or type(cause).__name__}",
        f"start one: tare scheduler {address}; {_encrypted(address)}",
    )


def _encrypted(address: str) -> str:
    """Return advice on encryption, for a scheduler that exists but does not answer."""
    if address.startswith("tls://"):
        return (
            "if there is one, its certificate and the one given here must both be signed by "
            "the CA of --tls-ca"
        )
    return f"if it is encrypted, use tls{address[address.find('://') :]}"


@asynccontextmanager
async def local_labs(
    number: int, study: Study, program: Sequence[str] = ()
) -> AsyncIterator[Cluster]:
    """Run a cluster of labs on this computer, which do not disturb one another.

    Args:
        number: The number of labs.
        study: The study.
        program: The program that runs a lab's part; Tare's own if empty.

    Raises:
        InputError: The study is not for a lab whose time counts instructions, or there is too
            little memory.
    """
    if study.host.kind != "lab" or not study.lab.deterministic:
        raise InputError(
            "--cluster local:N runs labs at the same time, and only labs whose time counts "
            "instructions do not disturb one another",
            "write `host: lab` and `lab: deterministic`, or remove --cluster",
        )
    require_memory(Path("/proc/meminfo").read_text(), study.lab.memory, number)
    async with AsyncExitStack() as held:
        serving = await held.enter_async_context(scheduler("tcp://127.0.0.1:0"))
        for name in lab_names(number):
            await held.enter_async_context(worker(serving.address, name, WorkersHost()))
        yield await held.enter_async_context(connected(serving.address, None, program))


def _own_address(scheduler: str) -> str:
    """Return the address of this computer at which a scheduler reaches it.

    Raises:
        InputError: There is no route to the scheduler, or its name cannot be resolved.
    """
    name, _, port = scheduler.partition("://")[2].rpartition(":")
    try:
        known = socket.getaddrinfo(name.strip("[]"), int(port), type=socket.SOCK_DGRAM)
        known.sort(key=lambda each: each[0] != socket.AF_INET)
        family, kind, protocol, _, place = known[0]
        with socket.socket(family, kind, protocol) as probe:
            # This sends nothing: the kernel only chooses the source address.
            probe.connect(place)
            return str(probe.getsockname()[0])
    except OSError as error:
        raise InputError(
            f"there is no route to the scheduler at {scheduler}: {error.strerror or error}",
            "write the address at which this computer reaches it",
        ) from error


def keep_to(cpus: Sequence[int]) -> tuple[int, ...]:
    """Bind this process to some CPUs; return all CPUs that it had, for the measurements.

    Args:
        cpus: The housekeeping CPUs; empty: no binding.

    Raises:
        InputError: It does not have all of them.
    """
    if not cpus:
        return ()
    before = tuple(sorted(os.sched_getaffinity(0)))
    if unknown := [str(cpu) for cpu in cpus if cpu not in before]:
        raise InputError(
            f"--cpus: this worker cannot run on CPU {', '.join(unknown)}",
            f"name some of: {', '.join(map(str, before))}",
        )
    os.sched_setaffinity(0, cpus)
    return before
