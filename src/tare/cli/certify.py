"""The command `tare certify`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tare.cli.output import piped_or_terminal, print_line
from tare.cli.study_options import HostAccess, HostsFile
from tare.errors import InputError
from tare.plaintext import plain_line

if TYPE_CHECKING:
    from tare.platforms.certificates.model import Certificate, Results

DIFFERS = 1
_LONGEST = 500
"""The most characters of a printed line, because a certificate may come from a stranger."""


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(certify)


def certify(
    platform: Annotated[str, typer.Argument(help="The platform, as `tare doctor` names it.")] = "",
    values: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="KEY=VALUE", help="An option of the platform, as YAML. Repeatable."
        ),
    ] = None,
    hosts: HostsFile = None,
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="Print every call that would change something; make none."),
    ] = False,
    check: Annotated[
        Path | None, typer.Option(help="Recompute the results of this file from its events.")
    ] = None,
    with_figures: Annotated[
        bool,
        typer.Option(
            "--with-figures",
            help="Include measured values; some licences restrict publishing them.",
        ),
    ] = False,
    minutes: Annotated[
        float, typer.Option(min=0.1, max=600, help="Time limit of the study, in minutes.")
    ] = 10.0,
    out: Annotated[Path | None, typer.Option(help="The file to write.")] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Start without asking.")] = False,
    host_access: HostAccess = False,
) -> None:
    """Test a platform on your own host, and write one file without secrets to send to the project.

    If the hosts file describes the hypervisor under `hypervisors`, the platform's name is enough;
    values of `--set` take precedence.
    For example: tare certify qemu --set accelerator=kvm --dry-run
    """
    import asyncio

    if check is not None:
        if platform or dry_run:
            raise InputError("--check only reads a file", "remove the platform and --dry-run")
        _check(check)
        return
    from tare.run.lifecycle.certifying import certify, list_steps, parse_request
    from tare.study.reading.hosts_file import load_hosts

    if not platform:
        raise InputError("no platform was named", "`tare doctor` lists the platforms")
    known = load_hosts(hosts)
    request = parse_request(
        platform,
        values or (),
        known,
        minutes=minutes,
        figures=with_figures,
        host_access=host_access,
    )
    for line in list_steps(request):
        print_line(line, wrapped=False)
    if dry_run:
        return
    file = out or Path(f"tare-certificate-{platform}.json")
    if file.exists():
        raise InputError(f"{file} exists already", "name another file with --out")
    if not yes:
        if not sys.stdin.isatty():
            raise InputError(
                "this needs your consent, and standard input is not a terminal", "add --yes"
            )
        typer.confirm("Run these steps on this host now?", abort=True)
    try:
        from tare.testing.certifying import try_all
    except ImportError as error:
        raise InputError(
            f"the conformance suite needs pytest ({error.name} is missing)",
            "pip install 'hypertare[testing]'",
        ) from error
    made = asyncio.run(certify(request, file, piped_or_terminal(), try_all))
    _print_results(made.results)
    print_line(f"read {file} before you send it; to check that it is consistent:")
    print_line(f"    tare certify --check {file}", wrapped=False)
    if not made.results.passes:
        raise typer.Exit(DIFFERS)


def _check(file: Path) -> None:
    from tare.platforms.certificates.model import contradictions, read_certificate

    about = read_certificate(file)
    _print_line(_title(about))
    _print_results(about.results)
    differs = contradictions(about)
    for sentence in differs:
        print_line(f"✗ {sentence}", "red", wrapped=False)
    if differs:
        raise typer.Exit(DIFFERS)
    print_line("✓ the results follow from the events (they are still self-reported)")


def _title(about: Certificate) -> str:
    build = ", ".join(f"{name} {version}" for name, version in about.build.items())
    return f"{about.platform} ({about.description}) on {about.made}: {build}"


def _print_results(results: Results) -> None:
    cases = ", ".join(f"{count} {outcome}" for outcome, count in results.cases.items())
    _print_line(f"cases: {cases}")
    for arm, ends in results.cells.items():
        counts = ", ".join(f"{count} {end}" for end, count in ends.items())
        _print_line(f"cells of {arm}: {counts}")
    for title, listed in (
        ("declared but not found", results.lacking),
        ("made but not declared", results.undeclared),
        ("left out", results.left_out),
    ):
        for each in listed:
            _print_line(f"{title}: {each}")
    if results.leftovers:
        print_line(f"left behind: {results.leftovers} resources; run `tare clean`", "red")
    print_line("passes" if results.passes else "does not pass")


def _print_line(text: str) -> None:
    """Print text of a certificate on one line, so that it cannot forge lines of Tare's output."""
    print_line(plain_line(text, _LONGEST), wrapped=False)
