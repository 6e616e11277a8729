"""A command imports only the libraries that it uses."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = """
import json, sys
from tare.cli.main import main
try:
    status = main()
except SystemExit as end:
    status = end.code
print(json.dumps(sorted(sys.modules)), file=sys.stderr)
sys.exit(status)
"""
NEVER = {"scipy", "ruptures", "vl_convert", "distributed", "dask", "pytest", "hypothesis"}
VENDORS = {"pyVmomi", "pyVim", "pypsrp", "requests", "proxmoxer", "XenAPI", "ovirtsdk4"}
REMOTE = {"asyncssh", "cryptography"}
BUILDING = {"debian", "lz4", "zstandard"}
UNUSED = {
    "--version": {"numpy", "pydantic", "rich", "asyncio", "yaml", *REMOTE, *BUILDING},
    "studies": {"numpy", "polars", "jinja2", "yaml", "rich", *REMOTE, *BUILDING},
    "workloads": {"numpy", "polars", "jinja2", "yaml", "rich", "asyncio", *REMOTE, *BUILDING},
    "doctor": {"polars", "jinja2", "rich", *REMOTE, *BUILDING},
    "plan quick": {"polars", "jinja2", *REMOTE, *BUILDING},
    "run quick --arm bare --workload numeric-sort --blocks 2": {*REMOTE, *BUILDING},
}
"""By command, what it must not import, in addition to ``NEVER`` and ``VENDORS``."""
PARTS = {
    "workloads": ("tare.platforms.", "tare.hosts."),
    "plan quick": (
        *(f"tare.platforms.{name}." for name in ("hyperv", "incus", "ovirt", "proxmox", "vsphere")),
        "tare.workloads.disk.",
        "tare.workloads.mapreduce.terasort",
        "tare.images.toolbox.toolbox",
    ),
    "run quick --arm bare --workload numeric-sort --blocks 2": (
        *(f"tare.platforms.{name}." for name in ("hyperv", "incus", "ovirt", "proxmox", "vsphere")),
        "tare.workloads.disk.",
        "tare.workloads.network.proxy.",
    ),
}
"""By command, how the modules of parts begin that the study does not use."""
RUNS = (pytest.mark.slow, pytest.mark.boots)


@pytest.mark.parametrize(
    "command",
    [pytest.param(each, marks=RUNS if each.startswith("run") else ()) for each in UNUSED],
)
def test_a_command_imports_only_what_it_uses(tmp_path: Path, command: str) -> None:
    if command == "doctor":
        # Trying KVM for the first time builds a kernel; the answer is kept.
        subprocess.run([sys.executable, "-m", "tare", "doctor"], capture_output=True, check=True)
    ended = subprocess.run(
        [sys.executable, "-c", SCRIPT, *command.split()],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    modules = json.loads(ended.stderr.splitlines()[-1])
    imported = {name.partition(".")[0] for name in modules}
    assert imported & {*NEVER, *VENDORS, *UNUSED[command]} == set()
    assert "typer" in imported
    loaded = [name for name in modules if name.startswith(PARTS.get(command, ()))]
    assert loaded == []
