"""The least Rust that is promised is enough for all that is locked.

That Tare's own code asks nothing newer of Rust's library is seen by clippy's `incompatible_msrv`,
which `make lint` denies; with exactly that compiler `make acceptance` builds the agent.
"""

from __future__ import annotations

import json
import subprocess
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
MANIFEST = ROOT / "agent" / "Cargo.toml"


def version(text: str) -> tuple[int, int]:
    major, minor, *_ = (*text.split("."), "0")
    return int(major), int(minor)


def test_nothing_that_is_locked_needs_a_newer_rust() -> None:
    done = subprocess.run(
        ["cargo", "metadata", "--locked", "--format-version=1", f"--manifest-path={MANIFEST}"],
        capture_output=True, check=True,
    )  # fmt: skip
    least = version(tomllib.loads(MANIFEST.read_text())["package"]["rust-version"])
    packages = json.loads(done.stdout)["packages"]
    assert len(packages) > 50
    newer = {
        each["name"]: each["rust_version"]
        for each in packages
        if each["rust_version"] and version(each["rust_version"]) > least
    }
    assert newer == {}


def test_the_lint_of_what_is_newer_is_denied() -> None:
    assert tomllib.loads(MANIFEST.read_text())["lints"]["clippy"]["incompatible_msrv"] == "deny"
