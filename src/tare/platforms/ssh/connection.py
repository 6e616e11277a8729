"""A connection to an existing machine: the agent is copied there, and removed at the end."""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tare.errors import TareError
from tare.hosts.contract import Host
from tare.hosts.ledger.cleanup import undo_one
from tare.hosts.ledger.ledger import Entry
from tare.hosts.ledger.nested import AFAR, NestedLedger, entry_there
from tare.hosts.ssh.options import SshOptions, options_of, way_of
from tare.platforms.contract import Context

if TYPE_CHECKING:
    from tare.hosts.ssh.host import SshHost

_UNDO_S = 15.0


@dataclass(frozen=True)
class Reached:
    """A machine with an open connection.

    Args:
        host: The machine, used as a host.
        context: The context in which Tare creates and records things on the machine.
    """

    host: SshHost
    context: Context


@asynccontextmanager
async def reached(context: Context, way: SshOptions, folder: str) -> AsyncIterator[Reached]:
    """Hold a connection to a machine, with the agent copied there until the connection ends.

    Args:
        context: The host that carries the machine; its ledger records all that is created.
        way: The options for reaching the machine.
        folder: The folder in the machine in which the agent gets its own folder.

    Raises:
        InputError: The machine's key or the login is wrong, or it has another architecture.
        MachineFault: The machine does not answer, or cannot run the agent.
    """
    # The SSH library takes long to load, and few studies need it.
    from tare.hosts.ssh.host import SshHost

    place = Path(folder) / f"tare-agent-{secrets.token_hex(8)}"
    way = replace(way, agent_folder=place)
    host = SshHost(way, context.agent, leaving=context.leaving)
    known: list[SshHost] = []
    plain = {**way_of(way), "agent_folder": None}
    about = {"way": plain, "agent": str(context.agent), "folder": folder}
    ledger = NestedLedger(
        context.ledger,
        host=host.name,
        boot=lambda: known[0].boot_id() if known else "",
        reach=about,
    )
    entry = ledger.record("directory", path=str(place))
    try:
        await host.connect()
    except TareError:
        # Files that were copied before the fault were removed with the connection.
        ledger.done(entry)
        raise
    known.append(host)
    try:
        yield Reached(
            host,
            replace(
                context, host=host, ledger=ledger, here=context.builder, kernel=None, counted=False
            ),
        )
    finally:
        # A machine that is lost keeps its copy until `tare clean` reaches it again.
        with contextlib.suppress(TareError, OSError):
            await host.remove(place)
            ledger.done(entry)
        await host.close()


async def undo_afar(host: Host, entry: Entry) -> str:
    """Undo an entry in an existing machine: reach the machine, and undo the entry there.

    Raises:
        Refused, OSError, MachineFault, InputError: As for :data:`tare.hosts.ledger.undoing.Undo`.
    """
    from tare.hosts.ssh.host import SshHost

    about: Mapping[str, Any] = entry.details["reach"]
    place = Path(about["folder"]) / f"tare-agent-{secrets.token_hex(8)}"
    way = replace(options_of(about["way"]), agent_folder=place, connect_s=_UNDO_S)
    async with SshHost(way, Path(about["agent"])) as there:
        try:
            done = await undo_one(there, entry_there(entry))
        finally:
            await there.remove(place)
    return f"{there.name}: {done}" if done else ""


UNDOERS = {AFAR: undo_afar}
