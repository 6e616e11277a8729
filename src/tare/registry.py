"""Which platforms, workloads and probes there are: Tare's own, and those of other packages.

Every part is found by an entry point of the groups ``tare.platforms``, ``tare.workloads`` and
``tare.probes``, so that another package adds one as Tare adds its own (`tare help extending`).
An entry point names a subclass of the contract, an instance of one, or a list of these.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from importlib.metadata import EntryPoint, entry_points
from types import MappingProxyType
from typing import Any, TypeVar

from pydantic import BaseModel

from tare.platforms.contract import Platform, PlatformOptions
from tare.probes import ProbeKind
from tare.workloads.contract import Parameters, Workload

PLATFORMS, WORKLOADS, PROBES = "tare.platforms", "tare.workloads", "tare.probes"
"""The groups of entry points."""
OWN = "hypertare"
"""The distribution that is Tare itself."""

Part = TypeVar("Part", bound="Platform[Any] | Workload[Any] | ProbeKind")
Loaded = tuple[Mapping[str, Part], tuple["Broken", ...]]
"""The parts of a group by name, and what is left out of it."""


@dataclass(frozen=True)
class Broken:
    """An entry point that is left out.

    Args:
        name: Its name.
        group: Its group.
        package: The distribution that brings it.
        reason: Why it is left out.
    """

    name: str
    group: str
    package: str
    reason: str

    @property
    def kind(self) -> str:
        """``platform``, ``workload`` or ``probe``."""
        return self.group.removeprefix("tare.").removesuffix("s")

    @property
    def because(self) -> str:
        """Why nobody can use it: a sentence without its subject."""
        return f"it is installed by {self.package} but left out: {self.reason}"

    @property
    def hint(self) -> str:
        """What to do about it."""
        return f"pip install --upgrade {self.package}, or pip uninstall {self.package}"


class Registry:
    """All parts that are installed; those of a group are loaded when the group is first used.

    Args:
        platforms: Entry points of platforms.
        workloads: Entry points of workloads.
        probes: Entry points of probes.
    """

    def __init__(
        self,
        platforms: Iterable[EntryPoint],
        workloads: Iterable[EntryPoint],
        probes: Iterable[EntryPoint] = (),
    ) -> None:
        self._points = {PLATFORMS: platforms, WORKLOADS: workloads, PROBES: probes}

    @property
    def platforms(self) -> Mapping[str, Platform[Any]]:
        """The platforms by name; Tare's own first."""
        return self._platforms[0]

    @property
    def workloads(self) -> Mapping[str, Workload[Any]]:
        """The workloads by name, in the order in which reports show them."""
        return self._workloads[0]

    @property
    def probes(self) -> Mapping[str, ProbeKind]:
        """The probes of other packages by name."""
        return self._probes[0]

    @property
    def broken(self) -> tuple[Broken, ...]:
        """What is installed and left out."""
        return (*self._platforms[1], *self._workloads[1], *self._probes[1])

    # Abstract classes are not parts, and mypy does not take one as an argument.
    @cached_property
    def _platforms(self) -> Loaded[Platform[Any]]:
        return _load(self._points[PLATFORMS], Platform)  # type: ignore[type-abstract]

    @cached_property
    def _workloads(self) -> Loaded[Workload[Any]]:
        return _load(self._points[WORKLOADS], Workload)  # type: ignore[type-abstract]

    @cached_property
    def _probes(self) -> Loaded[ProbeKind]:
        return _load(self._points[PROBES], ProbeKind)  # type: ignore[type-abstract]


@cache
def installed() -> Registry:
    """Return what is installed in this Python environment; loaded once in a process."""
    return Registry(*(entry_points(group=each) for each in (PLATFORMS, WORKLOADS, PROBES)))


def _load(points: Iterable[EntryPoint], kind: type[Part]) -> Loaded[Part]:
    """Load the parts of one group; what cannot be loaded is left out and listed."""
    found: dict[str, Part] = {}
    broken: list[Broken] = []
    # Tare's own come first, so that no package can take the name of one.
    for point in sorted(points, key=lambda point: (_package(point) != OWN, point.name)):
        try:
            parts = list(_parts(point.load(), kind))
        except (Exception, SystemExit) as error:  # a stranger's module must not end Tare
            broken.append(_broken(point, f"{type(error).__name__}: {error}"))
            continue
        for part in parts:
            if part.name in found:
                broken.append(_broken(point, f"there is a part of the name {part.name} already"))
                continue
            found[part.name] = part
    return MappingProxyType(found), tuple(broken)


def _parts(loaded: Any, kind: type[Part]) -> Iterator[Part]:
    if isinstance(loaded, list | tuple):
        for each in loaded:
            yield from _parts(each, kind)
        return
    part = loaded() if inspect.isclass(loaded) else loaded
    if not isinstance(part, kind):
        raise TypeError(f"{loaded!r} is not a {kind.__name__} of tare's contract")
    if not isinstance(part.name, str):
        raise TypeError(f"{part!r} has the name {part.name!r}, which is not a word")
    # A missing declaration is reported here, not in the middle of a run.
    if isinstance(part, Platform):
        _require_model(part, part.options, PlatformOptions)
    elif isinstance(part, Workload):
        _require_model(part, part.parameters, Parameters)
    yield part


def _require_model(part: object, model: Any, base: type[BaseModel]) -> None:
    if not (inspect.isclass(model) and issubclass(model, base)):
        raise TypeError(f"{part!r} declares {model!r}, which are not {base.__name__}")


def _broken(point: EntryPoint, reason: str) -> Broken:
    return Broken(point.name, point.group, _package(point), reason)


def _package(point: EntryPoint) -> str:
    return point.dist.name if point.dist is not None else "an unknown package"
