"""What a container writes outside its channel cannot fill the host's disk."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from tare.hosts import Ledger, LocalHost
from tare.hosts.processes import start_owned
from tare.platforms.linux import process_machine
from tare.platforms.linux.process_machine import ProcessMachine


@pytest.mark.parametrize("forced", [True, False])
async def test_one_that_never_stops_talking_is_ended(
    forced: bool, tmp_path: Path, agent_program: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process_machine, "MOST_LOG_BYTES", 1 << 20)
    monkeypatch.setattr(process_machine, "LOG_LOOK_S", 0.02)
    host, log = LocalHost(agent_program), tmp_path / "console.log"
    forces: list[str] = []

    async def force() -> None:
        forces.append("ended")

    async def nothing() -> tuple[int, ...]:
        return ()

    async def no_cost() -> dict[str, float]:
        return {}

    async def explain(code: int) -> str:
        return f"it ended with {code}"

    with Ledger(tmp_path / "ledger") as ledger:
        script = "head -c 8000000 /dev/zero >&2; exec sleep 60"
        process = await start_owned(host, ledger, ["sh", "-c", script], log=log)
        machine = ProcessMachine(
            "box", process, log, host=host, members=nothing, cost=no_cost, explain=explain,
            held=AsyncExitStack(), force=force if forced else None,
        )  # fmt: skip
        try:
            await asyncio.wait({machine.died}, timeout=5.0 if forced else 0.5)
            assert machine.died.done() == forced
            if forced:
                fault = machine.died.result()
                assert "wrote more than 1 MiB outside its channel" in str(fault)
                assert forces == ["ended"] and not fault.transient
        finally:
            await machine.stop()
