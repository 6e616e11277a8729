"""What tests of every area share."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
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


@pytest.fixture(scope="session", autouse=True)
def throttled_host() -> Iterator[None]:
    """Begin with real-time throttling on, so that turning it off and on again shows."""
    runtime = Path("/proc/sys/kernel/sched_rt_runtime_us")
    if os.geteuid() != 0 or not runtime.exists() or runtime.read_text().strip() != "-1":
        yield
        return
    runtime.write_text("950000")
    yield
    runtime.write_text("-1")
