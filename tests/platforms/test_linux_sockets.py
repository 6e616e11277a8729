"""Connecting to a hypervisor that was just started."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tare.errors import MachineFault
from tare.hosts import LocalHost
from tare.platforms.linux import sockets


async def test_a_socket_that_nothing_listens_at_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sockets, "_CONNECT_S", 0.05)
    died: asyncio.Future[MachineFault] = asyncio.get_running_loop().create_future()
    with pytest.raises(TimeoutError, match=r"it did not listen at qmp\.sock within 0\.05 s"):
        await sockets.reached(LocalHost(), tmp_path / "qmp.sock", died)


async def test_the_end_of_the_program_is_reported(tmp_path: Path) -> None:
    died: asyncio.Future[MachineFault] = asyncio.get_running_loop().create_future()
    died.set_result(MachineFault("it ended"))
    with pytest.raises(MachineFault, match="it ended"):
        await sockets.reached(LocalHost(), tmp_path / "qmp.sock", died)
