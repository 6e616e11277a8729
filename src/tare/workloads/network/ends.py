"""Workloads of two or three machines: a server, a client, and in some a proxy between them."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from tare.workloads.contract import NETWORK, P, Work, Workload

IPERF_PORT, AGENT_PORT, HTTP_PORT = 5201, 7100, 8080
"""The ports of servers; user-mode networks forward only these (platforms/network.py)."""
ORIGIN_PORT = 8081
"""The port of an origin, which is outside the machine and so behind no user-mode network."""

PEER = "peer"
"""The role of the end outside the machine that is measured."""
ORIGIN = "origin"
"""The role of the server outside the machine to which a proxy in the machine sends requests."""
WITH_PEER = frozenset({PEER})


def origin_names(count: int) -> list[str]:
    """Return the placeholders' names of ``count`` addresses of the origin; see :class:`End`."""
    return [ORIGIN, *(f"{ORIGIN}-{number}" for number in range(2, count + 1))]


@dataclass(frozen=True)
class End:
    """The request that the agent at one end runs.

    The parameters may contain placeholders. ``{address}`` and ``{port}`` are the server's: those it
    listens on at the server's end, and those to connect to at the other end. A parameter ``port``
    becomes a number. ``{origin}`` is the first address of the origin, if there is an origin, and
    ``{origin-2}`` and so on are its further addresses. ``{origin-port}``, ``{origin-2-port}`` and
    so on are the ports at these addresses. ``{straight}`` is the address at which the client
    reaches the origin with nothing between them.

    Args:
        workload: The workload's name in the agent.
        params: Its parameters.
    """

    workload: str
    params: Mapping[str, Any] = field(default_factory=dict)

    def at(
        self, address: str, port: int, origins: Sequence[str] = ("",), straight: str = ""
    ) -> dict[str, Any]:
        """Return the parameters with addresses and ports in place of the placeholders.

        Args:
            address: The server's address.
            port: The server's port.
            origins: The origin's addresses, each with ``:PORT`` unless it is :data:`ORIGIN_PORT`.
            straight: The address under which the client reaches the origin directly.
        """
        words = {"{address}": address, "{port}": str(port), "{straight}": straight}
        for name, each in zip(origin_names(len(origins)), origins, strict=True):
            place, _, own_port = each.partition(":")
            words |= {f"{{{name}}}": place, f"{{{name}-port}}": own_port or str(ORIGIN_PORT)}
        filled = _filled(dict(self.params), words, port)
        assert isinstance(filled, dict)
        return filled


def _filled(value: Any, words: Mapping[str, str], port: int) -> Any:
    if isinstance(value, str):
        for name, word in words.items():
            value = value.replace(name, word)
        return value
    if isinstance(value, Mapping):
        inner = {key: _filled(item, words, port) for key, item in value.items()}
        return {**inner, "port": port} if value.get("port") == "{port}" else inner
    if isinstance(value, list | tuple):
        return [_filled(item, words, port) for item in value]
    return value


@dataclass(frozen=True)
class Stage:
    """One of the loads that a client applies one after the other.

    Args:
        name: Unique within the cell.
        client: The request that the client runs.
        to: The server of the requests: the machine that is measured, the origin next to it, or the
            origin over a pair of interfaces that connects only client and origin.
        probe: The request that the client runs at the same time, to time single requests; None:
            none.
        probe_name: The name of the probe's result.
        account: Start (seconds after the stage begins) and length (seconds) of the account of CPU
            use; None: no account. Only stages with an account yield results.
        kept: Whether its time series per second is kept, under the stage's name.
        in_sync: Whether an arm that takes turns starts this stage together with the other arm's.
    """

    name: str
    client: End
    to: Literal["machine", "origin", "straight"] = "machine"
    probe: End | None = None
    probe_name: str = "probe"
    account: tuple[float, float] | None = None
    kept: bool = False
    in_sync: bool = False


Results = Mapping[str, Mapping[str, Any]]
"""The results of stages, by name, in the order of the stages."""


@dataclass(frozen=True)
class ProxiedTraffic:
    """The set-up and the loads if the machine is a proxy between client and origin.

    Args:
        origin: The request of the origin, which serves next to the client on
            :data:`ORIGIN_PORT`.
        following: Returns the next stage from the results so far and whether the client has a
            direct path to the origin; None: there is no further stage.
        ask: A socket of the server in the machine, and the commands that are sent to it.
        server: The name of that server's processes.
        version: The command that prints a program's version and build in the machine.
        files: The kernel's files that an account keeps; ``{interface}`` in a path stands for the
            machine's own interface.
        outside_files: The kernel's files that the accounts of client and origin keep.
        summed: Returns the cell's result from everything that the agents reported.
        origin_addresses: The number of the origin's addresses that the proxy uses.
    """

    origin: End
    following: Callable[[Results, bool], Stage | None]
    ask: Mapping[str, Any]
    server: str
    version: tuple[str, ...]
    files: tuple[str, ...]
    outside_files: tuple[str, ...]
    summed: Callable[[Mapping[str, Any]], Mapping[str, Any]]
    origin_addresses: int = 1


@dataclass(frozen=True)
class Ends(Work):
    """The two ends of one cell.

    Args:
        port: The server's port.
        server: The server, which runs until the client has ended. The client's result contains its
            result under ``server``.
        client: The client, which measures.
        serves: The end that is the server; the other end is the client. The peer is outside the
            machine.
    """

    port: int
    server: End
    client: End
    serves: Literal["machine", "peer"] = "machine"


@dataclass(frozen=True)
class ProxiedEnds(Work):
    """The three ends of one cell.

    Args:
        port: The port that the machine's server listens on.
        server: The server in the machine that is measured.
        client: The first load of the client.
        through: The stages between client and origin, for a proxied cell.
    """

    port: int
    server: End
    client: End
    through: ProxiedTraffic


class PairWorkload(Workload[P]):
    """A workload of two machines: the one that is measured, and its peer."""

    topology = "pair"
    needs = NETWORK
    roles = WITH_PEER

    @abstractmethod
    def ends(self, parameters: P) -> Ends:
        """Return the work of each of the two ends."""

    def work(self, parameters: P) -> Work:
        """Return the ends."""
        return self.ends(parameters)


class ProxiedWorkload(Workload[P]):
    """A workload of three machines: the one that is measured is between a client and an origin."""

    topology = "proxied"
    roles = frozenset({PEER, ORIGIN})

    @abstractmethod
    def ends(self, parameters: P) -> ProxiedEnds:
        """Return the work of each of the three ends."""

    def work(self, parameters: P) -> Work:
        """Return the ends."""
        return self.ends(parameters)
