"""The versions of Tare, its libraries and its agent, so that a run can be reproduced."""

from __future__ import annotations

import hashlib
import platform
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

LIBRARIES = ("pydantic", "polars", "numpy", "qemu.qmp")
ASK_S = 10


def tare_version() -> str:
    """Return the version of Tare, or ``unknown`` if it is not installed as a package."""
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
    """Return the agent's SHA-256, and the version and compiler that it reports.

    The same sources and the same compiler result in the same SHA-256.

    Args:
        program: The agent.
    """
    command = [str(program), "version"]
    try:
        ended = subprocess.run(command, capture_output=True, text=True, timeout=ASK_S, check=False)
        answer = ended.stdout.strip()
    except (OSError, subprocess.TimeoutExpired) as error:
        answer = f"does not answer: {error}"
    return {"said": answer, "sha256": hashlib.sha256(program.read_bytes()).hexdigest()}
