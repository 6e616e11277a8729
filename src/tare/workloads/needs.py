"""What a workload needs of a machine, which may depend on its parameters."""

from __future__ import annotations

from collections.abc import Callable

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
