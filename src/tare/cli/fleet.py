"""``--cluster``, ``tare scheduler`` and ``tare worker``: one study over many hosts."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tare.cli.fleet_checks import (
    listening_place,
    require_address,
    require_dashboard,
    require_usable,
    warn_if_open,
)
from tare.cli.output import piped_or_terminal
from tare.errors import InputError, TareError
from tare.fleet.labs import are_labs

if TYPE_CHECKING:
    from distributed import Security

    from tare.events import RunFinished
    from tare.fleet.command import ClusterChoice
    from tare.fleet.servers import WorkersHost
    from tare.run.lifecycle.setup import StudySource
    from tare.study.model.study import Study

ClusterAddress = Annotated[
    str | None,
    typer.Option(
        "--cluster",
        metavar="ADDRESS",
        help="Share the study among hosts: a scheduler's tcp://NAME:PORT, or local:N for N "
        "deterministic labs side by side on this computer.",
    ),
]
LABS = "local:N"
_PEM = "file in PEM form"
Ca = Annotated[
    Path | None,
    typer.Option(
        "--tls-ca", envvar="TARE_TLS_CA", help=f"The certificate authority to trust: a {_PEM}."
    ),
]
Certificate = Annotated[
    Path | None,
    typer.Option("--tls-cert", envvar="TARE_TLS_CERT", help=f"Own certificate: a {_PEM}."),
]
Key = Annotated[
    Path | None, typer.Option("--tls-key", envvar="TARE_TLS_KEY", help=f"Its key: a {_PEM}.")
]


def add_to(app: typer.Typer) -> None:
    """Add the commands to the program."""
    app.command()(scheduler)
    app.command()(worker)


def choice_of(
    address: str, ca: Path | None, cert: Path | None, key: Path | None, *, wait: bool
) -> ClusterChoice:
    """Return the cluster that a command line names.

    Raises:
        InputError: The command line names no cluster, Dask is not installed, certificates are
            missing or unusable, or the command also asks to wait for boots.
    """
    if wait:
        raise InputError(
            "--wait is for a study with `sessions`, which runs on one computer without --cluster",
            "remove one of the two",
        )
    if not are_labs(address):
        require_address(address, "--cluster ", f", or {LABS} for labs of this computer")
    _require_dask()
    from tare.fleet.command import ClusterChoice

    if are_labs(address):
        # The variables may be set for other clusters; these labs run in one process.
        return ClusterChoice(address)
    return ClusterChoice(address, security_of(address, ca, cert, key))


def require_no_cluster(study: Study) -> None:
    """Check that a study to be run on one host is not meant for the hosts of a cluster.

    Raises:
        InputError: The study names hosts that share it.
    """
    if study.spread is not None and study.spread.hosts:
        raise InputError(
            f"hosts of a cluster share this study: {', '.join(study.spread.hosts)}",
            "name their scheduler by --cluster ADDRESS, or one of them by --host NAME",
        )


def require_workers_hosts(address: str, host: str) -> None:
    """Check that a command line does not name a host, because in a cluster the workers name them.

    Raises:
        InputError: The command line names a host.
    """
    if host and not are_labs(address):
        raise InputError(
            f"--host {host} runs all arms on one host, but in a cluster the workers define the "
            "hosts",
            f"remove --host, and write `spread: split` and `hosts: [{host}]` in the study to use "
            "only that host's worker",
        )


def security_of(
    address: str, ca: Path | None, cert: Path | None, key: Path | None
) -> Security | None:
    """Return the certificates for an address; None if it is not encrypted.

    Raises:
        InputError: Some are missing or unusable.
    """
    given = {"--tls-ca": ca, "--tls-cert": cert, "--tls-key": key}
    if not address.startswith("tls://"):
        if any(given.values()):
            raise InputError(
                f"certificates are given, but {address} is not encrypted",
                f"write tls{address[address.find('://') :]}, or remove the certificates (including "
                "TARE_TLS_CA, TARE_TLS_CERT and TARE_TLS_KEY)",
            )
        return None
    for name, path in given.items():
        if path is None:
            raise InputError(f"{address} needs {name}", "`tare help fleet` shows how to make them")

    assert ca is not None and cert is not None and key is not None
    require_usable(ca, cert, key)
    from distributed import Security

    files = {
        f"tls_{role}_{kind}": str(path)
        for role in ("client", "scheduler", "worker")
        for kind, path in (("cert", cert), ("key", key))
    }
    return Security(require_encryption=True, tls_ca_file=str(ca), **files)


def run_on(
    choice: ClusterChoice,
    study: Study,
    source: StudySource,
    folder: Path,
    seed: int | None,
    *,
    strict: bool,
    host_access: bool,
) -> RunFinished | None:
    """Run a study on a cluster; return None if it was interrupted."""
    import asyncio

    from tare.cli.ending import decide_on
    from tare.fleet.command import run_on_cluster
    from tare.fleet.servers import allow_many
    from tare.run.lifecycle.interrupt import interruptible

    allow_many()
    console = piped_or_terminal()
    running = run_on_cluster(
        study, source, folder, seed, decide_on, console, choice,
        strict=strict, host_access=host_access,
    )  # fmt: skip
    return asyncio.run(interruptible(running))


def resume_on(
    choice: ClusterChoice, folder: Path, *, strict: bool, accept: bool, host_access: bool
) -> RunFinished | None:
    """Resume a shared run on a cluster; return None if it was interrupted again.

    Raises:
        InputError: `--accept` was given, but hosts that share a run must not have changed.
    """
    if accept:
        raise InputError(
            "--accept is for a run on one host; hosts that share a run must not have changed",
            "remove it and restore the host's former state, or start a new run",
        )
    import asyncio

    from tare.cli.ending import decide_on
    from tare.fleet.command import resume_on_cluster
    from tare.fleet.servers import allow_many
    from tare.run.lifecycle.interrupt import interruptible

    allow_many()
    console = piped_or_terminal()
    going = resume_on_cluster(
        folder, decide_on, console, choice, strict=strict, host_access=host_access
    )
    return asyncio.run(interruptible(going))


def scheduler(
    address: Annotated[
        str,
        typer.Argument(
            metavar="ADDRESS", help="The address to listen on, such as tcp://NAME:8786."
        ),
    ] = "tcp://127.0.0.1:8786",
    dashboard: Annotated[
        str, typer.Option(metavar="NAME:PORT", help="The address of Dask's dashboard.")
    ] = "",
    ca: Ca = None,
    cert: Certificate = None,
    key: Key = None,
) -> None:
    """Run a Dask scheduler that connects the workers and runs of many hosts, until Ctrl-C.

    Anyone who can connect to it can run programs on every worker: see `tare help security`.
    For example: tare scheduler tcp://127.0.0.1:8786
    """
    _require_dask()
    require_address(address)
    if dashboard:
        require_dashboard(dashboard)
    import asyncio

    from tare.fleet import connections
    from tare.fleet.servers import allow_many

    allow_many()

    async def serve() -> None:
        security = security_of(address, ca, cert, key)
        async with connections.scheduler(address, security, dashboard) as serving:
            print(f"the scheduler listens at {serving.address}", flush=True)
            warn_if_open(serving.address)
            await serving.finished()

    asyncio.run(serve())


def worker(
    address: Annotated[str, typer.Argument(metavar="ADDRESS", help="The scheduler's address.")],
    host: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="The host that it offers: local, lab, or a name from the hosts file.",
        ),
    ] = "local",
    name: Annotated[
        str, typer.Option(help="The host's name in the cluster. Default: the host's own name.")
    ] = "",
    cpus: Annotated[
        str,
        typer.Option(metavar="LIST", help="The CPUs that the worker itself uses, such as 0,1."),
    ] = "",
    listen: Annotated[
        str,
        typer.Option(
            metavar="NAME[:PORT]",
            help="The worker's address. Default: the one that faces the scheduler.",
        ),
    ] = "",
    hosts: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="The hosts file. Default: ~/.config/tare/hosts.yaml."),
    ] = None,
    ca: Ca = None,
    cert: Certificate = None,
    key: Key = None,
) -> None:
    """Offer a host to a cluster, until Ctrl-C or until the scheduler ends.

    For example: tare worker --host xen1 tcp://10.0.0.1:8786
    """
    _require_dask()
    require_address(address)
    import asyncio
    import socket

    from tare.fleet import connections

    known_as = name or (socket.gethostname() if host == "local" else host)
    offered = _host(host, hosts, _cpus(cpus))
    at = listening_place(listen)

    async def serve() -> None:
        security = security_of(address, ca, cert, key)
        async with connections.worker(address, known_as, offered, security, at) as serving:
            listens = f", and listens at {serving.address}" if listen else ""
            print(f"this worker offers {known_as} at {address}{listens}", flush=True)
            warn_if_open(serving.address)
            await serving.finished()
        raise TareError(
            f"the scheduler at {address} has ended, so this worker ends too",
            "start the worker again when the scheduler runs",
        )

    asyncio.run(serve())


def _host(name: str, file: Path | None, cpus: list[int]) -> WorkersHost:
    """Return the host that a worker offers.

    Raises:
        InputError: The hosts file does not have it.
    """
    from tare.fleet.connections import keep_to
    from tare.fleet.servers import WorkersHost
    from tare.study.reading.hosting import ALWAYS, HostSpec
    from tare.study.reading.hosts_file import load_hosts

    if name in ALWAYS:
        spec = HostSpec.model_validate(name)
    else:
        known = load_hosts(file)
        if name not in known.hosts:
            raise InputError(
                f"there is no host {name!r}",
                f"add it to {known.path}: `{name}: {{ssh: ADDRESS}}`",
            )
        spec = HostSpec.model_validate(known.hosts[name])
    return WorkersHost(spec.model_dump(mode="json"), keep_to(cpus))


def _cpus(text: str) -> list[int]:
    parts = [part.strip() for part in text.split(",") if part.strip()]
    if not all(part.isascii() and part.isdigit() for part in parts):
        raise InputError(f"--cpus {text}: not a list of CPUs", "write numbers, such as --cpus 0,1")
    return [int(part) for part in parts]


def _require_dask() -> None:
    if importlib.util.find_spec("distributed") is None:
        raise InputError(
            "a cluster needs Dask, which is not installed", "pip install 'hypertare[cluster]'"
        )
