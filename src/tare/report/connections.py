"""How a machine was connected to its network, in words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tare.units import format_quantity

SWITCHES = {"openvswitch": "Open vSwitch", "routed": "routed"}


GIVEN = "given"
"""The way over a network that Tare did not make."""


def is_given(placement: Mapping[str, Any]) -> bool:
    """Return whether a machine was measured over a network that Tare did not make."""
    network = placement.get("network")
    return isinstance(network, Mapping) and network.get("way") == GIVEN


def _unmade(network: Mapping[str, Any]) -> str:
    if network.get("way") != GIVEN:
        return ""
    mtu = network.get("mtu")
    longest = f", packets of up to {mtu} bytes" if type(mtu) is int else ""
    return f" (the host’s own network, which others share{longest})"


def connection_words(placement: Mapping[str, Any]) -> str:
    """Return what a machine's network card was, and what carried its packets; empty: no network.

    Args:
        placement: As a run recorded it, in whatever version; what is not understood is left out.
    """
    network = placement.get("network")
    if not isinstance(network, Mapping) or not isinstance(network.get("way"), str):
        return ""
    words = [f"{network['way']}{_unmade(network)}"]
    nic = placement.get("nic")
    if isinstance(nic, Mapping) and isinstance(nic.get("model"), str):
        queues = nic.get("queues")
        words.append(
            f"{nic['model']}{' with vhost' if nic.get('vhost') is True else ''}"
            f"{f', {queues} queues' if isinstance(queues, int) and queues > 1 else ''}"
            f"{', no offloads' if nic.get('offloads') is False else ''}"
        )
    switch = SWITCHES.get(str(network.get("switch")))
    if switch is not None:
        words.append(f"{switch}{', tracked' if network.get('conntrack') is True else ''}")
    link = network.get("link")
    rate = link.get("bits_per_s") if isinstance(link, Mapping) else None
    if isinstance(rate, int | float) and not isinstance(rate, bool):
        words.append(f"a link of {format_quantity(float(rate), 'bit/s')}")
    return "; ".join(words)
