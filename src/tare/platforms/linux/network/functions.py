"""Virtual functions of a host's network cards (SR-IOV): which are free, and the two that one takes.

A card hands packets to a function by the address of its interface alone, so that no bridge can be
behind one. So a machine takes two of one card: one is given to it, and the interface of the other
is where the host routes to and from it.

Sources: Linux's Documentation/PCI/pci-iov-howto.rst, Documentation/ABI/testing/sysfs-bus-pci and
Documentation/driver-api/vfio.rst.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from tare.errors import MachineFault
from tare.hosts import Host

VFIO = "vfio-pci"
MTU = 1500
"""The MTU of an interface that is taken: another one would have to be changed and restored."""
UNSET = "(null)"
"""What a device's ``driver_override`` reads where it has none."""
_LOOK_S = 30.0
_UP = 1
"""IFF_UP, of the flags of an interface (netdevice(7))."""

# A line for each port of a card that may have functions, and one for each of its functions.
_LOOK = """
first() { cat "$1" 2>/dev/null | head -n 1; }
points() { basename "$(readlink -f "$1" 2>/dev/null)" 2>/dev/null; }
for port in /sys/class/net/*; do
    card=$port/device
    [ -e "$card/sriov_totalvfs" ] || continue
    echo "card|${port##*/}|$(points "$card")|$(first "$card/sriov_totalvfs")"
    for link in "$card"/virtfn*; do
        [ -e "$link/vendor" ] || continue
        driver= group= peers= name= flags= mtu= joined=
        [ -e "$link/driver" ] && driver=$(points "$link/driver")
        if [ -e "$link/iommu_group" ]; then
            group=$(points "$link/iommu_group")
            peers=$(ls "$link/iommu_group/devices" 2>/dev/null | tr '\\n' ' ')
        fi
        for own in "$link"/net/*; do
            [ -e "$own/flags" ] || continue
            name=${own##*/} flags=$(first "$own/flags") mtu=$(first "$own/mtu")
            for other in "$own"/master "$own"/upper_*; do
                [ -e "$other" ] && joined=$(points "$other")
            done
        done
        echo "function|${link##*virtfn}|$(points "$link")|$driver|$(first "$link/driver_override")\
|$group|$peers|$name|$flags|$mtu|$joined"
    done
done
[ -e /sys/bus/pci/drivers/vfio-pci ] && echo vfio
true
"""


@dataclass(frozen=True)
class Function:
    """One virtual function.

    Args:
        number: Its number among those of its card.
        address: Its PCI address.
        driver: The driver that has it; empty: none.
        override: The only driver that may bind to it (``driver_override``); empty: any.
        group: The number of its IOMMU group; empty: it is in none.
        group_peers: The other devices of that group.
        interface: Its network interface in the host's own namespace; empty: it has none there.
        up: Whether that interface is up.
        mtu: Its largest packet (MTU), in bytes.
        joined: The bridge or bond that the interface belongs to; empty: none.
    """

    number: int
    address: str
    driver: str = ""
    override: str = ""
    group: str = ""
    group_peers: tuple[str, ...] = ()
    interface: str = ""
    up: bool = False
    mtu: int = 0
    joined: str = ""

    @property
    def used(self) -> str:
        """The reason why it is not free, in words; empty if it is free."""
        if self.override or self.driver == VFIO:
            return f"kept for {self.override or VFIO}"
        if self.joined:
            return f"{self.interface} is part of {self.joined}"
        if self.up:
            return f"{self.interface} is up"
        if self.driver and not self.interface:
            return f"its driver {self.driver} shows no interface here"
        return ""

    @property
    def unusable(self) -> str:
        """Why it can be given to no machine; empty: it can."""
        if self.group_peers:
            return f"shares its IOMMU group with {' and '.join(self.group_peers)}"
        return self.used

    @property
    def unroutable(self) -> str:
        """Why the host can route to no machine by it; empty: it can."""
        if not self.interface:
            return self.used or "has no driver on the host"
        other = "" if self.mtu == MTU else f"the MTU of {self.interface} is {self.mtu}, not {MTU}"
        return self.used or other


@dataclass(frozen=True)
class Card:
    """A physical function: its interface, PCI address, most functions, and those it has."""

    interface: str
    address: str
    most: int
    functions: tuple[Function, ...] = ()


@dataclass(frozen=True)
class HostCards:
    """What a host has: its cards, and whether its kernel has vfio-pci."""

    cards: tuple[Card, ...]
    vfio: bool


@dataclass(frozen=True)
class Taken:
    """The two functions of one card that a machine takes: its own, and the host's end."""

    card: Card
    own: Function
    port: Function


async def functions_of(host: Host) -> HostCards:
    """Return the network cards of a host that may have virtual functions; raises MachineFault."""
    done = await host.run(["sh", "-c", _LOOK], timeout_s=_LOOK_S)
    return read(done.stdout.decode(errors="replace"))


def read(text: str) -> HostCards:
    """Return what the lines say that the host was asked for; odd ones are left out."""
    cards: dict[str, Card] = {}
    last, vfio = "", False
    for line in text.splitlines():
        kind, *words = line.split("|")
        vfio = vfio or line == "vfio"
        if kind == "card" and len(words) == 3 and _number(words[2]):
            # A card with several ports under one function shows that below each.
            last = words[1]
            cards.setdefault(last, Card(words[0], last, _number(words[2])))
        elif kind == "function" and len(words) == 10 and last:
            one, card = _function(words), cards[last]
            if one.address not in {each.address for each in card.functions}:
                both = sorted((*card.functions, one), key=lambda each: each.number)
                cards[last] = Card(card.interface, card.address, card.most, tuple(both))
    return HostCards(tuple(cards.values()), vfio)


def _function(words: Sequence[str]) -> Function:
    number, address, driver, override, group, group_peers, interface, flags, mtu, joined = words
    try:
        up = bool(int(flags or "0", 16) & _UP)
    except ValueError:
        up = True
    return Function(
        number=_number(number),
        address=address,
        driver=driver,
        override="" if override == UNSET else override,
        group=group,
        group_peers=tuple(each for each in group_peers.split() if each != address),
        interface=interface,
        up=up,
        mtu=_number(mtu),
        joined=joined,
    )


def _number(word: str) -> int:
    return int(word) if word.isdecimal() and word.isascii() and len(word) < 8 else 0


def lacking(found: HostCards, wanted: str | None) -> tuple[str, str] | None:
    """Return why no machine can have a virtual function, and what to do about it; None: one can.

    Args:
        found: What the host has.
        wanted: The interface or PCI address of a card, or of a function; None: any.
    """
    cards = _meant(found.cards, wanted)
    if not found.cards:
        return "no network card of the host offers virtual functions", "use `network: tap`"
    if not cards:
        offered = ", ".join(f"{each.interface} ({each.address})" for each in found.cards)
        return (
            f"{wanted} is neither a network card with virtual functions nor such a function",
            f"name one of {offered}",
        )
    having = [each for each in cards if each.functions]
    if not having:
        names = " and ".join(each.interface for each in cards)
        made = f"/sys/class/net/{cards[0].interface}/device/sriov_numvfs"
        return f"{names} has none yet, and Tare makes none", f"echo 2 > {made}"
    if not any(one.group for card in having for one in card.functions):
        words = "with intel_iommu=on (Intel) on its kernel's command line, and VT-d or AMD-Vi on"
        return "the host's IOMMU is off", f"boot it {words} in its firmware"
    if not found.vfio:
        return f"the host's kernel has no {VFIO}", f"modprobe {VFIO}"
    if taken(cards, wanted, ()) is None:
        whose = "; ".join(_card_words(card, wanted) for card in having)
        return (
            f"a machine needs two free ones of one card, and {whose}",
            "echo a greater number > sriov_numvfs of the card, or set an interface down",
        )
    return None


def _card_words(card: Card, wanted: str | None) -> str:
    """Return how many functions of a card are free, and why the others are not."""
    named = wanted if wanted and wanted != card.interface and wanted != card.address else ""
    free = [one for one in card.functions if not one.used]
    kept = (one for one in card.functions if one.unusable and (not named or _is(one, named)))
    why = ", ".join(f"{one.address}: {one.unusable}" for one in kept)
    counted = f"{card.interface} has {len(free)} of {len(card.functions)}"
    return f"{counted} ({why})" if why else counted


def taken(cards: Iterable[Card], wanted: str | None, reserved: Collection[str]) -> Taken | None:
    """Return the two functions that the next machine takes; None: there are no two.

    Args:
        cards: Those to choose from.
        wanted: What was asked for, as for :func:`lacking`.
        reserved: PCI addresses of functions that other machines have.
    """
    for card in cards:
        there = [one for one in card.functions if one.address not in reserved]
        named = [one for one in there if wanted and _is(one, wanted)]
        for own in named or there:
            if own.unusable or not own.group:
                continue
            for port in there:
                if port != own and port not in named and not port.unroutable:
                    return Taken(card, own, port)
    return None


async def next_taken(host: Host, wanted: str | None, reserved: Collection[str]) -> Taken:
    """Return the two functions that the next machine takes; raises MachineFault: there are none."""
    found = await functions_of(host)
    if problem := lacking(found, wanted):
        raise MachineFault(f"`network: sriov`: {problem[0]}", problem[1])
    pair = taken(_meant(found.cards, wanted), wanted, reserved)
    if pair is None:
        raise MachineFault(
            f"`network: sriov`: all free virtual functions are other machines' ({len(reserved)})",
            "write fewer machines, or give the card more functions",
        )
    return pair


def _meant(cards: Sequence[Card], wanted: str | None) -> list[Card]:
    if wanted is None:
        return list(cards)
    return [
        card
        for card in cards
        if wanted in (card.interface, card.address)
        or any(_is(one, wanted) for one in card.functions)
    ]


def _is(one: Function, wanted: str) -> bool:
    return wanted in (one.address, one.interface)
