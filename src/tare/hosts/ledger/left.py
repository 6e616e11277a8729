"""Which hosts hold something of a run that could not be undone, as far as its ledgers tell."""

from __future__ import annotations

import json

from tare.errors import InputError
from tare.hosts.ledger.ledger import LOCAL, all_ledgers, replay
from tare.hosts.ledger.nested import AFAR

HERE = "this computer"


def left_on(run: str) -> tuple[str, ...]:
    """Return the names of the hosts whose ledgers of a run still list something.

    Nothing is locked or changed: a run that reports how it ended calls this.
    """
    names: list[str] = []
    for path in all_ledgers():
        # Of several hosts, each has a ledger of the run's name and its own.
        if path.stem != run and not path.stem.startswith(f"{run}-"):
            continue
        content = path.read_bytes()
        lines = content[: content.rfind(b"\n") + 1].splitlines()
        try:
            listed = replay(lines, path)[1]
        except InputError:
            continue  # `tare clean` says what is wrong with it.
        host = str(json.loads(lines[0]).get("host", LOCAL)) if lines else LOCAL
        for entry in listed.values():
            # What was made in a machine is noted with the host that carries it.
            where = str(entry.details["of"]) if entry.kind == AFAR else host
            names.append(HERE if where == LOCAL else where)
    return tuple(dict.fromkeys(names))
