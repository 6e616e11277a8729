"""What joins the bridges of several hosts to one network."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from tare.platforms.contract import Context

JointWay = Literal["bridge", "vxlan", "tunnel"]


@dataclass(frozen=True)
class Bridge:
    """A host's bridge.

    Args:
        context: The host and its ledger.
        name: The name of the interface.
        address: The host's own address on it.
    """

    context: Context
    name: str
    address: str

    @property
    def host(self) -> str:
        """The host's name."""
        return self.context.host.name


@dataclass(frozen=True)
class JoinedBridges:
    """How the bridges are joined.

    Args:
        way: ``bridge``: there is one only; ``vxlan``: by the hosts' kernels and the network between
            the hosts; ``tunnel``: by Tare, over its own connections to the hosts.
        mtu: The longest packet that gets from one to another, in bytes.
        facts: What else a reader may want to know.
    """

    way: JointWay
    mtu: int
    facts: Mapping[str, Any] = field(default_factory=dict)
