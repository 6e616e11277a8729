"""Workloads of two or three machines: one serves, another asks, and one may be between them."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from tare.workloads.contract import NETWORK, P, Work, Workload

IPERF_PORT, AGENT_PORT, HTTP_PORT = 5201, 7100, 8080
"""The ports that are served; user-mode networks forward these alone (platforms/network.py)."""
ORIGIN_PORT = 8081
"""The port of an origin, which is outside the machine and so behind no user-mode network."""

PEER = "peer"
"""The role of the end outside the machine that is measured."""
ORIGIN = "origin"
"""The role of the server outside it that a machine between client and server asks itself."""
WITH_PEER = frozenset({PEER})


def origin_names(count: int) -> list[str]:
    """Return the names under which an :class:`End` speaks of so many addresses of the origin."""
    return [ORIGIN, *(f"{ORIGIN}-{number}" for number in range(2, count + 1))]


@dataclass(frozen=True)
class End:
    """What the agent at one end carries out.

    In the parameters ``{address}`` and ``{port}`` stand for the server's: where it serves, for the
    server's end, and where it is reached, for the other; a parameter ``port`` becomes a number.
    ``{origin}`` stands for the origin's address, where there is one, ``{origin-2}`` and so on for
    its others, ``{origin-port}``, ``{origin-2-port}`` and so on for the port at each, and
    ``{straight}`` for that under which the client reaches it with nothing between them.

    Args:
        workload: As the agent knows it.
        params: Its parameters.
    """

    workload: str
    params: Mapping[str, Any] = field(default_factory=dict)

    def at(
        self, address: str, port: int, origins: Sequence[str] = ("",), straight: str = ""
    ) -> dict[str, Any]:
        """Return the parameters with addresses and port put in.

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
    """One load of several that a client puts on in turn.

    Args:
        name: Unique within the course.
        client: What the client carries out.
        to: Whom it asks: the machine that is measured, the origin beside it, or the origin
            straight, over a pair of interfaces that leads nowhere else.
        probe: What the client carries out beside it, to time single requests; None: nothing.
        probe_name: Under which name that is kept.
        account: Seconds for which it is taken down who used the CPUs, and after how many seconds
            of the stage that begins; None: not. The stages with an account are those that count.
        kept: Whether its course second by second is kept, under its own name.
        in_sync: Whether an arm that works by turns waits with it for the other's.
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
"""What stages found, by their names, in their order."""


@dataclass(frozen=True)
class Through:
    """What goes on where a machine stands between a client and an origin.

    Args:
        origin: Serves beside the client, on :data:`ORIGIN_PORT`.
        following: Returns the stage after those that are done, of which the client may ask the
            origin straight or not; None: there is none.
        ask: A socket of the server in the machine, and what it is asked about itself.
        server: The name of that server's processes.
        version: What a program in the machine is asked for its own version and build.
        files: Of the kernel's, what an account keeps; ``{interface}`` in a path stands for the
            machine's own.
        outside_files: The same at the client and at the origin.
        summed: Returns the cell's result from all that the agents told.
        origin_addresses: Under how many addresses the origin is asked.
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
        port: Which port is served.
        server: Works until the client has ended; its result is the client's under ``server``.
        client: Measures.
        serves: Where the server is. The other end is the peer, outside the machine.
    """

    port: int
    server: End
    client: End
    serves: Literal["machine", "peer"] = "machine"


@dataclass(frozen=True)
class ProxiedEnds(Work):
    """The three ends of one cell.

    Args:
        port: Which port the machine serves.
        server: Serves in the machine that is measured.
        client: The first load.
        through: What goes on between client and origin.
    """

    port: int
    server: End
    client: End
    through: Through


class PairWorkload(Workload[P]):
    """A workload of two machines: the one that is measured, and its peer."""

    topology = "pair"
    needs = NETWORK
    roles = WITH_PEER

    @abstractmethod
    def ends(self, parameters: P) -> Ends:
        """Return what each of the two ends does."""

    def work(self, parameters: P) -> Work:
        """Return the ends."""
        return self.ends(parameters)


class ProxiedWorkload(Workload[P]):
    """A workload of three machines: the one that is measured is between a client and an origin."""

    topology = "proxied"
    roles = frozenset({PEER, ORIGIN})

    @abstractmethod
    def ends(self, parameters: P) -> ProxiedEnds:
        """Return what each of the three ends does."""

    def work(self, parameters: P) -> Work:
        """Return the ends."""
        return self.ends(parameters)
