"""Containers that a killed run left: deleted by their own runtime."""

from __future__ import annotations

from pathlib import Path

from tare.errors import MachineFault
from tare.hosts.contract import Host
from tare.hosts.ledger.ledger import Entry
from tare.hosts.ledger.undoing import require_own


async def undo_container(host: Host, entry: Entry) -> str:
    """Delete the container that an entry names (runtime, root, id); the runtime kills it first."""
    runtime, root, name = (str(entry.details[key]) for key in ("runtime", "root", "id"))
    require_own(name)
    if not await host.exists(Path(root) / name):
        return ""
    deleted = await host.run([runtime, "--root", root, "delete", "--force", name], timeout_s=30)
    if not deleted.ok and await host.exists(Path(root) / name):
        raise MachineFault(deleted.words() or f"{runtime} delete failed")
    return f"Deleted container {name}."
