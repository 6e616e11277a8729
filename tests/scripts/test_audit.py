"""What the databases of known faults say decides a status: clean, faulty, or not asked."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CLEAN = "echo No known vulnerabilities found"
FAULTY = "echo Found 2 known vulnerabilities in 1 package; exit 1"
SILENT = "echo ConnectionError: no route to host >&2; exit 1"
RUST_FAULTY = "echo error: 1 vulnerability found!; echo 1 vulnerabilities; exit 1"


def audited(home: Path, python: str, rust: str) -> subprocess.CompletedProcess[str]:
    tools = home / "tare" / "audit" / "bin"
    tools.mkdir(parents=True)
    for name, script in (("pip-audit", python), ("cargo-audit", rust)):
        (tools / name).write_text(f"#!/bin/sh\n{script}\n")
        (tools / name).chmod(0o755)
    return subprocess.run(
        [ROOT / "scripts" / "audit"],
        env={**os.environ, "XDG_CACHE_HOME": str(home)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.mark.parametrize(
    ("python", "rust", "status"),
    [
        (CLEAN, "exit 0", 0),
        (FAULTY, "exit 0", 1),
        (CLEAN, RUST_FAULTY, 1),
        (SILENT, "exit 0", 3),
        (SILENT, RUST_FAULTY, 1),
        (SILENT, SILENT, 3),
    ],
)
def test_the_status_says_what_is_known(python: str, rust: str, status: int, tmp_path: Path) -> None:
    done = audited(tmp_path, python, rust)
    assert done.returncode == status, done.stdout + done.stderr
    message = {0: "nothing is known", 1: "faults are known", 3: "could not be asked"}[status]
    assert message in done.stdout


@pytest.mark.parametrize(("status", "ends"), [(0, 0), (1, 1), (3, 0)])
def test_ci_continues_when_no_database_answers_and_fails_when_faults_are_known(
    status: int, ends: int
) -> None:
    asked = [line for line in (ROOT / ".ci" / "run").read_text().splitlines() if "audit" in line]
    (line,) = asked
    assert line.startswith("scripts/audit ")
    script = "set -euo pipefail; scripts_audit() { return " + str(status) + "; }; "
    script += line.replace("scripts/audit", "scripts_audit")
    assert subprocess.run(["bash", "-c", script], check=False).returncode == ends
