"""What could not be undone: machines that are gone are tried once, and no traceback is shown."""

from __future__ import annotations

import asyncio
import gc
from pathlib import Path
from typing import Any

import pytest

from hosts.hosts_sshd import HERE, Sshd
from tare.errors import MachineFault
from tare.hosts import Ledger, start_owned
from tare.hosts.contract import Host
from tare.hosts.ledger.cleanup import clean
from tare.hosts.ledger.ledger import Entry, ledger_path
from tare.hosts.ledger.nested import AFAR, NestedLedger, left_on
from tare.hosts.shielded import begun
from tare.hosts.ssh.host import SshHost


@pytest.fixture
def ledger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Ledger:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return Ledger(ledger_path("r1"))


def in_machines(ledger: Ledger, *machines: str) -> None:
    for machine in machines:
        nested = NestedLedger(ledger, host=machine, boot=lambda: "b", reach={})
        nested.record("directory", path="/tmp/tare-agent-1")
        nested.record("process", command="agent", token="t")
        nested.record("process", command="other", token="u")


async def test_a_machine_that_is_gone_is_tried_once_for_all_that_is_in_it(ledger: Ledger) -> None:
    in_machines(ledger, "me@gone", "me@there")
    tried: list[str] = []

    async def undo(host: Host, entry: Entry) -> str:
        tried.append(entry.details["of"])
        if tried[-1] == "me@gone":
            raise MachineFault("me@gone did not let Tare in", transient=True)
        return ""

    messages = await clean(HERE, ledger, {AFAR: undo})
    assert tried == ["me@there"] * 3 + ["me@gone"]
    assert messages == [
        "Could not undo process other on me@gone: me@gone did not let Tare in.",
        "2 more of me@gone were not tried; run `tare clean` when it is back.",
    ]
    assert left_on("r1") == ("me@gone",)
    ledger.close()


async def test_a_process_that_does_not_end_does_not_stop_the_cleanup_of_others(
    ledger: Ledger,
) -> None:
    in_machines(ledger, "me@there")
    tried: list[int] = []

    async def undo(host: Host, entry: Entry) -> str:
        tried.append(entry.number)
        raise MachineFault("process 7 does not end")

    messages = await clean(HERE, ledger, {AFAR: undo})
    assert tried == [2, 1, 0]
    assert len(messages) == 3
    ledger.close()


@pytest.fixture
async def unraised() -> list[dict[str, Any]]:
    """Return what asyncio would show a user as tracebacks of nobody's."""
    found: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: found.append(context))
    return found


async def test_a_host_that_is_lost_while_a_process_is_ended_shows_no_traceback(
    sshd: Sshd, agent_program: Path, ledger: Ledger, unraised: list[dict[str, Any]]
) -> None:
    options = sshd.options(silence_s=3.0, patience_s=0.5, lease_s=5)
    host = SshHost(options, agent_program)
    await host.connect()
    process = await start_owned(host, ledger, ["sleep", "300"])
    sshd.freeze()
    with pytest.raises(MachineFault):
        await process.end(0.2)
    await host.close()
    del process, host
    gc.collect()
    await asyncio.sleep(0)
    assert not unraised
    sshd.thaw()
    ledger.close()


async def test_fault_of_a_begun_task_reaches_only_its_waiters(
    unraised: list[dict[str, Any]],
) -> None:
    async def fails() -> None:
        await asyncio.sleep(0.01)
        raise MachineFault("the host is lost")

    task = begun(fails())
    with pytest.raises(MachineFault, match="the host is lost"):
        await asyncio.shield(task)
    begun(fails())
    await asyncio.sleep(0.05)
    gc.collect()
    assert not unraised
