"""The tool that is not installed with everything else, for few ever need it."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

VERSION = "27.1.0"


def cargo_mutants() -> str:
    """Return the path of cargo-mutants, which is built first where this version is not there."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    root = cache / "tare" / "mutants"
    tool = root / "bin" / "cargo-mutants"
    if not tool.is_file() or VERSION not in _version_of(tool):
        print(f"building cargo-mutants {VERSION}, which takes some minutes", flush=True)
        subprocess.run(
            ["cargo", "install", "--quiet", "--locked", "--root", str(root), "--version", VERSION,
             "cargo-mutants"],
            check=True, env=with_cargo(),
        )  # fmt: skip
    return str(tool)


def with_cargo() -> dict[str, str]:
    """Return the environment in which cargo is found where set-up put it."""
    return {**os.environ, "PATH": f"{Path.home() / '.cargo' / 'bin'}:{os.environ['PATH']}"}


def _version_of(tool: Path) -> str:
    done = subprocess.run([tool, "--version"], capture_output=True, text=True, check=False)
    return done.stdout
