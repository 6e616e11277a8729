"""Builds of the agent with the same compiler give the same bytes, from any folder."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def built_in(folder: Path) -> bytes:
    for name in (".cargo", "agent", "scripts"):
        left_out = shutil.ignore_patterns("target", "__pycache__")
        shutil.copytree(ROOT / name, folder / name, ignore=left_out)
    home = folder / "cargo"
    shutil.copytree(
        Path(os.environ.get("CARGO_HOME", Path.home() / ".cargo")) / "registry",
        home / "registry",
    )
    subprocess.run(
        ["nice", "cargo", "build", "--quiet", "--release", "--locked", "--offline",
         "--manifest-path", "agent/Cargo.toml"],
        cwd=folder, check=True, env={**os.environ, "CARGO_HOME": str(home)},
    )  # fmt: skip
    (program,) = (folder / "agent" / "target").glob("*/release/tare-agent")
    return program.read_bytes()


@pytest.mark.acceptance
@pytest.mark.timeout(1800)
def test_two_folders_and_two_homes_give_the_same_agent(tmp_path: Path) -> None:
    first = built_in(tmp_path / "one")
    second = built_in(tmp_path / "another" / "further" / "below")
    assert hashlib.sha256(first).hexdigest() == hashlib.sha256(second).hexdigest()
    assert str(tmp_path).encode() not in first
