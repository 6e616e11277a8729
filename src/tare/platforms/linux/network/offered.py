"""Which ways to a network are open on a host, and which of them an arm takes."""

from __future__ import annotations

from dataclasses import replace

from tare.errors import InputError, MachineFault
from tare.hosts.programs import install_command_for
from tare.platforms.contract import Capabilities, Context, NetworkWays, PlatformOptions
from tare.programs import IP
from tare.study.model.platform_options import AUTO, GIVEN, ISOLATED

ALONE = frozenset({"user", "loopback"})
"""The ways on which a machine meets the peer and nobody else."""
UNMADE = ALONE | {GIVEN, ISOLATED}
"""The ways for which no bridge is made."""

_ASK_S = 20.0


async def offered_network(context: Context, ways: NetworkWays) -> tuple[frozenset[str], str]:
    """Find out which of a platform's ways to a network are open on a host.

    Args:
        context: The host.
        ways: What the platform states.

    Returns:
        The ways, and the reason where those that need root are not among them.
    """
    if not ways.rooted:
        return ways.unprivileged, "" if ways.unprivileged else "its machines have no networks"
    host = context.host
    try:
        version = await host.run(["ip", "-V"], timeout_s=_ASK_S)
        who = await host.run(["id", "-u"], timeout_s=_ASK_S)
    except (InputError, MachineFault) as error:
        install = await install_command_for(host, IP)
        return ways.unprivileged, f"no bridge can be made: {error.message}; {install}"
    if not version.ok:
        install = await install_command_for(host, IP)
        return ways.unprivileged, f"no bridge can be made without ip: {install}"
    if who.stdout.strip() != b"0":
        return ways.unprivileged, "bridges and taps need root"
    if ways.device and not await host.exists(ways.device):
        module = ways.device.rpartition("/")[2]
        return ways.unprivileged, f"taps need {ways.device}: modprobe {module}"
    return ways.rooted | ways.unprivileged, ""


def with_network(capabilities: Capabilities, offered: frozenset[str], reason: str) -> Capabilities:
    """Return capabilities with what was found out about networks.

    Args:
        capabilities: What the platform's own check found; its ``no_network`` is kept.
        offered: As :func:`offered_network` returns it.
        reason: As well.
    """
    if capabilities.no_network:
        return replace(capabilities, network=frozenset())
    notes = (*capabilities.notes, *((reason,) if reason else ()))
    why = "" if offered else reason
    return replace(capabilities, network=offered, notes=notes, no_network=why)


def chosen_way(options: PlatformOptions, offered: frozenset[str]) -> str:
    """Return the way that an arm's machines are connected, out of those on offer.

    Args:
        options: The arm's options.
        offered: The platform's capability.

    Raises:
        InputError: The way that the arm asks for is not on offer, or none is.
    """
    wanted = options.wanted_network
    if (kind := options.wanted_switch.kind) != "bridge":
        offered -= ALONE
        if not offered:
            raise InputError(f"`switch: {kind}` is not on offer here", "run as root")
    order = ("tap", "vif", "bridge", "veth", "user", "loopback", "macvtap", ISOLATED)
    if wanted != AUTO:
        if wanted in offered:
            return wanted
        if wanted == GIVEN:
            # Nothing else is on offer to whoever may ask for it.
            raise InputError("`network-way: given` is not on offer here", "leave it out")
        raise InputError(
            f"`network: {wanted}` is not on offer here",
            "write `network: auto`, or run as root",
        )
    for way in order:
        if way in offered:
            return way
    raise InputError("there is no way to connect its machines to a network here", "run as root")
