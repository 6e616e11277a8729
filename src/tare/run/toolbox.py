"""Make the toolbox ready once for a study whose workloads need it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tare.images.toolbox import prepare_toolbox
from tare.platforms.base import ToolboxFiles
from tare.study.quantities import format_size
from tare.workloads.needs import needs_of, needs_of_loads

if TYPE_CHECKING:
    from tare.images.toolbox_recipe import Kind
    from tare.run.bench import Bench
    from tare.study.model import Study


def study_needs(bench: Bench, study: Study) -> frozenset[str]:
    """Return what the study's workloads and neighbours need of a machine.

    Out of ``toolbox``, ``toolbox-build``, ``disk`` and ``network``; a workload says it in its
    attribute ``needs``, and in ``needs_for`` what more its parameters need.
    """
    kinds = {spec.workload for spec in study.workloads.values()}
    needed = [needs_of(bench.workloads[kind]) for kind in kinds if kind in bench.workloads]
    needed += [load_needs(bench, study, scenario) for scenario in study.scenarios]
    return frozenset[str]().union(*needed)


def load_needs(bench: Bench, study: Study, scenario: str) -> frozenset[str]:
    """Return what the loads of a scenario's neighbours need of their machines."""
    return needs_of_loads(bench.workloads, study.scenarios[scenario].neighbours)


async def study_toolbox(bench: Bench, study: Study) -> ToolboxFiles | None:
    """Find or build the toolbox that the study needs; None where it needs none.

    Raises:
        InputError: It cannot be built.
    """
    needs = study_needs(bench, study)
    kind: Kind
    if "toolbox-build" in needs:
        kind = "build"
    elif "toolbox" in needs:
        kind = "base"
    else:
        return None
    context = bench.context
    box = await prepare_toolbox(
        context.builder, kind, agent=context.agent, cache=context.cache, say=bench.say
    )
    for note in box.notes:
        bench.say(note)
    return ToolboxFiles(image=box.image, digest=box.digest, tree=box.tree)


def lacking_memory(bench: Bench, study: Study, arm: str) -> dict[str, str]:
    """Return the workloads that need more memory than an arm's machines have, with the reason."""
    given = study.shape_of(arm).memory
    lacking: dict[str, str] = {}
    for name in {spec.workload for spec in study.workloads.values()}:
        least = getattr(bench.workloads[name], "memory", 0)
        if given < least:
            lacking[name] = (
                f"{name} needs a machine with at least {format_size(least)} of memory, "
                f"not {format_size(given)}"
            )
    return lacking
