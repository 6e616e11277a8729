"""Time that a known neighbour took is checked against its own stamps: wrong attribution shows."""

from __future__ import annotations

import pytest

from lab.known_neighbour import Disturbed, Judged, Measured, Pattern, judged
from tare.agent.client import Outcome
from tare.analysis.topics.host_track import Cause
from tare.analysis.topics.spike_cells import SpikeCell
from tare.analysis.topics.spikes import Matched, Spike

PATTERN = Pattern(length_ns=1_000, period_ns=5_000)
CULPRIT, OTHER = Cause("preempted", "neighbour-1 (CPU 0/KVM)"), Cause("preempted", "sshd")
COUNT = 60


def found(
    causes: list[tuple[Cause, int]],
    lost: int = 0,
    shifted_ns: int = 0,
    charged_ns: float = COUNT * 1_000.0,
) -> Judged:
    """Judge a cell that gives each gap made by a neighbour, 1,000 ns each, this cause."""
    injected = [(number * 5_000.0, number * 5_000.0 + 1_000) for number in range(COUNT)]
    spikes = tuple(
        Spike(
            number,
            round(begin) + shifted_ns - 5,
            round(begin) + shifted_ns + taken + 5,
            taken,
            ((cause, taken),),
        )
        for number, ((begin, _), (cause, taken)) in enumerate(zip(injected, causes, strict=True))
    )
    cell = SpikeCell("", "", 1, "", "", "", "", True, Matched(spikes, 0, 7, 0, None))
    facts = {"events": 9, "lost": lost}
    done = Measured(cell, facts, Outcome({}), charged_ns=charged_ns)
    return judged(Disturbed(done, tuple(injected)), PATTERN, CULPRIT)


def test_correct_attribution_passes() -> None:
    seen = found([(CULPRIT, 1_010)] * COUNT)
    assert (seen.injected, seen.right, seen.long, seen.blamed) == (COUNT,) * 4
    assert seen.off == pytest.approx(0.01)
    assert seen.off_charged == pytest.approx(0.01)
    seen.require_blamed()
    seen.require_total()
    seen.require_charged()


@pytest.mark.parametrize(
    "seen",
    [
        pytest.param(found([(CULPRIT, 1_060)] * COUNT), id="too-long"),
        pytest.param(found([(CULPRIT, 940)] * COUNT), id="too-short"),
        # Each stretch is longer by so much that the total is still right.
        pytest.param(found([(OTHER, 1_000)] * 4 + [(CULPRIT, 1_070)] * 56), id="another-blamed"),
        pytest.param(found([(CULPRIT, 1_000)] * COUNT, shifted_ns=2_000), id="at-another-time"),
        pytest.param(found([(CULPRIT, 1_000)] * COUNT, lost=1), id="events-lost"),
    ],
)
def test_wrong_attribution_fails(seen: Judged) -> None:
    with pytest.raises(AssertionError):
        seen.require_blamed()
        seen.require_total()


def test_time_charged_by_the_host_is_checked_separately() -> None:
    seen = found([(CULPRIT, 1_070)] * COUNT, charged_ns=COUNT * 1_080.0)
    seen.require_charged()
    with pytest.raises(AssertionError):
        seen.require_total()
    with pytest.raises(AssertionError):
        found([(CULPRIT, 1_000)] * COUNT, charged_ns=COUNT * 1_080.0).require_charged()
