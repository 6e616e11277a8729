"""The commands `tare lab …`; thin."""

from __future__ import annotations

import os
from enum import StrEnum
from typing import Annotated

import typer

from tare.errors import InputError

lab_app = typer.Typer(
    help="An emulated host with KVM or Xen, on any computer.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


class HypervisorName(StrEnum):
    """What a lab can run."""

    kvm = "kvm"
    xen = "xen"
    none = "none"


class SchedulerName(StrEnum):
    """Schedulers of Xen."""

    credit = "credit"
    credit2 = "credit2"
    rtds = "rtds"


class ReleaseName(StrEnum):
    """Releases of Debian."""

    bookworm = "bookworm"
    trixie = "trixie"


@lab_app.command()
def up(
    hypervisor: Annotated[HypervisorName, typer.Option(help="What it runs.")] = HypervisorName.kvm,
    cpus: Annotated[
        int | None, typer.Option(help="How many CPUs it has: 2, or 1 with --deterministic.")
    ] = None,
    nodes: Annotated[int, typer.Option(help="How many NUMA nodes it has.")] = 1,
    memory: Annotated[str, typer.Option(help="How much memory it has.")] = "4GiB",
    scheduler: Annotated[SchedulerName | None, typer.Option(help="Xen's scheduler.")] = None,
    deterministic: Annotated[
        bool, typer.Option("--deterministic", help="Count its time in instructions.")
    ] = False,
    xen: Annotated[
        str, typer.Option(metavar="FILE|rtds", help="A Xen of your own, or one with RTDS.")
    ] = "",
    kernel: Annotated[
        str, typer.Option(metavar="FILE", help="A Linux of your own for the lab itself.")
    ] = "",
    qemu: Annotated[
        str, typer.Option(metavar="FILE", help="A QEMU of your own that emulates it.")
    ] = "",
    release: Annotated[
        ReleaseName | None, typer.Option(help="The Debian that it is made of.")
    ] = None,
    packages: Annotated[
        str, typer.Option(metavar="NAME,...", help="Further packages that it holds.")
    ] = "",
) -> None:
    """Boot a lab; it stays until `tare lab down`."""
    import time

    from tare.lab import background
    from tare.lab.options import LabOptions
    from tare.run.lifecycle.session import agent_path, cache_dir
    from tare.run.preflight.cache_wait import announced
    from tare.units import parse_size

    try:
        size = parse_size(memory)
    except ValueError as error:
        raise InputError(f"--memory {memory}: {error}") from error
    own = _own(xen, kernel, qemu)
    options = LabOptions(
        hypervisor=hypervisor.value,
        cpus=cpus if cpus is not None else 1 if deterministic else 2,
        memory=size,
        scheduler=None if scheduler is None else scheduler.value,
        deterministic=deterministic,
        xen=own.get("xen", ""),
        kernel=own.get("kernel", "generic"),
        qemu=own.get("qemu", ""),
        release=None if release is None else release.value,
        nodes=nodes,
        packages=tuple(name.strip() for name in packages.split(",")) if packages else (),
    )
    began = time.monotonic()
    with announced():
        background.up(options, agent_path(), cache_dir(), print)
    print(f"the lab is up after {time.monotonic() - began:.0f} s: `tare lab ssh` goes there")
    print("`tare lab down` ends it")


def _own(xen: str, kernel: str, qemu: str) -> dict[str, str]:
    """Return the files of the user's own that were named, looked at."""
    from tare.study.reading.own_files import kernel_file, program_file, xen_file

    named = {"xen": (xen, xen_file), "kernel": (kernel, kernel_file), "qemu": (qemu, program_file)}
    found = {}
    for what, (value, checked) in named.items():
        if value:
            try:
                found[what] = checked(value)
            except ValueError as error:
                raise InputError(f"--{what} {value}: {error}") from error
    return found


@lab_app.command(context_settings={"allow_interspersed_args": False})
def ssh(
    command: Annotated[
        list[str] | None, typer.Argument(metavar="[-- CMD...]", help="A shell otherwise.")
    ] = None,
) -> None:
    """Log in to the lab, or run a command there."""
    from tare.lab import background

    argv = background.way_in(command or [])
    try:
        os.execvp(argv[0], argv)
    except FileNotFoundError as error:
        raise InputError(
            "there is no command ssh here", "run: apt-get install --no-remove openssh-client"
        ) from error


@lab_app.command()
def down() -> None:
    """End the lab, and remove all it had here."""
    from tare.lab import background

    note = background.down()
    print("there was no lab" if note is None else f"the lab ({note.hypervisor}) is down")
