"""A run's own folder on an existing cluster of Hadoop, and its removal by HTTP."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePosixPath
from types import MappingProxyType
from urllib.parse import quote

from tare.errors import MachineFault
from tare.hosts.contract import Host
from tare.hosts.ledger.ledger import Entry
from tare.hosts.ledger.undoing import Undo, require_own

KIND = "hdfs"
_ASK_S = 90.0


def deletion(namenode: str, path: str, user: str) -> str:
    """Return the URL whose DELETE removes a folder (WebHDFS, *Delete a File/Directory*)."""
    return (
        f"http://{namenode}/webhdfs/v1{quote(path)}?op=DELETE&recursive=true"
        f"&user.name={quote(user, safe='')}"
    )


async def undo_folder(host: Host, entry: Entry) -> str:
    """Remove a folder of HDFS; see :data:`tare.hosts.ledger.undoing.Undo`."""
    namenode, path, user = (str(entry.details[key]) for key in ("namenode", "path", "user"))
    require_own(PurePosixPath(path).name)
    command = ["curl", "-sS", "--fail-with-body", "-m", "60", "-X", "DELETE"]
    done = await host.run([*command, deletion(namenode, path, user)], timeout_s=_ASK_S)
    if not done.ok:
        answer = done.stdout.decode(errors="replace").strip() or done.words()
        raise MachineFault(f"HDFS at {namenode} did not remove it: {answer[-300:]}")
    gone = b"true" in done.stdout
    return f"Removed {path} from HDFS at {namenode}." if gone else ""


UNDOERS: Mapping[str, Undo] = MappingProxyType({KIND: undo_folder})
"""``hdfs``: namenode, path, user; removed by HTTP, if the folder is named ``tare-…``."""
