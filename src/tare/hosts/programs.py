"""Search for programs on a host, and find the command that installs missing ones."""

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
    """Return the path of a program on a host, even outside the PATH of Tare's user.

    Args:
        host: The host to search.
        program: The program.
        names: The names to search for; None: all names of the program.

    Returns:
        The program's path; None if it was not found.
    """
    found = await host.run(search_command(program, names), timeout_s=_ASK_S)
    path = found.stdout.decode(errors="replace").strip().partition("\n")[0]
    return path if found.ok and path else None


async def install_command_for(host: Host, *programs: Program) -> str:
    """Return the command that installs programs on a host, depending on its distribution."""
    for file in _OS_RELEASE:
        try:
            return install_command((await host.read(file)).decode(errors="replace"), programs)
        except (OSError, TareError):
            continue
    return install_command("", programs)
