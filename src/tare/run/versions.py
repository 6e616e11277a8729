"""Which versions carried a run out, so that it can be reproduced."""

from __future__ import annotations

import platform
from importlib.metadata import PackageNotFoundError, version

LIBRARIES = ("pydantic", "polars", "numpy", "scipy", "qemu.qmp")


def tare_version() -> str:
    """Return the version of Tare, or ``unknown`` where it runs without being installed."""
    try:
        return version("hypertare")
    except PackageNotFoundError:
        return "unknown"


def run_versions() -> dict[str, str]:
    """Return the versions of Tare, Python and the libraries that shape results."""
    found = {"tare": tare_version(), "python": platform.python_version()}
    for library in LIBRARIES:
        try:
            found[library] = version(library)
        except PackageNotFoundError:
            continue
    return found
