"""What of Tare's own environment the programs that it starts get to see.

A user's environment holds secrets: tokens of CI, keys of clouds, passwords that a hosts file names.
A hypervisor, a runtime or a host's tool needs none of them, and shows them to whoever may read its
``/proc/PID/environ``. So programs get a short list of variables, and what their caller adds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

PASSED = frozenset(
    {
        *("PATH", "HOME", "USER", "LOGNAME", "SHELL", "PWD", "TERM", "TZ", "TMPDIR"),
        *("LANG", "LANGUAGE", "LD_LIBRARY_PATH", "XDG_RUNTIME_DIR"),
        *("XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME"),
        # Where locks are: a script that takes one has to find the same.
        "TARE_LOCKS",
    }
)
"""Where things are, who the user is, and how text and time are written; and all of ``LC_*``."""
FETCHERS = frozenset({"apt-get", "mvn"})
"""Programs that fetch from the network, whose proxy a user may have to name, with a password."""
_OF_FETCHERS = frozenset(
    {
        *("http_proxy", "https_proxy", "ftp_proxy", "all_proxy", "no_proxy"),
        *("HTTP_PROXY", "HTTPS_PROXY", "FTP_PROXY", "ALL_PROXY", "NO_PROXY"),
        *("APT_CONFIG", "JAVA_HOME", "MAVEN_OPTS"),
    }
)


def environment_for(argv: Sequence[str], own: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that a program gets to see.

    Args:
        argv: The program and its arguments. Where one of them is a fetcher, such as in
            ``env -C FOLDER apt-get``, what says how the network is reached is passed, too.
        own: Tare's own environment.
    """
    more = _OF_FETCHERS if FETCHERS.intersection(argv) else frozenset()
    return {
        name: value
        for name, value in own.items()
        if name in PASSED or name in more or name.startswith("LC_")
    }
