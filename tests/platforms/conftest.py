"""What tests of platforms share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tare.hosts import Ledger, LocalHost
from tare.images.cache import default_cache
from tare.platforms.contract import Context


@pytest.fixture
def context(tmp_path: Path, agent_program: Path) -> Iterator[Context]:
    """This computer, with a ledger of the test's own."""
    with Ledger(tmp_path / "ledger") as ledger:
        yield Context(LocalHost(agent_program), ledger, default_cache(), agent_program)
