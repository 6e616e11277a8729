"""A sample of the simulation that holds every sentence against the truth of random studies."""

from __future__ import annotations

from dataclasses import replace

import pytest

from benchmarks._random_studies import BASELINE, TrueMetric, TrueStudy, draw_run
from benchmarks._sentence_claims import (
    UNKNOWN,
    Claim,
    answer_claims,
    effect_claims,
    quantity,
)
from benchmarks._sentence_truth import Truth
from benchmarks.sentence_simulations import simulate, table
from tare.analysis.effects.compare import compare
from tare.analysis.effects.comparison import Comparison
from tare.analysis.statistics.shares import exact_share
from tare.events.metric import Metric
from tare.report.page.verdicts import arm_sentences


def test_sentences_about_random_studies_are_true_and_all_are_understood() -> None:
    kinds, examples = simulate(40, first=50)
    assert not [each for each in examples if each.startswith(UNKNOWN)]
    # So small a sample shows only what is false far too often; `make simulations` shows the rest.
    shares = {k.name: exact_share(k.false, k.produced, 0.999) for k in kinds}
    assert not [k.name for k in kinds if shares[k.name].low > k.chance], table(kinds, 40)
    checked = [kind for kind in kinds if kind.chance == 0.05]
    produced, false = (sum(getattr(k, name) for k in checked) for name in ("produced", "false"))
    assert produced > 1000
    assert false <= 0.05 * produced
    for name in ("answer: slower", "effect: equivalent", "gate: holds", "ranking: places"):
        assert any(kind.name == name for kind in kinds), table(kinds, 40)


def study(cost: float, *, better: str = "lower") -> tuple[TrueStudy, Comparison]:
    metric = Metric("time", "s", better, "", "typical", True, resource="cpu")  # type: ignore[arg-type]
    true = TrueMetric(metric, "work", 1.0, 0.003, "normal", {"kvm": cost}, {})
    known = TrueStudy(3, (BASELINE, "kvm"), frozenset(), (true,), 12)
    return known, compare([draw_run(known)])


def claims(known: TrueStudy, comparison: Comparison, old: str, new: str) -> dict[str, bool]:
    """Return the claims of the only effect's sentence, changed in one place, by kind."""
    (effect,) = comparison.effects
    assert old in effect.sentence
    changed = replace(effect, sentence=effect.sentence.replace(old, new))
    found: dict[str, bool] = {}
    for claim in effect_claims(Truth(known, typical=True), changed):
        found[claim.kind] = found.get(claim.kind, True) and claim.true
    return found


@pytest.mark.parametrize("better", ["lower", "higher"])
def test_a_sentence_with_the_wrong_direction_is_found_false(better: str) -> None:
    known, comparison = study(1.2, better=better)
    assert claims(known, comparison, "is worse than", "is worse than")["effect: is worse than"]
    found = claims(known, comparison, "is worse than", "is better than")
    assert found["effect: is better than"] is False


def test_a_sentence_with_too_narrow_a_margin_is_found_false() -> None:
    known, comparison = study(1.01)
    assert claims(known, comparison, "± 2 %", "± 2 %")["effect: equivalent"]
    assert claims(known, comparison, "± 2 %", "± 0.5 %")["effect: equivalent"] is False


def test_a_sentence_that_leaves_too_few_slow_boots_open_is_found_false() -> None:
    known, comparison = study(1.0)
    slow = replace(known, metrics=(replace(known.metrics[0], slow={"kvm": (0.1, 3.0)}),))
    (kind,) = {k for k in claims(slow, comparison, "26 %", "26 %") if "slow boots" in k}
    assert claims(slow, comparison, "up to 26 %", "up to 26 %")[kind]
    assert claims(slow, comparison, "up to 26 %", "up to 5 %")[kind] is False


def test_a_sentence_that_no_pattern_knows_is_reported() -> None:
    known, comparison = study(1.2)
    assert claims(known, comparison, "is worse than", "outdoes") == {UNKNOWN: False}


def answers(known: TrueStudy, comparison: Comparison, text: str) -> list[Claim]:
    return list(answer_claims(Truth(known, typical=True), comparison, "kvm", text))


def test_answers_are_read_and_held_against_the_truth() -> None:
    known, comparison = study(1.2)
    (text,) = arm_sentences(comparison).values()
    assert [claim.true for claim in answers(known, comparison, text)] == [True]
    for false in (
        "CPU the same (within ±2 %).",
        "Faster: CPU 20 % less time.",
        "CPU: no difference larger than 15 %.",
        "Undecided: CPU (−3 % to +4 %).",
        "CPU is quite slow.",
    ):
        assert [claim.true for claim in answers(known, comparison, false)] == [False], false


def test_quantities_are_read_with_their_prefix_and_what_rounding_hides() -> None:
    assert quantity("-3.10 µs", "s") == pytest.approx((-3.1e-6, 5e-9))
    assert quantity("1,230", "1") == pytest.approx((1230.0, 5.0))
