"""The base of every platform's options."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal, Protocol

from pydantic import BaseModel, ConfigDict

from tare.errors import InputError

AUTO = "auto"
"""The kind of network of an arm that leaves the choice to its platform."""
GIVEN = "given"
"""The kind of network of a machine that Tare did not create."""
ISOLATED = "isolated"
"""The kind of network that Tare creates at a hypervisor for the machines of one batch."""

SwitchKind = Literal["bridge", "openvswitch", "routed"]


@dataclass(frozen=True)
class Switching:
    """The switch of a batch's network.

    Args:
        kind: A bridge of the host's kernel, an Open vSwitch, or routes.
        conntrack: Whether it tracks connections.
    """

    kind: SwitchKind = "bridge"
    conntrack: bool = False

    @property
    def words(self) -> tuple[str, ...]:
        """The words for the switch in reports; none for the default."""
        named = {"bridge": (), "openvswitch": ("Open vSwitch",), "routed": ("routed",)}
        return (*named[self.kind], *(("connections tracked",) if self.conntrack else ()))


class WantedScheduling(Protocol):
    """A machine's scheduling, as far as planning uses it."""

    @property
    def knobs(self) -> frozenset[str]:
        """The scheduler knobs that a platform must have for it."""
        ...

    @property
    def realtime(self) -> bool:
        """Whether the machine may keep a CPU as long as it wants."""
        ...


class PlatformOptions(BaseModel):
    """Base of every platform's options.

    The field descriptions of a subclass become the reference in docs. A platform that offers a
    choice of devices, networks or schedulers overrides the properties below, so that planning can
    skip what the host lacks. The defaults ask for nothing.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    instead: ClassVar[Mapping[str, str]] = {}
    """Keys that users write though they are not options, each with the correction."""

    def faults(self, look: bool) -> Iterable[tuple[str, str]]:
        """Return faults of an arm in a study file whose options are each valid.

        Args:
            look: Whether to check the files of this computer that options name.

        Returns:
            The option to change, and a sentence with the reason and a valid value.
        """
        return ()

    @property
    def wanted_devices(self) -> str:
        """The requested device models, as the platform's capabilities name them; empty: any."""
        return ""

    @property
    def wanted_network(self) -> str:
        """The requested kind of network, or :data:`AUTO`."""
        return AUTO

    @property
    def wanted_switch(self) -> Switching:
        """The switch that its machines connect to."""
        return Switching()

    @property
    def host_cpus(self) -> Mapping[str, tuple[int, ...]]:
        """The host CPUs that options name by number, by option."""
        return {}

    @property
    def unpinned_cpu_options(self) -> tuple[str, ...]:
        """The options that need host CPUs on which no vCPU of the machine is pinned."""
        return ()

    @property
    def subject_scheduling(self) -> WantedScheduling | None:
        """The subject's scheduling; None for the host's default."""
        return None

    @property
    def neighbours_scheduling(self) -> WantedScheduling | None:
        """The scheduling of each neighbour; None for the host's default."""
        return None


def fault_of(option: str, read: Callable[[], object]) -> list[tuple[str, str]]:
    """Return the fault of an option's value, in the form of :meth:`PlatformOptions.faults`.

    Args:
        option: The option's name.
        read: Reads the value; raises InputError if it cannot be used.
    """
    try:
        read()
    except InputError as error:
        return [(option, "; ".join(filter(None, (error.message, error.hint))))]
    return []
