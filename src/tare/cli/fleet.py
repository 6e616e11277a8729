"""``--cluster``, ``tare scheduler`` and ``tare worker``: one study over many hosts."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tare.cli.telling import piped_or_terminal
from tare.errors import InputError

if TYPE_CHECKING:
    from distributed import Security

    from tare.events import RunFinished
    from tare.fleet.command import ClusterChoice
    from tare.fleet.connecting import Place
    from tare.fleet.servers import WorkersHost
    from tare.run.setup import StudySource
    from tare.study.model import Study

ClusterAddress = Annotated[
    str,
    typer.Option(
        "--cluster",
        metavar="ADDRESS",
        help="Share the study among hosts: a scheduler's tcp://NAME:PORT, or local:N for N "
        "deterministic labs side by side on this computer.",
    ),
]
_PEM = "file in PEM form"
Ca = Annotated[
    Path | None,
    typer.Option("--tls-ca", envvar="TARE_TLS_CA", help=f"Whom to trust: a {_PEM}."),
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
        InputError: Dask is not installed, certificates are missing, or it is to wait for boots.
    """
    if wait:
        raise InputError(
            "--wait is for a study with `sessions`, which runs on one computer without --cluster",
            "leave out one of the two",
        )
    _require_dask()
    from tare.fleet.command import ClusterChoice

    return ClusterChoice(address, security_of(address, ca, cert, key))


def security_of(
    address: str, ca: Path | None, cert: Path | None, key: Path | None
) -> Security | None:
    """Return the certificates for an address; None where it is not encrypted.

    Raises:
        InputError: Some are missing, or there is no such file.
    """
    given = {"--tls-ca": ca, "--tls-cert": cert, "--tls-key": key}
    if not address.startswith("tls://"):
        if any(given.values()):
            raise InputError(
                f"certificates are given, and {address} is not encrypted", "write tls://NAME:PORT"
            )
        return None
    for name, path in given.items():
        if path is None:
            raise InputError(f"{address} needs {name}", "see docs/fleet.md for how to make them")
        if not path.is_file():
            raise InputError(f"{name} {path}: there is no such file", "see docs/fleet.md")
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
) -> RunFinished | None:
    """Carry a study out on a cluster; None when it was interrupted."""
    import asyncio

    from tare.cli.ending import decide_on
    from tare.fleet.command import carry_out

    console = piped_or_terminal()
    running = carry_out(study, source, folder, seed, decide_on, console, choice, strict=strict)
    return asyncio.run(running)


def resume_on(
    choice: ClusterChoice, folder: Path, *, strict: bool, accept: bool
) -> RunFinished | None:
    """Go on with a shared run on a cluster; None when it was interrupted again.

    Raises:
        InputError: It is to go on with hosts that have changed.
    """
    if accept:
        raise InputError(
            "--accept is for a run of one host; of hosts that share a run none may have changed",
            "leave it out, make the host as it was, or start a new run",
        )
    import asyncio

    from tare.cli.ending import decide_on
    from tare.fleet.command import go_on

    going = go_on(folder, decide_on, piped_or_terminal(), choice, strict=strict)
    return asyncio.run(going)


def scheduler(
    address: Annotated[
        str, typer.Argument(metavar="ADDRESS", help="Where to listen, as tcp://NAME:8786.")
    ] = "tcp://127.0.0.1:8786",
    dashboard: Annotated[
        str, typer.Option(metavar="NAME:PORT", help="Where Dask's own page is shown.")
    ] = "",
    ca: Ca = None,
    cert: Certificate = None,
    key: Key = None,
) -> None:
    """Serve a scheduler of Dask's, which runs of many hosts meet at, until Ctrl-C.

    Whoever can connect to it can run programs on every worker: see docs/security.md.
    For example: tare scheduler tcp://127.0.0.1:8786
    """
    _require_dask()
    _require_address(address)
    if dashboard:
        _require_dashboard(dashboard)
    import asyncio

    from tare.fleet import connecting

    async def serve() -> None:
        security = security_of(address, ca, cert, key)
        async with connecting.scheduler(address, security, dashboard) as serving:
            print(f"the scheduler listens at {serving.address}", flush=True)
            await serving.finished()

    asyncio.run(serve())


def worker(
    address: Annotated[str, typer.Argument(metavar="ADDRESS", help="The scheduler's.")],
    host: Annotated[
        str,
        typer.Option(
            metavar="NAME", help="The host it stands for: local, lab, or one of the hosts file."
        ),
    ] = "local",
    name: Annotated[
        str, typer.Option(help="What the cluster calls the host; the host's name if left out.")
    ] = "",
    cpus: Annotated[
        str,
        typer.Option(metavar="LIST", help="Housekeeping CPUs that the worker keeps to, as 0,1."),
    ] = "",
    listen: Annotated[
        str,
        typer.Option(
            metavar="NAME[:PORT]",
            help="Where the worker itself listens, if not at the address that faces the scheduler.",
        ),
    ] = "",
    hosts: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The hosts file, if not the usual one.")
    ] = None,
    ca: Ca = None,
    cert: Certificate = None,
    key: Key = None,
) -> None:
    """Stand for a host in a cluster, until Ctrl-C or until the scheduler is gone.

    For example: tare worker --host xen1 tcp://10.0.0.1:8786
    """
    _require_dask()
    _require_address(address)
    import asyncio
    import socket

    from tare.fleet import connecting

    known_as = name or (socket.gethostname() if host == "local" else host)
    stands_for = _host(host, hosts, _cpus(cpus))
    at = _listening_place(listen)

    async def serve() -> None:
        security = security_of(address, ca, cert, key)
        async with connecting.worker(address, known_as, stands_for, security, at) as serving:
            told = f", and listens at {serving.address}" if listen else ""
            print(f"this worker stands for {known_as} at {address}{told}", flush=True)
            await serving.finished()

    asyncio.run(serve())


def _host(name: str, file: Path | None, cpus: list[int]) -> WorkersHost:
    """Return what a worker stands for.

    Raises:
        InputError: The hosts file does not know it.
    """
    from tare.fleet.connecting import keep_to
    from tare.fleet.servers import WorkersHost
    from tare.study.hosting import ALWAYS, HostSpec
    from tare.study.hosts_file import load_hosts

    if name in ALWAYS:
        spec = HostSpec.model_validate(name)
    else:
        known = load_hosts(file)
        if name not in known.hosts:
            raise InputError(
                f"there is no host {name!r}",
                f"name it in {known.path}, as `{name}: {{ssh: ADDRESS}}`",
            )
        spec = HostSpec.model_validate(known.hosts[name])
    return WorkersHost(spec.model_dump(mode="json"), keep_to(cpus))


def _cpus(said: str) -> list[int]:
    parts = [part.strip() for part in said.split(",") if part.strip()]
    if not all(part.isascii() and part.isdigit() for part in parts):
        raise InputError(f"--cpus {said}: not a list of CPUs", "write numbers, as --cpus 0,1")
    return [int(part) for part in parts]


def _listening_place(said: str) -> Place | None:
    """Return where a worker is told to listen; None where it is not told.

    Raises:
        InputError: It is no address of this computer's.
    """
    from tare.fleet.connecting import Place

    if not said:
        return None
    name, colon, port = said.rpartition(":") if not said.endswith("]") else (said, "", "")
    if not colon:
        name, port = said, "0"
    bare = name.removeprefix("[").removesuffix("]")
    if not bare or "/" in said or (":" in bare and bare == name) or not _is_port(port):
        raise InputError(
            f"--listen {said} is no address to listen at",
            "write an address of this computer, as 10.0.0.2, 10.0.0.2:9000 or [fd00::2]:9000",
        )
    return Place(bare, int(port))


def _require_address(address: str) -> None:
    protocol, _, place = address.partition("://")
    name, port = _parted(place)
    if protocol not in ("tcp", "tls") or not _is_port(port):
        raise InputError(
            f"{address} is no address of a scheduler", "write tcp://NAME:PORT or tls://NAME:PORT"
        )
    if not name:
        raise InputError(
            f"{address} names no host, and stands for every address of this computer",
            f"write the one that is meant, as {protocol}://127.0.0.1:{port} for this computer "
            "alone",
        )


def _parted(place: str) -> tuple[str, str]:
    """Return the name, without an IPv6 address's brackets, and the port of a place."""
    name, _, port = place.rpartition(":")
    return name.strip("[]"), port


def _is_port(said: str) -> bool:
    return said.isascii() and said.isdigit() and int(said) < 1 << 16


def _require_dask() -> None:
    if importlib.util.find_spec("distributed") is None:
        raise InputError(
            "many hosts need Dask, which is not installed", "pip install 'hypertare[cluster]'"
        )


def _require_dashboard(place: str) -> None:
    """See that Dask's page can be shown, and that its place names a host: else it is every one."""
    name, port = _parted(place)
    if not name or not _is_port(port):
        raise InputError(
            f"--dashboard {place} names no host and port",
            "write both, as 127.0.0.1:8787 for this computer alone",
        )
    if importlib.util.find_spec("bokeh") is None:
        raise InputError("Dask's page needs Bokeh, which is not installed", "pip install bokeh")
