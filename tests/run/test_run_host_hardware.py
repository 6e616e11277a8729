"""The host's counts for the machines of a cell, by its processor or by a substitute for it."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tare.agent.client import Outcome
from tare.hosts import Ledger
from tare.hosts.local import LocalHost
from tare.platforms.contract import Context, Machine
from tare.run.probes import host_hardware
from tare.run.probes.host_hardware import NO_THREADS, HostHardware


def machine(vcpus: tuple[int, ...] = (), threads: tuple[int, ...] = ()) -> Machine:
    async def vcpu_threads() -> tuple[int, ...]:
        return vcpus

    async def all_threads() -> Mapping[int, str]:
        return dict.fromkeys(threads, "")

    return cast("Machine", SimpleNamespace(vcpu_threads=vcpu_threads, threads=all_threads))


def over_a_cell(
    counter: Path, folder: Path, machines: Mapping[str, Machine], agent_program: Path
) -> Any:
    """Return the facts; whatever counted has ended by then, and the ledger owes nothing."""

    async def measured() -> Any:
        with Ledger(folder / "ledger") as ledger:
            context = Context(LocalHost(agent_program), ledger, folder, counter)
            counting = HostHardware(context, machines)
            await counting.begin()
            await counting.end(Outcome({}))
            assert ledger.open_entries() == ()
        return counting.facts

    return asyncio.run(measured())


def scripted_agent(folder: Path, script: str) -> Path:
    program = folder / "agent"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    return program


def test_the_agent_counts_for_threads_or_says_why_not(agent_program: Path, tmp_path: Path) -> None:
    me = machine(vcpus=(os.getpid(),))
    counted = over_a_cell(agent_program, tmp_path, {"subject": me, "neighbour": me}, agent_program)[
        "host_hardware"
    ]
    assert list(counted) == ["subject", "neighbour"]
    for each in counted.values():
        assert each["seconds"] > 0
        assert each.get("cycles", 0) > 0 or ": " in each["missing"]


def test_each_machine_has_what_was_counted_for_its_own_threads(
    tmp_path: Path, agent_program: Path
) -> None:
    agent = scripted_agent(
        tmp_path,
        f'echo "$@" > {tmp_path}/asked; echo counting; cat > /dev/null; '
        """echo '[{"llc_misses": 7}, {"llc_misses": 9}]'""",
    )
    machines = {
        "subject": machine(vcpus=(11, 12), threads=(10, 11, 12)),
        "far": machine(),
        "neighbour": machine(threads=(20, 21)),
    }
    counted = over_a_cell(agent, tmp_path, machines, agent_program)
    assert counted == {
        "host_hardware": {
            "subject": {"llc_misses": 7},
            "neighbour": {"llc_misses": 9},
            "far": {"missing": NO_THREADS},
        }
    }
    assert (tmp_path / "asked").read_text() == "count 11,12 20,21\n"


@pytest.mark.parametrize(
    "script",
    [
        "echo no such command >&2; exit 2",
        "echo counting; cat > /dev/null; echo nonsense",
        "echo counting; cat > /dev/null; echo '[]'",
        "echo counting; cat > /dev/null; echo 7",
        "echo counting; exit 0",
        "exec sleep 60",
        "echo counting; exec sleep 60",
    ],
)
def test_missing_counters_are_reported_and_fail_no_cell(
    script: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, agent_program: Path
) -> None:
    monkeypatch.setattr(host_hardware, "PATIENCE_S", 1.0)
    monkeypatch.setattr(host_hardware, "GRACE_S", 0.2)
    counted = over_a_cell(
        scripted_agent(tmp_path, script), tmp_path, {"subject": machine(vcpus=(1,))}, agent_program
    )
    assert counted["host_hardware"]["subject"]["missing"].startswith("the host could not count: ")


def test_missing_agent_is_reported(tmp_path: Path, agent_program: Path) -> None:
    counted = over_a_cell(
        tmp_path / "none", tmp_path, {"subject": machine(vcpus=(1,))}, agent_program
    )
    assert "could not count" in counted["host_hardware"]["subject"]["missing"]


def test_nothing_runs_where_no_machine_has_threads(tmp_path: Path, agent_program: Path) -> None:
    counted = over_a_cell(tmp_path / "none", tmp_path, {"subject": machine()}, agent_program)
    assert counted == {"host_hardware": {"subject": {"missing": NO_THREADS}}}
