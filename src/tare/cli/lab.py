"""The commands `tare lab …`."""

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
    """The hypervisors that a lab can run."""

    kvm = "kvm"
    xen = "xen"
    none = "none"


class SchedulerName(StrEnum):
    """Xen's schedulers."""

    credit = "credit"
    credit2 = "credit2"
    rtds = "rtds"


class ReleaseName(StrEnum):
    """Releases of Debian."""

    bookworm = "bookworm"
    trixie = "trixie"


@lab_app.command()
def up(
    hypervisor: Annotated[
        HypervisorName, typer.Option(help="The hypervisor that it runs.")
    ] = HypervisorName.kvm,
    cpus: Annotated[
        int | None, typer.Option(help="Number of CPUs. Default: 2, or 1 with --deterministic.")
    ] = None,
    nodes: Annotated[int, typer.Option(help="Number of NUMA nodes.")] = 1,
    memory: Annotated[str, typer.Option(help="Amount of memory.")] = "4GiB",
    scheduler: Annotated[SchedulerName | None, typer.Option(help="Xen's scheduler.")] = None,
    deterministic: Annotated[
        bool,
        typer.Option("--deterministic", help="Derive its time from the number of instructions."),
    ] = False,
    xen: Annotated[
        str, typer.Option(metavar="FILE|rtds", help="Your own build of Xen, or one with RTDS.")
    ] = "",
    kernel: Annotated[
        str, typer.Option(metavar="FILE", help="Your own Linux kernel for the lab itself.")
    ] = "",
    qemu: Annotated[str, typer.Option(metavar="FILE", help="Your own QEMU to emulate it.")] = "",
    release: Annotated[
        ReleaseName | None, typer.Option(help="The Debian release that it runs.")
    ] = None,
    packages: Annotated[
        str, typer.Option(metavar="NAME,...", help="Additional packages to install in it.")
    ] = "",
) -> None:
    """Boot a lab. It runs until `tare lab down`."""
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
    own = _checked_files(xen, kernel, qemu)
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
    print(f"the lab is up after {time.monotonic() - began:.0f} s: log in with `tare lab ssh`")
    print("stop it with `tare lab down`")


def _checked_files(xen: str, kernel: str, qemu: str) -> dict[str, str]:
    """Return the user's own files that were named, after checking them."""
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
        list[str] | None,
        typer.Argument(metavar="[-- CMD...]", help="The command. Default: a shell."),
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
    """Stop the lab, and remove everything that it used here."""
    from tare.lab import background

    note = background.down()
    print("there was no lab" if note is None else f"the lab ({note.hypervisor}) is down")
