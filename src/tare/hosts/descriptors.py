"""How many files and connections a process may have open at once."""

from __future__ import annotations

from collections.abc import Sequence

ROOM = 131_072
"""More than any workload's ends have connections; a login's usual limit is 1024."""
_RAISING = 'ulimit -n "$0" 2>/dev/null || ulimit -S -n "$(ulimit -H -n)"; exec "$@"'
"""Without the right to raise its hard limit, a process may have as many as that says."""


def with_room(argv: Sequence[str]) -> list[str]:
    """Return a command that is carried out with as many descriptors as it may get."""
    return ["sh", "-c", _RAISING, str(ROOM), *argv]
