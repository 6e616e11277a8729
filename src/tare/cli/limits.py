"""The limits that a shell or a service sets for Tare itself, ulimit(1): looked at first.

With too little address space the libraries that Tare uses end the process themselves, and without
descriptors whatever is opened next is blamed.
"""

from __future__ import annotations

import contextlib
import resource

from tare.errors import InputError, TareError

LEAST_FILES = 64
USUAL_FILES = 1024
LEAST_ADDRESSES = 1 << 30
"""Bytes. A small run was seen to need 0.9 GiB, most of it reserved by threads and never used."""
NO_MEMORY = TareError(
    "there is no memory left for Tare itself", "make room (free -m), or raise the limit (ulimit -v)"
)


def require_limits() -> None:
    """See that Tare may open files and reserve memory; raise the soft limit of files if need be.

    Raises:
        InputError: A limit is too low; says which, and what to type.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if 0 <= soft < USUAL_FILES:
        most = USUAL_FILES if hard == resource.RLIM_INFINITY else min(hard, USUAL_FILES)
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
            soft = most
    if 0 <= soft < LEAST_FILES:
        raise InputError(
            f"Tare may have only {soft} files open at once (ulimit -n), and needs {LEAST_FILES}",
            f"raise the limit: ulimit -n {USUAL_FILES}",
        )
    addresses, _ = resource.getrlimit(resource.RLIMIT_AS)
    if addresses != resource.RLIM_INFINITY and 0 <= addresses < LEAST_ADDRESSES:
        raise InputError(
            f"Tare may have only {addresses >> 20} MiB of memory (ulimit -v), and needs "
            f"{LEAST_ADDRESSES >> 20} MiB",
            "raise the limit: ulimit -v unlimited",
        )
