"""What a plan says of the differences that it can tell, and what it goes by."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tare.analysis.resolving import Basis
    from tare.analysis.results import Kind
    from tare.study.model import Study

RUNS = Path("runs")
"""Where runs are put when nothing else is said."""


def what_it_can_tell(study: Study, headlines: Mapping[Kind, int], pilot: Path | None) -> list[str]:
    """Return what differences a study can tell, a sentence each.

    It goes by the pilot; else by the newest run of the study on this computer; else by an assumed
    variation. The first sentence says which. Where the baseline is the only arm there is nothing to
    tell apart, and nothing is said.

    Args:
        study: The study.
        headlines: Headline metrics of one arm, by kind.
        pilot: A run's folder, if one was named.

    Raises:
        InputError: The pilot holds no run.
    """
    from tare.analysis.resolving import Plans, told
    from tare.analysis.stopping import TAIL_FACTOR

    if len(study.arms) == 1 and pilot is None:
        return []
    blocks = study.blocks
    plans = Plans(
        (blocks.least, blocks.most),
        headlines,
        study.margin,
        blocks.precision,
        blocks.tail_precision or TAIL_FACTOR * blocks.precision,
        blocks.method == "anytime",
    )
    said = told(_basis(study, pilot), plans)
    return said if study.sessions is None else [*said, *_over_rounds(study)]


def _over_rounds(study: Study) -> list[str]:
    """Return what arms of different boots are compared over, which was not reckoned with."""
    from tare.analysis.statistics.maxt import least_blocks
    from tare.analysis.verdict import LEVEL
    from tare.run.swaps.words import agenda_of

    agenda = agenda_of(study)
    rounds = " to ".join(map(str, dict.fromkeys((agenda.least, agenda.most))))
    return [
        f"arms of different boots are compared over {rounds} rounds of sessions, of which "
        f"{least_blocks(LEVEL)} are the least for a verdict; how far sessions differ is not known"
    ]


def _basis(study: Study, pilot: Path | None) -> Basis:
    from tare.analysis import load_run
    from tare.analysis.resolving import BLOCKS_OF_SPREAD, assumed_basis, basis_of, earlier_run
    from tare.errors import InputError
    from tare.run.host_facts import host_facts

    boots = 2 if study.aa is not None else 1
    few = f"has no headline ratio in {BLOCKS_OF_SPREAD} blocks"
    if pilot is not None:
        found = basis_of(load_run(pilot), f"the pilot {pilot}")
        return found or assumed_basis(boots, f"the pilot {pilot} {few}")
    nothing = assumed_basis(boots)
    if study.hosts or study.host.kind != "local" or not RUNS.is_dir():
        return nothing
    earlier = earlier_run(RUNS.iterdir(), study.study, host_facts())
    if earlier is None:
        return nothing
    try:
        found = basis_of(load_run(earlier), f"this computer's run {earlier}")
    except InputError:
        return nothing
    return found or assumed_basis(boots, f"this computer's run {earlier} {few}")
