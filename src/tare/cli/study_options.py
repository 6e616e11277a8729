"""The options that name a study on a command line and change it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tare.cli import completing
from tare.errors import InputError

if TYPE_CHECKING:
    from tare.run.lifecycle.setup import StudySource
    from tare.study.model.study import Study
    from tare.study.reading.changes import Changes


def _found_study(given: Path) -> Path:
    from tare.study.reading.shipped import find_study

    return find_study(given)


def _shipped(typed: str) -> list[str]:
    from tare.study.reading.shipped import shipped_studies

    return [name for name in shipped_studies() if name.startswith(typed)]


StudyFile = Annotated[
    Path,
    typer.Argument(
        metavar="STUDY",
        help="A study: a YAML file, or the name of one that `tare studies` lists.",
        callback=_found_study,
        autocompletion=_shipped,
    ),
]


def _from_zero(seed: int | None) -> int | None:
    if seed is not None and seed < 0:
        raise typer.BadParameter(f"write a whole number from 0 on, not {seed}")
    return seed


Seed = Annotated[
    int | None, typer.Option(callback=_from_zero, help="Seed of the random order, from 0 on.")
]
Host = Annotated[
    str,
    typer.Option(
        metavar="NAME",
        help="Run all arms on this host: local, lab, or a name from the hosts file.",
    ),
]
HostsFile = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="The hosts file. Default: ~/.config/tare/hosts.yaml."),
]
Arms = Annotated[
    list[str] | None,
    typer.Option(
        "--arm",
        metavar="A,B",
        help="Only these arms and the baseline, as in --arm kvm,xen-pv.",
        autocompletion=completing.arms,
    ),
]
Workloads = Annotated[
    list[str] | None,
    typer.Option(
        "--workload",
        metavar="W",
        help="Only these workloads, by their labels.",
        autocompletion=completing.workloads,
    ),
]
Scenarios = Annotated[
    list[str] | None,
    typer.Option(
        "--scenario",
        metavar="S",
        help="Only these scenarios.",
        autocompletion=completing.scenarios,
    ),
]
Blocks = Annotated[
    int | None,
    typer.Option(
        metavar="N",
        help="Run exactly this many blocks; 1 is a smoke run, without verdicts.",
    ),
]
HostAccess = Annotated[
    bool,
    typer.Option(
        "--allow-host-access",
        help="Allow the study's raw arguments, which may run programs or open files on hosts.",
    ),
]
Cpus = Annotated[
    str,
    typer.Option(
        metavar="LIST",
        help="The host's CPUs for machines, such as 2-5,8 or node:1 or l3:0.",
    ),
]
Housekeeping = Annotated[
    str,
    typer.Option(metavar="LIST", help="The host's CPUs for the rest of Tare, written like --cpus."),
]
Values = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        autocompletion=completing.values,
        metavar="KEY=VALUE",
        help="Set one value of the study, as YAML, such as --set shape.memory=1GiB or "
        "--set workloads.tick.samples=1000 or --set arms.kvm.cpu=EPYC. May be repeated.",
    ),
]


def changes_of(
    host: str,
    arms: list[str] | None,
    workloads: list[str] | None,
    scenarios: list[str] | None,
    blocks: int | None,
    values: list[str] | None,
    cpus: str = "",
    housekeeping: str = "",
) -> Changes:
    """Return the changes to a study that the options request; commas separate names."""
    from tare.study.reading.changes import Changes

    return Changes(
        host=host,
        arms=_names("--arm", arms),
        workloads=_names("--workload", workloads),
        scenarios=_names("--scenario", scenarios),
        blocks=blocks,
        values=tuple(values or ()),
        cpus=cpus,
        housekeeping=housekeeping,
    )


def read_study(path: Path, changes: Changes, hosts: Path | None) -> tuple[Study, StudySource]:
    """Read a study with its changes.

    Args:
        path: The study's file.
        changes: The changes from the command line.
        hosts: The hosts file, if the command line names one.

    Raises:
        InputError: The study, the changes or the hosts file cannot be used.
    """
    from tare.run.catalog import build_catalog, require_known_floors, require_known_probes
    from tare.run.lifecycle.session import study_source
    from tare.study.reading.hosts_file import load_hosts
    from tare.study.reading.load import load_study

    study = load_study(path, build_catalog(), changes, load_hosts(hosts))
    if study.floors:
        require_known_floors(study, path)
    require_known_probes(study, path)
    return study, study_source(path, changes.words)


def _names(option: str, given: list[str] | None) -> tuple[str, ...]:
    listed = (name.strip() for each in given or () for name in each.split(","))
    names = tuple(dict.fromkeys(filter(None, listed)))
    if given and not names:
        # For example an empty variable in a script, which would run the whole study.
        raise InputError(
            f"{option} {given[0]!r} has no name in it", "write one, or remove the option"
        )
    return names
