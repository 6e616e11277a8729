"""Where a host has the programs that Tare runs there, and how a missing one is installed."""

from __future__ import annotations

from collections.abc import Iterable

from tare.errors import TareError
from tare.hosts.contract import Host
from tare.programs import Program, install_command, search_command

_ASK_S = 30.0
_OS_RELEASE = ("/etc/os-release", "/usr/lib/os-release")


async def find_program(
    host: Host, program: Program, names: Iterable[str] | None = None
) -> str | None:
    """Return the file of a program on a host, also outside the PATH of Tare's user.

    Args:
        host: Where to search.
        program: What to search.
        names: Search these names instead of all of the program's.

    Returns:
        Its path; None if it is not there.
    """
    found = await host.run(search_command(program, names), timeout_s=_ASK_S)
    path = found.stdout.decode(errors="replace").strip().partition("\n")[0]
    return path if found.ok and path else None


async def how_to_install(host: Host, *programs: Program) -> str:
    """Return what to type on a host to install programs, for the distribution that it runs."""
    for file in _OS_RELEASE:
        try:
            return install_command((await host.read(file)).decode(errors="replace"), programs)
        except (OSError, TareError):
            continue
    return install_command("", programs)
