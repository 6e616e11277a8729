"""Search for programs on a host, and instructions to install missing ones."""

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
        program: The program.
        names: Search these names instead of all of the program's.

    Returns:
        Its path, or None.
    """
    found = await host.run(search_command(program, names), timeout_s=_ASK_S)
    path = found.stdout.decode(errors="replace").strip().partition("\n")[0]
    return path if found.ok and path else None


async def install_command_for(host: Host, *programs: Program) -> str:
    """Return the command that installs programs on a host, for its distribution."""
    for file in _OS_RELEASE:
        try:
            return install_command((await host.read(file)).decode(errors="replace"), programs)
        except (OSError, TareError):
            continue
    return install_command("", programs)
