"""How many connections a process may hold open: where hosts meet, it has some for each of them."""

from __future__ import annotations

import resource
from contextlib import suppress

MOST = 1 << 20
"""As many as Linux lets a process have at most, where nobody says fewer (``fs.nr_open``)."""


def allow_many() -> None:
    """Let this process have as many file descriptors as it may: the usual 1,024 end at 200 hosts.

    Source: getrlimit(2); a process may raise its soft limit up to the hard one.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = MOST if hard == resource.RLIM_INFINITY else hard
    if soft != resource.RLIM_INFINITY and soft < most:
        with suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
