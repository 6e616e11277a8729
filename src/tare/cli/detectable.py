"""The differences that a plan can resolve, and the data from which they are estimated."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tare.analysis.data.rundata import RunData
    from tare.analysis.effects.detectable import Basis, Plans
    from tare.analysis.effects.pilot import Advice
    from tare.events.metric import Kind
    from tare.study.model.study import Study

RUNS = Path("runs")
"""The default folder of runs."""


def resolvable_differences(
    study: Study, headlines: Mapping[Kind, int], pilot: Path | None
) -> list[str]:
    """Return the differences that a study can resolve, one sentence each.

    The estimate uses the pilot; else the newest run of the study on this computer; else an assumed
    variation. The first sentence says which. If the baseline is the only arm, nothing is compared
    and the list is empty.

    Args:
        study: The study.
        headlines: The number of headline metrics of one arm, by kind.
        pilot: A run's folder, if one was named.

    Raises:
        InputError: The pilot holds no run.
    """
    from tare.analysis.effects.detectable import Plans, describe_detectable
    from tare.analysis.effects.stopping import TAIL_FACTOR

    if len(study.arms) == 1 and pilot is None:
        return []
    blocks = study.blocks
    plans = Plans(
        (blocks.least, blocks.most),
        headlines,
        study.margin,
        blocks.precision,
        blocks.tail_precision or TAIL_FACTOR * blocks.precision,
        blocks.method == "sequential",
        blocks.average == "trimmed",
    )
    known = _known(study, pilot)
    if study.sessions is None:
        return describe_detectable(known.basis(), plans)
    within = describe_detectable(known.basis(), plans) if _within_a_boot(study) else []
    return list(dict.fromkeys((*within, *_rounds_note(study, known, plans))))


def advice_for(study: Study, pilot: RunData) -> tuple[Advice, ...]:
    """Return the advice of a pilot for a study.

    For arms of different boots, a pilot can only advise if it swapped those boots too.
    """
    from tare.analysis import advise

    advices = advise(pilot, study.blocks.precision, study.confidence)
    if study.sessions is None or pilot.sessions:
        return advices
    across = set(_arms_of_other_boots(study))
    return tuple(each for each in advices if each.arm not in across)


def _arms_of_other_boots(study: Study) -> list[str]:
    """Return the arms that are compared with a baseline of another boot."""
    from tare.study.model.sessions import boot_of

    base = {arm: study.own_baselines.get(arm, study.baseline) for arm in study.arms}
    return [arm for arm in study.arms if boot_of(study, arm) != boot_of(study, base[arm])]


def _within_a_boot(study: Study) -> bool:
    """Return whether some arm other than a baseline's twin is compared block by block."""
    across = set(_arms_of_other_boots(study))
    bases = {study.baseline, *study.own_baselines.values()}
    left = set(study.arms) - across - bases
    return any(study.arms[arm].twin_of is None for arm in left)


def _rounds_note(study: Study, known: _Known, plans: Plans) -> list[str]:
    """Return the note on arms of different boots, which are compared over rounds."""
    from tare.analysis.effects.detectable import (
        BLOCKS_OF_SPREAD,
        describe_detectable,
        sentences_on_kinds,
    )
    from tare.analysis.effects.verdict import LEVEL
    from tare.analysis.statistics.maxt import least_blocks
    from tare.run.sessions.agenda_text import agenda_of

    agenda = agenda_of(study)
    rounds = " to ".join(map(str, dict.fromkeys((agenda.least, agenda.most))))
    note = (
        f"arms of different boots are compared over {rounds} rounds of sessions (a verdict needs "
        f"at least {least_blocks(LEVEL)})"
    )
    basis = known.over_rounds()
    if basis is None:
        why = f": {known.of} has fewer than {BLOCKS_OF_SPREAD} rounds" if known.of else ""
        return [f"{note}; how far sessions differ is unknown{why}", *sentences_on_kinds(plans)]
    return [
        note,
        *describe_detectable(
            basis, replace(plans, blocks=(agenda.least, agenda.most), each="round")
        ),
    ]


@dataclass(frozen=True)
class _Known:
    """The data from which a study's resolvable differences are estimated.

    Args:
        boots: The number of boots of the baseline in a block: two if it has a twin.
        run: The run from which the spread between boots is estimated; None if there is none.
        of: The run's description.
    """

    boots: int
    run: RunData | None = None
    of: str = ""

    def basis(self) -> Basis:
        """Return the spread between boots: from the run, or else an assumed one."""
        from tare.analysis.effects.detectable import BLOCKS_OF_SPREAD, assumed_basis, basis_of

        if self.run is None:
            return assumed_basis(self.boots)
        few = f"{self.of} has no headline ratio in {BLOCKS_OF_SPREAD} blocks"
        return basis_of(self.run, self.of) or assumed_basis(self.boots, few)

    def over_rounds(self) -> Basis | None:
        """Return the spread between rounds of sessions, if the run was in sessions."""
        from tare.analysis.effects.detectable import basis_of

        if self.run is None:
            return None
        return basis_of(self.run, f"the rounds of sessions of {self.of}", "round")


def _known(study: Study, pilot: Path | None) -> _Known:
    from tare.analysis import load_run
    from tare.analysis.effects.detectable import earlier_run
    from tare.errors import InputError
    from tare.run.hosts.host_facts import host_facts

    boots = 2 if study.aa is not None else 1
    if pilot is not None:
        return _Known(boots, load_run(pilot), f"the pilot {pilot}")
    nothing = _Known(boots)
    if study.hosts or study.host.kind != "local" or not RUNS.is_dir():
        return nothing
    earlier = earlier_run(RUNS.iterdir(), study.study, host_facts())
    if earlier is None:
        return nothing
    try:
        return _Known(boots, load_run(earlier), f"this computer's run {earlier}")
    except InputError:
        return nothing
