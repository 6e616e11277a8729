"""A connection to a machine that exists: the agent is copied there, and removed at the end."""

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
    """A machine to which there is a connection.

    Args:
        host: The machine, as a host of its own.
        context: Where Tare creates and records things in it.
    """

    host: SshHost
    context: Context


@asynccontextmanager
async def reached(context: Context, way: SshOptions, folder: str) -> AsyncIterator[Reached]:
    """Hold a connection to a machine, with the agent there as long as it lasts.

    Args:
        context: The host that carries the machine; its ledger records all that is created.
        way: How the machine is reached.
        folder: Where in the machine the agent is put, in a folder of its own.

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
        # What was put there before the fault was taken back with the connection.
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
    """Undo what was made in a machine that exists: reach it, and undo the entry there.

    Raises:
        Refused, OSError, MachineFault, InputError: As :data:`tare.hosts.ledger.undoing.Undo` says.
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
