"""Find the installed platforms, workloads and probes: Tare's own, and those of other packages.

Every part is found by an entry point of the groups ``tare.platforms``, ``tare.workloads`` and
``tare.probes``, so that another package adds parts as Tare does (`tare help extending`). An entry
point names a subclass of the contract, an instance of one, or a list of these. It may also name a
mapping from the names of parts to their locations, as ``module:object``.

A part is loaded on first use: a study uses few of them, and loading all takes longer than planning
it.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from importlib.metadata import Distribution, EntryPoint, entry_points
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from pydantic import BaseModel

if TYPE_CHECKING:
    from tare.platforms.contract import Platform
    from tare.platforms.host_hypervisor import HostHypervisor
    from tare.probes import ProbeKind
    from tare.workloads.contract import Workload

PLATFORMS, WORKLOADS, PROBES = "tare.platforms", "tare.workloads", "tare.probes"
"""The groups of entry points."""
OWN = "hypertare"
"""The distribution of Tare itself."""
PRODUCTS: Mapping[str, str] = MappingProxyType(
    {
        "cloud-hypervisor": "Cloud Hypervisor",
        "firecracker": "Firecracker",
        "hyperv": "Hyper-V",
        "incus": "Incus",
        "ovirt": "oVirt",
        "proxmox": "Proxmox VE",
        "vsphere": "vSphere",
        "xenserver": "XenServer",
    }
)
"""The products of Tare's own platforms, known without loading them; each declares the same."""

Part = TypeVar("Part", bound="Platform[Any] | Workload[Any] | ProbeKind")


@dataclass(frozen=True)
class BrokenEntryPoint:
    """An entry point that is left out.

    Args:
        name: The entry point's name.
        group: The entry point's group.
        package: The distribution that contains it.
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
        """The reason why it is unusable: a sentence without its subject."""
        return f"it is installed by {self.package} but left out: {self.reason}"

    @property
    def hint(self) -> str:
        """Advice for the user."""
        return f"pip install --upgrade {self.package}, or pip uninstall {self.package}"


class _Source(Generic[Part]):
    """An entry point, or one part of an entry point that names a mapping of parts.

    Args:
        point: The entry point.
        package: The distribution that contains it.
        kind: The contract of its parts.
        require_declared: Checks that a part declares what the contract requires; raises TypeError.
    """

    def __init__(
        self,
        point: EntryPoint,
        package: str,
        kind: type[Part],
        require_declared: Callable[[Part], None],
    ) -> None:
        self.name, self.package = point.name, package
        self._point = point
        self._contract = kind, require_declared

    @cached_property
    def _content(self) -> tuple[Part, ...] | Mapping[str, _Source[Part]] | BrokenEntryPoint:
        """The parts, or the sources of parts by name, or the reason why this source is left out."""
        try:
            loaded = self._point.load()
            if isinstance(loaded, Mapping):
                group = self._point.group
                return {
                    name: _Source(EntryPoint(name, place, group), self.package, *self._contract)
                    for name, place in loaded.items()
                }
            return tuple(_parts(loaded, *self._contract))
        except (Exception, SystemExit) as error:  # a stranger's module must not end Tare
            return self.without(f"{type(error).__name__}: {error}")

    def find(self, name: str) -> Part | None:
        """Return the part of this name, if there is one; load no other part if possible."""
        content = self._content
        if isinstance(content, Mapping):
            return content[name].find(name) if name in content else None
        parts = content if isinstance(content, tuple) else ()
        return next((part for part in parts if part.name == name), None)

    def load(self) -> tuple[tuple[Part, ...], tuple[BrokenEntryPoint, ...]]:
        """Return all parts, and the entry points that are left out."""
        content = self._content
        if isinstance(content, BrokenEntryPoint):
            return (), (content,)
        if isinstance(content, tuple):
            return content, ()
        found: list[Part] = []
        broken: list[BrokenEntryPoint] = []
        for name, source in content.items():
            if part := source.find(name):
                found.append(part)
            else:
                broken += source.load()[1] or [source.without(f"it brings no part {name}")]
        return tuple(found), tuple(broken)

    def without(self, reason: str) -> BrokenEntryPoint:
        """Return a record that this source, or a part of it, is left out."""
        return BrokenEntryPoint(self.name, self._point.group, self.package, reason)


class Parts(Mapping[str, Part]):
    """The parts of a group by name; Tare's own come first.

    Looking up one of Tare's own parts loads only that part. Listing all parts, or looking up a name
    of
    another package, loads all.

    Args:
        points: The entry points of the group.
        kind: The contract of the parts.
        require_declared: Checks that a part declares what the contract requires; raises TypeError.
    """

    def __init__(
        self,
        points: Iterable[EntryPoint],
        kind: type[Part],
        require_declared: Callable[[Part], None] = lambda _: None,
    ) -> None:
        sources = [_Source(point, _package(point), kind, require_declared) for point in points]
        # Tare's own parts come first, so that no other package can take their names.
        self._own = sorted(
            (each for each in sources if each.package == OWN), key=lambda each: each.name
        )
        self._others = sorted(
            (each for each in sources if each.package != OWN), key=lambda each: each.name
        )

    def __getitem__(self, name: str) -> Part:
        for source in sorted(self._own, key=lambda each: each.name != name):
            if part := source.find(name):
                return part
        return self._all[0][name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._all[0])

    def __len__(self) -> int:
        return len(self._all[0])

    @property
    def broken(self) -> tuple[BrokenEntryPoint, ...]:
        """The installed entry points that are left out."""
        return self._all[1]

    def of_others(self) -> Iterator[Part]:
        """Yield the parts of other packages."""
        for source in self._others:
            yield from source.load()[0]

    @cached_property
    def _all(self) -> tuple[Mapping[str, Part], tuple[BrokenEntryPoint, ...]]:
        found: dict[str, Part] = {}
        broken: list[BrokenEntryPoint] = []
        for source in (*self._own, *self._others):
            parts, left_out = source.load()
            broken += left_out
            for part in parts:
                if part.name in found:
                    broken.append(
                        source.without(f"there is a part of the name {part.name} already")
                    )
                else:
                    found[part.name] = part
        return found, tuple(broken)


class Registry:
    """All parts that are installed.

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

    # Contracts are imported when a part is used: listing workloads does not need the platforms.
    # Abstract classes are not parts, and mypy does not accept one as an argument.
    @cached_property
    def platforms(self) -> Parts[Platform[Any]]:
        """The platforms by name."""
        from tare.platforms.contract import Platform, PlatformOptions

        return Parts(
            self._points[PLATFORMS],
            Platform,  # type: ignore[type-abstract]
            lambda platform: _require_model(platform, platform.options, PlatformOptions),
        )

    @cached_property
    def workloads(self) -> Parts[Workload[Any]]:
        """The workloads by name, in the order in which reports show them."""
        from tare.workloads.contract import Parameters, Workload

        return Parts(
            self._points[WORKLOADS],
            Workload,  # type: ignore[type-abstract]
            lambda workload: _require_model(workload, workload.parameters, Parameters),
        )

    @cached_property
    def probes(self) -> Parts[ProbeKind]:
        """The probes of other packages by name."""
        from tare.probes import ProbeKind

        return Parts(self._points[PROBES], ProbeKind)  # type: ignore[type-abstract]

    @cached_property
    def hypervisors(self) -> Mapping[str, HostHypervisor]:
        """The hypervisors that platforms need below a host's kernel, by the word for each.

        Tare's own platforms need only Xen, so they need not be loaded for this.
        """
        from tare.platforms.host_hypervisor import hypervisors_of
        from tare.platforms.xen.hypervisor import XEN

        return {XEN.word: XEN, **hypervisors_of(self.platforms.of_others())}

    @cached_property
    def products(self) -> Mapping[str, str]:
        """The products of platforms whose product has another name than the platform."""
        others = {each.name: each.product for each in self.platforms.of_others() if each.product}
        return {**others, **PRODUCTS}

    @property
    def broken(self) -> tuple[BrokenEntryPoint, ...]:
        """The installed entry points that are left out."""
        return (*self.platforms.broken, *self.workloads.broken, *self.probes.broken)


@cache
def installed() -> Registry:
    """Return the registry of this Python environment. It is created once per process."""
    # One call serves all groups, because it reads the files of all packages.
    found = entry_points()
    return Registry(*(found.select(group=each) for each in (PLATFORMS, WORKLOADS, PROBES)))


def _parts(
    loaded: Any, kind: type[Part], require_declared: Callable[[Part], None]
) -> Iterator[Part]:
    if isinstance(loaded, list | tuple):
        for each in loaded:
            yield from _parts(each, kind, require_declared)
        return
    part = loaded() if inspect.isclass(loaded) else loaded
    if not isinstance(part, kind):
        raise TypeError(f"{loaded!r} is not a {kind.__name__} of tare's contract")
    if not isinstance(part.name, str):
        raise TypeError(f"{part!r} has the name {part.name!r}, which is not a word")
    # A missing declaration is reported here, not in the middle of a run.
    require_declared(part)
    yield part


def _require_model(part: object, model: Any, base: type[BaseModel]) -> None:
    if not (inspect.isclass(model) and issubclass(model, base)):
        raise TypeError(f"{part!r} declares {model!r}, which are not {base.__name__}")


def _package(point: EntryPoint) -> str:
    return "an unknown package" if point.dist is None else _name(point.dist)


@cache
def _name(package: Distribution) -> str:
    # All entry points of a package share the name; each look-up would parse the package's metadata.
    return package.name
