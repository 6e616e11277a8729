"""What an arm may ask of the switch that its machines are plugged into."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

SwitchKind = Literal["bridge", "openvswitch", "routed"]


@dataclass(frozen=True)
class Switching:
    """The switch of a batch's network.

    Args:
        kind: A bridge of the host's kernel, an Open vSwitch, or routes.
        conntrack: Whether it keeps track of connections.
    """

    kind: SwitchKind = "bridge"
    conntrack: bool = False

    @property
    def words(self) -> tuple[str, ...]:
        """How reports say it; nothing for the usual one."""
        named = {"bridge": (), "openvswitch": ("Open vSwitch",), "routed": ("routed",)}
        return (*named[self.kind], *(("connections tracked",) if self.conntrack else ()))
