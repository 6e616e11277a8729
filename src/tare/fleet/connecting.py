"""Reach a cluster of Dask's, or make one of labs on this computer; stand for a host in one."""

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
from tare.fleet.hosts_part import carry_out_part
from tare.fleet.labs import lab_names
from tare.fleet.scratch import scratch
from tare.fleet.servers import HostWorker, QuietScheduler, WorkersHost
from tare.lab.memory import require_memory

if TYPE_CHECKING:
    from distributed import Security

    from tare.study.model.study import Study

CONNECT_S = 15.0
MOST_ASKED = 1 << 16
"""Requests that a controller may have open at once: it waits for every host's word in one of its
own. Dask's usual 512 are all taken by as many hosts, and nothing could be sent to any of them."""
SETTINGS = {
    # A worker runs next to what is measured: it must not sample itself a hundred times a second,
    # nor look fifty times a second how late its own loop is.
    "distributed.worker.profile.enabled": False,
    "distributed.admin.tick.interval": "1s",
    "distributed.admin.system-monitor.interval": "10s",
    "distributed.admin.system-monitor.gil.enabled": False,
    "distributed.client.scheduler-info-interval": "60s",
    "distributed.worker.memory.target": False,
    "distributed.worker.memory.spill": False,
    "distributed.worker.memory.pause": False,
    "distributed.worker.memory.terminate": False,
    # A cell that was lost is repeated by Tare, not by Dask.
    "distributed.scheduler.allowed-failures": 0,
    "distributed.scheduler.worker-ttl": "30s",
    "distributed.admin.tick.limit": "30s",
}
"""Dask's settings that measuring needs: https://docs.dask.org/en/stable/configuration.html."""


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
    task: Task = carry_out_part,
) -> AsyncIterator[Cluster]:
    """Connect to a scheduler.

    Args:
        address: As ``tcp://NAME:PORT`` or ``tls://NAME:PORT``.
        security: The certificates for ``tls://``.
        program: What carries a host's part out; Tare's own if empty.
        task: What Dask is given for each attempt.

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
            said = str(error) or "it takes connections and says nothing"
            raise InputError(
                f"no scheduler answers at {address}: {said}",
                f"start one: tare scheduler {address}, and a `tare worker` for each host; "
                + _encrypted(address),
            ) from error
        yield Cluster(client, program, task)
    finally:
        with suppress(OSError, TimeoutError, asyncio.TimeoutError):
            await client.close(timeout=2)


async def _answered(client: Client) -> None:
    """Wait until a scheduler has answered.

    Dask waits for ever for one that takes the connection and says nothing, and now and then does
    not hear Ctrl-C meanwhile; so it is waited for from outside.

    Raises:
        TimeoutError: It says nothing.
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
    """Serve a scheduler with the settings that measuring needs.

    Args:
        address: Where it listens, as ``tcp://NAME:PORT`` or ``tls://NAME:PORT``.
        security: The certificates for ``tls://``.
        dashboard: Where Dask's own page listens; nowhere if empty.

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
class Place:
    """An address of this computer, and a port; 0: any that is free."""

    name: str
    port: int = 0


@asynccontextmanager
async def worker(
    address: str,
    name: str,
    host: WorkersHost,
    security: Security | None = None,
    listen: Place | None = None,
) -> AsyncIterator[Worker]:
    """Stand for a host in a cluster.

    Args:
        address: The scheduler's.
        name: What the cluster calls the host.
        host: What it is.
        security: The certificates for ``tls://``.
        listen: Where it listens itself; any port of the address that faces the scheduler if None.

    Raises:
        InputError: The scheduler does not answer, another worker stands for the host already, or it
            cannot listen there.
    """
    if listen is not None:
        _require_listenable(listen)
    at = listen or Place(_own_address(address))
    with _settings(), scratch("worker") as place:
        serving = HostWorker(
            address,
            name=name,
            nthreads=1,
            resources={RESOURCE + name: 1},
            # Dask wants an IPv6 address as in URLs.
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


def _require_listenable(place: Place) -> None:
    """See that this computer can listen somewhere: Dask's own words do not tell where it failed.

    Raises:
        InputError: It cannot.
    """
    family = socket.AF_INET6 if ":" in place.name else socket.AF_INET
    try:
        socket.create_server((place.name, place.port), family=family).close()
    except OSError as error:
        raise InputError(
            f"cannot listen at {place.name}: {error.strerror or error}",
            "name an address of this computer's, and a port that is free",
        ) from error


def _refused(address: str, name: str, error: BaseException) -> InputError:
    cause = error.__cause__ or error
    if "name taken" in str(cause):
        return InputError(
            f"another worker stands for the host {name} already",
            "end it first: a host measures one thing at a time",
        )
    return InputError(
        f"no scheduler answers at {address}: {cause or type(cause).__name__}",
        f"start one: tare scheduler {address}; {_encrypted(address)}",
    )


def _encrypted(address: str) -> str:
    """Return what keeps a scheduler that is there from answering, as far as it is encrypted."""
    if address.startswith("tls://"):
        return (
            "where there is one, its certificate and the one given here must both be signed by "
            "the CA of --tls-ca"
        )
    return f"one that is encrypted is reached by tls{address[address.find('://') :]}"


@asynccontextmanager
async def local_labs(
    number: int, study: Study, program: Sequence[str] = ()
) -> AsyncIterator[Cluster]:
    """Make a cluster of labs on this computer, which do not disturb one another.

    Args:
        number: How many.
        study: What they will measure.
        program: What carries a lab's part out; Tare's own if empty.

    Raises:
        InputError: The study is not for a lab whose time counts instructions, or there is too
            little memory for so many.
    """
    if study.host.kind != "lab" or not study.lab.deterministic:
        raise InputError(
            "--cluster local:N runs labs side by side, and only those whose time counts "
            "instructions do not disturb one another",
            "write `host: lab` and `lab: deterministic`, or leave --cluster out",
        )
    require_memory(Path("/proc/meminfo").read_text(), study.lab.memory, number)
    async with AsyncExitStack() as held:
        serving = await held.enter_async_context(scheduler("tcp://127.0.0.1:0"))
        for name in lab_names(number):
            standing = worker(serving.address, name, WorkersHost())
            await held.enter_async_context(standing)
        yield await held.enter_async_context(connected(serving.address, None, program))


def _own_address(scheduler: str) -> str:
    """Return the address of this computer by which a scheduler reaches it.

    Raises:
        InputError: There is no way to the scheduler, or nobody knows its name.
    """
    name, _, port = scheduler.partition("://")[2].rpartition(":")
    try:
        known = socket.getaddrinfo(name.strip("[]"), int(port), type=socket.SOCK_DGRAM)
        known.sort(key=lambda each: each[0] != socket.AF_INET)
        family, kind, protocol, _, place = known[0]
        with socket.socket(family, kind, protocol) as probe:
            # Nothing is sent: the kernel says which of its addresses it would send from.
            probe.connect(place)
            return str(probe.getsockname()[0])
    except OSError as error:
        raise InputError(
            f"there is no way to the scheduler at {scheduler}: {error.strerror or error}",
            "write the address by which this computer reaches it",
        ) from error


def keep_to(cpus: Sequence[int]) -> tuple[int, ...]:
    """Keep this process to some CPUs; return all that it had, for what measures.

    Args:
        cpus: The housekeeping CPUs; all if empty.

    Raises:
        InputError: It has not all of them.
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
