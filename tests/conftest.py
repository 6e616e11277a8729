"""What tests of every area share."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def agent_program() -> Path:
    """The agent that was installed with Tare, or the one that TARE_TEST_AGENT names."""
    named = os.environ.get("TARE_TEST_AGENT")
    program = Path(named) if named else Path(sys.executable).parent / "tare-agent"
    assert program.is_file(), f"{program} is missing: run `make setup`"
    return program
