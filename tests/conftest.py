"""What tests of every area share."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# `make fuzz` sets TARE_FUZZ: many more examples, and no limit on the time of one.
settings.register_profile("test", deadline=None)
settings.register_profile(
    "fuzz", deadline=None, max_examples=10_000, suppress_health_check=list(HealthCheck)
)
settings.load_profile("fuzz" if os.environ.get("TARE_FUZZ") else "test")


@pytest.fixture(scope="session")
def agent_program() -> Path:
    """The agent that was installed with Tare, or the one that TARE_TEST_AGENT names."""
    named = os.environ.get("TARE_TEST_AGENT")
    program = Path(named) if named else Path(sys.executable).parent / "tare-agent"
    assert program.is_file(), f"{program} is missing: run `make setup`"
    return program
