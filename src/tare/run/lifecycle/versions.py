"""Which versions carried a run out, so that it can be reproduced."""

from __future__ import annotations

import hashlib
import platform
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

LIBRARIES = ("pydantic", "polars", "numpy", "qemu.qmp")


ASK_S = 10


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


def agent_identity(program: Path) -> dict[str, str]:
    """Return which agent is installed: its SHA-256, and what it says of itself and its compiler.

    Whoever builds the same sources with the same compiler gets the same SHA-256.

    Args:
        program: The agent.
    """
    asked = [str(program), "version"]
    try:
        told = subprocess.run(asked, capture_output=True, text=True, timeout=ASK_S, check=False)
        said = told.stdout.strip()
    except (OSError, subprocess.TimeoutExpired) as error:
        said = f"does not answer: {error}"
    return {"said": said, "sha256": hashlib.sha256(program.read_bytes()).hexdigest()}
