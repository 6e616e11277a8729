"""Preparation of the toolbox for a study whose workloads need it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from tare.errors import InputError
from tare.platforms.contract import ToolboxFiles
from tare.study.reading.load import wrong_in_study
from tare.workloads.additions import Additions, merge_additions
from tare.workloads.needs import needs_of, needs_of_loads

if TYPE_CHECKING:
    from tare.hosts import Host
    from tare.images.toolbox.recipe import Kind
    from tare.run.lifecycle.setup import Grounds, RunSetup
    from tare.study.model.study import Study
    from tare.study.reading.yamltext import Path as Keys
    from tare.workloads.contract import Need


def study_needs(setup: Grounds, study: Study) -> frozenset[Need]:
    """Return the needs of the study's workloads and neighbours."""
    known = setup.workloads
    needed = [needs_of(known[spec.workload], spec.points) for spec in study.workloads.values()]
    loads = [load for scenario in study.scenarios.values() for load in scenario.neighbours]
    return needs_of_loads(known, loads).union(*needed)


def study_additions(setup: Grounds, study: Study) -> Iterator[tuple[str, Additions]]:
    """Yield the additions of each workload to the toolbox, with the workload's label."""
    for label, spec in study.workloads.items():
        workload = setup.workloads[spec.workload]
        for point in spec.points:
            added = workload.adds(workload.parameters.model_validate(point))
            yield label, added.relative_to(Path(study.folder))


async def require_additions(setup: Grounds, builder: Host | None, study: Study, path: Path) -> None:
    """Check that a study's additions to the toolbox exist, before anything is started.

    Args:
        setup: The input of the plan, with the workloads.
        builder: The computer that builds, whose apt must know the packages; None: packages are not
            checked.
        study: The study.
        path: Its file, for the message's line.

    Raises:
        InputError: A package does not exist, or two workloads add different files at one place.
    """
    added = dict.fromkeys(study.workloads, Additions())
    for label, additions in study_additions(setup, study):
        added[label] = merge_additions([added[label], additions])
    every = merge_additions(added.values())
    every.each_file()
    if builder is None:
        return
    # Imported here, because most plans need no toolbox.
    from tare.images.toolbox.packages import unknown_packages

    unknown = await unknown_packages(builder, every.packages)
    found: list[tuple[Keys, str]] = [
        (("workloads", label, "toolbox", "packages"), f"apt has no package {name}")
        for name in unknown
        for label, additions in added.items()
        if name in additions.packages
    ]
    if found:
        raise wrong_in_study(path, found, "`apt-cache search WORD` finds packages by a word")


async def study_toolbox(setup: RunSetup, study: Study) -> ToolboxFiles | None:
    """Find or build the toolbox that the study needs; return None if it needs none.

    Raises:
        InputError: It cannot be built.
    """
    needs = study_needs(setup, study)
    kind: Kind
    if "toolbox-build" in needs and needs & {"toolbox-hadoop", "toolbox-analytics"}:
        raise InputError(
            "the compilers of kernel-compile and the programs of Hadoop are in two toolboxes, but "
            "the machines of a study have only one",
            "split it into two studies: one with kernel-compile, one with the jobs of Hadoop",
        )
    if "toolbox-build" in needs:
        kind = "build"
    elif "toolbox-analytics" in needs:
        kind = "analytics"
    elif "toolbox-hadoop" in needs:
        kind = "hadoop"
    elif "toolbox" in needs:
        kind = "base"
    else:
        return None
    from tare.images.toolbox.extended import extended_toolbox
    from tare.images.toolbox.toolbox import prepare_toolbox

    context = setup.context
    builder, agent, cache = context.builder, context.agent, context.cache
    box = await prepare_toolbox(builder, kind, agent=agent, cache=cache, say=setup.say)
    if additions := merge_additions(added for _, added in study_additions(setup, study)):
        box = await extended_toolbox(
            builder, box, additions, agent=agent, cache=cache, say=setup.say
        )
    for note in box.notes:
        setup.say(note)
    return ToolboxFiles(image=box.image, digest=box.digest, tree=box.tree)
