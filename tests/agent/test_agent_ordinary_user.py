"""The agent where it is nobody: what it may not have costs a warning, and never the work."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest


@pytest.mark.skipif(not shutil.which("setpriv"), reason="setpriv is not installed")
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
def test_an_ordinary_user_measures_though_little_memory_may_be_locked(agent_program: Path) -> None:
    """With 8 MiB of it, as systemd gives users, the kernel gave no further memory, and all fell."""
    with tempfile.TemporaryDirectory(dir="/tmp") as place:
        Path(place).chmod(0o755)
        agent = shutil.copy(agent_program, place)
        who = ["setpriv", "--reuid=1234", "--regid=1234", "--clear-groups"]
        asked = [agent, "run", "tick", '{"seconds": 0.05}']
        argv = ["prlimit", f"--memlock={8 << 20}", *who, *asked]
        done = subprocess.run(argv, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert "this user may lock 8192 KiB" in done.stdout
