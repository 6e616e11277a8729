"""What a workload needs of a machine, which may depend on its parameters."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol

from tare.workloads.base import Parameters, Workload


def needs_of(workload: Workload, parameters: Parameters | None = None) -> frozenset[str]:
    """Return what a workload needs, out of ``toolbox``, ``toolbox-build``, ``disk``, ``network``.

    Args:
        workload: Says it in its attribute ``needs``, and in ``needs_for`` what more some parameters
            need.
        parameters: Its parameters; None: only what it needs whatever they are.
    """
    always: frozenset[str] = getattr(workload, "needs", frozenset())
    more: Callable[[Parameters], frozenset[str]] | None = getattr(workload, "needs_for", None)
    return always if parameters is None or more is None else always | more(parameters)


class Load(Protocol):
    """A neighbour's load, as a study or a placement names it."""

    @property
    def load(self) -> str:
        """The workload's name."""
        ...

    @property
    def parameters(self) -> Mapping[str, Any]:
        """Its parameters, as the study gives them."""
        ...


def needs_of_loads(workloads: Mapping[str, Workload], loads: Iterable[Load]) -> frozenset[str]:
    """Return what these loads need of their machines; see `needs_of`. Unknown ones need nothing."""
    needed: frozenset[str] = frozenset()
    for wanted in loads:
        load = workloads.get(wanted.load)
        if load is not None:
            needed |= needs_of(load, load.parameters.model_validate(dict(wanted.parameters)))
    return needed
