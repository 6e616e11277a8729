"""What a study may ask of any platform's options, whichever platform it is."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import ClassVar, Protocol

from pydantic import BaseModel, ConfigDict

from tare.errors import InputError
from tare.study.model.switching import Switching

AUTO = "auto"
"""The way to a network that an arm leaves to its platform."""
GIVEN = "given"
"""The way over the network that a machine has already, which Tare did not make."""


class WantedScheduling(Protocol):
    """What planning needs of a machine's scheduling."""

    @property
    def knobs(self) -> frozenset[str]:
        """The scheduler knobs that a platform must have for it."""
        ...

    @property
    def realtime(self) -> bool:
        """Whether the machine takes a CPU as long as it wants."""
        ...


class PlatformOptions(BaseModel):
    """Base of every platform's options.

    The field descriptions of a subclass become the reference in docs. A platform that has devices,
    networks or a scheduler to choose from overrides the properties below, so that planning can
    skip what the host lacks; what it does not override is as if nothing were asked for.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    instead: ClassVar[Mapping[str, str]] = {}
    """Keys that are no options though people write them, and what to write instead."""

    def faults(self, look: bool) -> Iterable[tuple[str, str]]:
        """Return what cannot be in an arm of a study file, though each option is right by itself.

        Args:
            look: Whether to look at the files of this computer that options name.

        Returns:
            The option that is to be changed, and a sentence that says why and to what.
        """
        return ()

    @property
    def wanted_devices(self) -> str:
        """The device models asked for, as the platform's capabilities name them; empty: any."""
        return ""

    @property
    def wanted_network(self) -> str:
        """The way to a network asked for, or :data:`AUTO`."""
        return AUTO

    @property
    def wanted_switch(self) -> Switching:
        """The switch that its machines are to be plugged into."""
        return Switching()

    @property
    def host_cpus(self) -> Mapping[str, tuple[int, ...]]:
        """The CPUs of the host that options name by their numbers, by the option."""
        return {}

    @property
    def beside_vcpus(self) -> tuple[str, ...]:
        """The options that ask for CPUs of the host which no pinned vCPU of the machine has."""
        return ()

    @property
    def subject_scheduling(self) -> WantedScheduling | None:
        """How the subject is scheduled beside others; None: as the host does by itself."""
        return None

    @property
    def neighbours_scheduling(self) -> WantedScheduling | None:
        """The same for each neighbour."""
        return None


def fault_of(option: str, read: Callable[[], object]) -> list[tuple[str, str]]:
    """Return why what an option names cannot be used, as :meth:`PlatformOptions.faults` does.

    Args:
        option: The option's name.
        read: Reads what it names; raises InputError where it cannot.
    """
    try:
        read()
    except InputError as error:
        return [(option, "; ".join(filter(None, (error.message, error.hint))))]
    return []
