"""Workloads with two ends: one serves, in the machine or beside it, and the other asks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from tare.workloads.contract import Need

IPERF_PORT, AGENT_PORT, HTTP_PORT = 5201, 7100, 8080
"""The ports that are served; user-mode networks forward these alone (platforms/network.py)."""

PEER = "peer"
"""The role of the end outside the machine that is measured."""
NETWORK: frozenset[Need] = frozenset({"network"})
WITH_PEER = frozenset({PEER})


@dataclass(frozen=True)
class End:
    """What the agent at one end carries out.

    In the parameters ``{address}`` and ``{port}`` stand for the server's: where it serves, for the
    server's end, and where it is reached, for the other; a parameter ``port`` becomes a number.

    Args:
        workload: As the agent knows it.
        params: Its parameters.
    """

    workload: str
    params: Mapping[str, Any] = field(default_factory=dict)

    def at(self, address: str, port: int) -> dict[str, Any]:
        """Return the parameters with address and port put in."""
        filled = _filled(dict(self.params), address, port)
        assert isinstance(filled, dict)
        return filled


def _filled(value: Any, address: str, port: int) -> Any:
    if isinstance(value, str):
        return value.replace("{address}", address).replace("{port}", str(port))
    if isinstance(value, Mapping):
        filled = {key: _filled(item, address, port) for key, item in value.items()}
        return {**filled, "port": port} if value.get("port") == "{port}" else filled
    if isinstance(value, list | tuple):
        return [_filled(item, address, port) for item in value]
    return value


@dataclass(frozen=True)
class Ends:
    """The two ends of one cell.

    Args:
        port: Which port is served.
        server: Works until the client has ended; its result is the client's under ``server``.
        client: Measures.
        serves: Where the server is. The other end is the peer, outside the machine.
    """

    port: int
    server: End
    client: End
    serves: Literal["machine", "peer"] = "machine"
