"""The command `tare certify`; thin."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tare.cli.study_options import HostAccess, HostsFile
from tare.cli.telling import piped_or_terminal, tell
from tare.errors import InputError
from tare.plaintext import plain_line

if TYPE_CHECKING:
    from tare.platforms.certificates.model import Certificate, Results

DIFFERS = 1
_LONGEST = 500
"""Characters of a line: a stranger may have written the file whose words it shows."""


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
        bool, typer.Option("--dry-run", help="Only print every call that would write.")
    ] = False,
    check: Annotated[
        Path | None, typer.Option(help="Recompute the results of this file from its events.")
    ] = None,
    with_figures: Annotated[
        bool,
        typer.Option(
            "--with-figures", help="Put values into the file; some licences restrict that."
        ),
    ] = False,
    minutes: Annotated[
        float, typer.Option(min=0.1, max=600, help="How long the study may take.")
    ] = 10.0,
    out: Annotated[Path | None, typer.Option(help="The file to write.")] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask before it begins.")] = False,
    host_access: HostAccess = False,
) -> None:
    """Try a platform on your own host, and write one file without secrets to send to the project.

    A hypervisor that the hosts file names under `hypervisors` needs no more than its platform's
    name; what is `--set` goes before that.

    For example: tare certify qemu --set accelerator=kvm --dry-run
    """
    import asyncio

    if check is not None:
        if platform or dry_run:
            raise InputError("--check reads a file and tries nothing", "leave the rest out")
        _check(check)
        return
    from tare.run.lifecycle.certifying import certify, list_steps, parse_request
    from tare.study.reading.hosts_file import load_hosts

    if not platform:
        raise InputError("no platform is named", "tare doctor lists them")
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
        tell(line, wrapped=False)
    if dry_run:
        return
    file = out or Path(f"tare-certificate-{platform}.json")
    if file.exists():
        raise InputError(f"{file} is there already", "name another file with --out")
    if not yes:
        if not sys.stdin.isatty():
            raise InputError("nobody is here to agree to this", "add --yes")
        typer.confirm("Do this on this host now?", abort=True)
    try:
        from tare.testing.certifying import try_all
    except ImportError as error:
        raise InputError(
            f"the conformance suite needs pytest ({error.name} is missing)",
            "pip install 'hypertare[testing]'",
        ) from error
    made = asyncio.run(certify(request, file, piped_or_terminal(), try_all))
    _say(made.results)
    tell(f"read {file} before you send it; to see that it agrees with itself:")
    tell(f"    tare certify --check {file}", wrapped=False)
    if not made.results.passes:
        raise typer.Exit(DIFFERS)


def _check(file: Path) -> None:
    from tare.platforms.certificates.model import contradictions, read_certificate

    about = read_certificate(file)
    _one_line(_title(about))
    _say(about.results)
    differs = contradictions(about)
    for sentence in differs:
        tell(f"✗ {sentence}", "red", wrapped=False)
    if differs:
        raise typer.Exit(DIFFERS)
    tell("✓ its results follow from its events; it is self-reported all the same")


def _title(about: Certificate) -> str:
    build = ", ".join(f"{name} {version}" for name, version in about.build.items())
    return f"{about.platform} ({about.description}) on {about.made}: {build}"


def _say(results: Results) -> None:
    cases = ", ".join(f"{count} {outcome}" for outcome, count in results.cases.items())
    _one_line(f"cases: {cases}")
    for arm, ends in results.cells.items():
        told = ", ".join(f"{count} {end}" for end, count in ends.items())
        _one_line(f"cells of {arm}: {told}")
    for title, listed in (
        ("stated and not found", results.lacking),
        ("made and not stated", results.undeclared),
        ("left out", results.left_out),
    ):
        for each in listed:
            _one_line(f"{title}: {each}")
    if results.leftovers:
        tell(f"left behind: {results.leftovers} things; run `tare clean`", "red")
    tell("passes" if results.passes else "does not pass")


def _one_line(text: str) -> None:
    """Print words of a certificate: a line end in them begins no line that Tare seems to say."""
    tell(plain_line(text, _LONGEST), wrapped=False)
