"""Provide cargo-mutants, which set-up does not install because few developers need it."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

VERSION = "27.1.0"


def cargo_mutants() -> str:
    """Return the path of cargo-mutants; build it first if this version is missing."""
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
    """Return an environment whose PATH includes the folder in which set-up installs cargo."""
    return {**os.environ, "PATH": f"{Path.home() / '.cargo' / 'bin'}:{os.environ['PATH']}"}


def _version_of(tool: Path) -> str:
    done = subprocess.run([tool, "--version"], capture_output=True, text=True, check=False)
    return done.stdout
