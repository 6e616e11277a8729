"""What a plan says of the differences that it can tell, and what it goes by."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tare.analysis.resolving import Basis
    from tare.study.model import Study

RUNS = Path("runs")
"""Where runs are put when nothing else is said."""


def what_it_can_tell(study: Study, headlines: int, pilot: Path | None) -> list[str]:
    """Return what differences a study can tell, a sentence each.

    It goes by the pilot; else by the newest run of the study on this computer; else by an assumed
    variation. The first sentence says which. Where the baseline is the only arm there is nothing to
    tell apart, and nothing is said.

    Args:
        study: The study.
        headlines: Headline metrics of one arm.
        pilot: A run's folder, if one was named.

    Raises:
        InputError: The pilot holds no run.
    """
    from tare.analysis.resolving import assumed_basis, told

    if len(study.arms) == 1 and pilot is None:
        return []
    basis = _measured(study, pilot) or assumed_basis(headlines)
    return told(basis, (study.blocks.least, study.blocks.most), study.margin)


def _measured(study: Study, pilot: Path | None) -> Basis | None:
    from tare.analysis import load_run
    from tare.analysis.resolving import basis_of, earlier_run
    from tare.errors import InputError
    from tare.run.host_facts import host_facts

    if pilot is not None:
        return basis_of(load_run(pilot), f"the pilot {pilot}")
    if study.hosts or study.host.kind != "local" or not RUNS.is_dir():
        return None
    earlier = earlier_run(RUNS.iterdir(), study.study, host_facts())
    if earlier is None:
        return None
    try:
        return basis_of(load_run(earlier), f"this computer's run {earlier}")
    except InputError:
        return None
