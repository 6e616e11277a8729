"""The catalog of installed platforms and workloads, against which studies are checked."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Container, Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Generic, TypeVar

from pydantic import BaseModel

from tare.probes import Probe, ProbedCell, ProbeKind
from tare.registry import installed
from tare.study.model.platform_options import PlatformOptions
from tare.study.model.study import Arm, Catalog, Study
from tare.study.reading.checking import suggestion
from tare.study.reading.load import wrong_in_study

Part = TypeVar("Part")
Model = TypeVar("Model", bound=BaseModel)


def build_catalog() -> Catalog:
    """Return all names that a study may use: platforms, workloads, options and parameters."""
    return InstalledCatalog()


class InstalledCatalog(Catalog):
    """The catalog of installed platforms and workloads, which loads only those in a study."""

    def __init__(self) -> None:
        # Each field is found when it is first used.
        pass

    @cached_property
    def platforms(self) -> Mapping[str, type[PlatformOptions]]:
        """Each platform's options."""
        return _Models(installed().platforms, lambda platform: platform.options)

    @cached_property
    def workloads(self) -> Mapping[str, type[BaseModel]]:
        """Each workload's parameters."""
        return _Models(installed().workloads, lambda workload: workload.parameters)

    @cached_property
    def summaries(self) -> Mapping[str, str]:
        """The first sentences of the reference, of all parts."""
        parts = installed()
        kinds = {f"workload/{name}": each.summary for name, each in parts.workloads.items()}
        return kinds | {
            f"platform/{name}": _first_paragraph(type(platform))
            for name, platform in parts.platforms.items()
        }

    @cached_property
    def neighbours_only(self) -> Container[str]:
        """The workloads that can only be neighbours."""
        return _NeighboursOnly()

    @cached_property
    def roles(self) -> frozenset[str]:
        """The roles of all workloads."""
        return frozenset(role for kind in installed().workloads.values() for role in kind.roles)

    @cached_property
    def products(self) -> Mapping[str, str]:
        """The products of all platforms that are named otherwise."""
        return installed().products

    @cached_property
    def known_as(self) -> Mapping[str, str]:
        """The other words for all platforms."""
        return {
            word: ", ".join(filter(None, (name, details)))
            for name, platform in installed().platforms.items()
            for word, details in platform.known_as.items()
        }

    @cached_property
    def left_out(self) -> Mapping[str, str]:
        """The installed platforms and workloads that cannot be used, each with the reason."""
        return {f"{part.kind}/{part.name}": part.because for part in installed().broken}


class _Models(Mapping[str, type[Model]], Generic[Part, Model]):
    """A model of each part, which is loaded when its model is used.

    Args:
        parts: The parts by name.
        model: Returns a part's model.
    """

    def __init__(self, parts: Mapping[str, Part], model: Callable[[Part], type[Model]]) -> None:
        self._parts = parts
        self._model = model

    def __getitem__(self, name: str) -> type[Model]:
        return self._model(self._parts[name])

    def __iter__(self) -> Iterator[str]:
        return iter(self._parts)

    def __len__(self) -> int:
        return len(self._parts)


class _NeighboursOnly(Container[str]):
    """The workloads that end with a subject; a look-up loads only the named workload."""

    def __contains__(self, name: object) -> bool:
        kind = installed().workloads.get(str(name))
        return kind is not None and kind.neighbour_only


def _first_paragraph(model: type) -> str:
    text = inspect.cleandoc(model.__doc__ or "")
    return " ".join(text.partition("\n\n")[0].split())


def _own_probes(study: Study) -> dict[str, ProbeKind]:
    """Return Tare's own probes that a study can name; none if it names no probe."""
    if not study.probes and not any(arm.probes for arm in study.arms.values()):
        return {}
    from tare.run.probes.energy import EnergyKind
    from tare.run.probes.exits import ExitsKind
    from tare.run.probes.stacks import StacksKind

    meters = {arm: study.computers[study.host_of(arm)].bmc for arm in study.arms}
    energy = EnergyKind(
        {arm: meter for arm, meter in meters.items() if meter is not None},
        elsewhere=[name for name, arm in study.arms.items() if _is_elsewhere(arm)],
    )
    return {kind.name: kind for kind in (energy, ExitsKind(), StacksKind())}


def _is_elsewhere(arm: Arm) -> bool:
    platform = installed().platforms.get(arm.platform)
    return platform is not None and platform.stated(arm.options).elsewhere


def probe_kinds(study: Study) -> tuple[ProbeKind, ...]:
    """Return the kinds of probes that observe a study's cells.

    These are the installed ones that observe every cell, and those that the study names.
    """
    kinds = {**installed().probes, **_own_probes(study)}
    asked = {name: [arm for arm in study.arms if name in study.probes_of(arm)] for name in kinds}
    return tuple(
        ProbeOfArms(kind, frozenset(asked[name])) if kind.on_request else kind
        for name, kind in kinds.items()
        if asked[name] or not kind.on_request
    )


class ProbeOfArms(ProbeKind):
    """A kind of probe that observes only some arms.

    Args:
        kind: The kind.
        arms: The arms.
    """

    def __init__(self, kind: ProbeKind, arms: frozenset[str]) -> None:
        self.name = kind.name
        self._kind = kind
        self._arms = arms

    def probe(self, cell: ProbedCell) -> Probe | None:
        """Return the probe of a cell of these arms."""
        return self._kind.probe(cell) if cell.cell.arm in self._arms else None


def require_known_probes(study: Study, path: Path) -> None:
    """Check that the probes which a study names exist.

    Args:
        study: The study.
        path: Its file.

    Raises:
        InputError: One does not exist; the message suggests the nearest.
    """
    known = {**installed().probes, **_own_probes(study)}
    named: list[tuple[tuple[str, ...], tuple[str, ...]]] = [(("probes",), study.probes)]
    named += [(("arms", name, "probes"), arm.probes or ()) for name, arm in study.arms.items()]
    found = [
        (place, f"there is no probe {name!r}{suggestion(name, known)}")
        for place, names in named
        for name in names
        if name not in known
    ]
    if found:
        raise wrong_in_study(path, found)


def require_known_floors(study: Study, path: Path) -> None:
    """Check that the metric of each floor exists: otherwise the floor would have no effect.

    Metrics of workloads that the study lacks are accepted, because ``--workload`` selects some.

    Args:
        study: The study.
        path: Its file.

    Raises:
        InputError: A metric does not exist; the message suggests the nearest.
    """
    kinds = installed().workloads
    known: set[str] = set()
    for spec in study.workloads.values():
        kind = kinds[spec.workload]
        for point in spec.points:
            parameters = kind.parameters.model_validate(dict(point))
            known |= {metric.name for metric in kind.metrics_for(parameters)}
    if not known.issuperset(study.floors):
        known |= {metric.name for kind in kinds.values() for metric in kind.metrics}
    found = [
        (("floors", name), f"there is no metric {name!r}{suggestion(name, known)}")
        for name in study.floors
        if name not in known
    ]
    if found:
        raise wrong_in_study(path, found)
