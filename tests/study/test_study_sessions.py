"""Sessions: their keys in a study, and their order."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from study.study_catalog import ABLE, CATALOG, KINDS
from study.test_study_plan import TWO_CPUS
from tare.study.model.sessions import boot_of, part_of, plan_in
from tare.study.model.study import Study
from tare.study.planning.blocks import LEAST_BLOCKS, Blocks
from tare.study.planning.plan import HostFacts, make_plan
from tare.study.planning.session_plan import THERE_AND_BACK, Agenda, Session, Sessions, agenda
from tare.study.reading.changes import Changes
from tare.study.reading.hosts_file import KnownHosts
from tare.study.reading.load import parse_study, restore_study
from tare.study.reading.yamltext import StudyError

HOSTS = KnownHosts(Path("hosts.yaml"))
STUDY = """\
study: swapped
baseline: bare
blocks: {least: 4}
arms:
  bare: {platform: bare}
  bare-again: {twin-of: bare}
  pv: {platform: qemu}
  em: {platform: qemu, devices: emulated}
sessions:
  boots:
    metal: {arms: [bare]}
    kvm: {arms: [pv, em], how: from disk B}
workloads: {tick: {}, switch: {}}
"""


def read(text: str = STUDY, arms: tuple[str, ...] = ()) -> Study:
    return parse_study(text.encode(), "s.yaml", CATALOG, Changes(arms=arms), HOSTS)


def refused(before: str, after: str) -> str:
    assert before in STUDY
    with pytest.raises(StudyError) as caught:
        read(STUDY.replace(before, after))
    return caught.value.message


def planned(boots: int, blocks: int, least: int, most: int) -> Agenda:
    named = {f"boot-{number}": {"arms": [f"arm-{number}"]} for number in range(boots)}
    sessions = Sessions.model_validate({"blocks": blocks, "boots": named})
    return agenda(sessions, Blocks.model_validate({"least": least, "most": most}))


@pytest.mark.parametrize(
    ("before", "after", "says"),
    [
        ("[pv, em]", "[pv, en]", "s.yaml:12:22: sessions.boots.kvm.arms[1]: there is no arm 'en'"),
        ("[pv, em]", "[pv]", "s.yaml:8:7: arms.em: is not in any session: add it to"),
        ("[pv, em]", "[pv, em, bare]", "bare already belongs to the boot metal: name it once"),
        ("[pv, em]", "[pv, em, pv]", "pv is listed twice: name it once"),
        ("[pv, em]", "[pv, em, bare-again]", "bare-again is a twin of bare, which is in the boot"),
        ("[pv, em]", "[]", "s.yaml:12:17: sessions.boots.kvm.arms: must not be empty"),
        ("    metal: {arms: [bare]}\n", "", "sessions.boots: must have 2 entries or more"),
        ("  boots:", "  blocks: 0\n  boots:", "s.yaml:10:11: sessions.blocks: must be at least 1"),
        ("  boots:", "  boot: x\n  boots:", "sessions.boot: unknown key; did you mean 'boots'?"),
        ("how: from disk B", "hwo: x", "sessions.boots.kvm.hwo: unknown key; did you mean 'how'?"),
        ("{least: 4}", "{duet: true}", "s.yaml:3:16: blocks.duet: `duet` runs two arms at once"),
        (
            "{least: 4}",
            "{turns: true}",
            "s.yaml:3:17: blocks.turns: `turns` runs two arms at once",
        ),
        ("{least: 4}", "{method: pilot}", "blocks.method: `pilot` compares single blocks"),
        ("{least: 4}", "{least: 4}\nspread: split", "spread: sessions use one computer"),
    ],
)
def test_fault_is_reported_with_its_place_and_a_remedy(before: str, after: str, says: str) -> None:
    assert says in refused(before, after)


def test_a_twin_goes_with_what_it_repeats_and_a_stored_study_is_the_same() -> None:
    study = read()
    assert [boot_of(study, arm) for arm in study.arms] == ["metal", "metal", "kvm", "kvm"]
    assert restore_study(study.model_dump(mode="json"), CATALOG) == study
    assert study.sessions is not None
    assert (study.sessions.way("metal"), study.sessions.way("kvm")) == ("metal", "from disk B")


def test_as_many_blocks_are_planned_as_are_asked_for_unless_more_are() -> None:
    assert read().blocks.most == 4
    assert read(STUDY.replace("{least: 4}", "{least: 4, most: 8}")).blocks.most == 8
    assert read(STUDY.replace("blocks: {least: 4}\n", "")).blocks.most == LEAST_BLOCKS


def test_an_odd_number_of_rounds_is_warned_of() -> None:
    odd = read(STUDY.replace("{least: 4}", "{least: 5}"))
    assert any("make blocks.most a multiple of 4" in warning for warning in odd.warnings)
    assert not any("multiple" in warning for warning in read().warnings)


def test_sessions_do_not_mention_arms_that_are_left_out() -> None:
    fewer = read(arms=("pv",)).sessions
    assert fewer is not None
    assert [boot.arms for boot in fewer.boots.values()] == [["bare"], ["pv"]]
    assert read(arms=("bare-again",)).sessions is None


def test_a_part_has_the_arms_of_one_boot_and_the_hosts_that_are_there_then() -> None:
    hosts = "hosts: {a: {ssh: a.example}, b: {ssh: b.example}}\narms:"
    study = read(
        STUDY.replace("arms:", hosts, 1)
        .replace("{platform: bare}", "{platform: bare, on: a}")
        .replace("{platform: qemu", "{platform: qemu, on: b")
    )
    assert list(study.arms) == ["bare", "bare-again", "pv", "em"]
    metal, kvm = part_of(study, "metal"), part_of(study, "kvm")
    assert (list(metal.arms), list(metal.computers)) == (["bare", "bare-again"], ["a"])
    assert (list(kvm.arms), list(kvm.computers)) == (["pv", "em"], ["b"])
    assert kvm.own_baselines == {}


def test_each_boot_is_planned_independently_of_the_others() -> None:
    study = read()
    hosts, facts = {"": HostFacts(TWO_CPUS)}, dict.fromkeys(study.arms, ABLE)
    whole = make_plan(study, 7, facts, hosts, KINDS)
    for boot in ("metal", "kvm"):
        part = part_of(study, boot)
        alone = make_plan(part, 7, {name: facts[name] for name in part.arms}, hosts, KINDS)
        for block in range(1, 9):
            assert alone.block(block) == plan_in(whole, study, boot).block(block)


def test_two_boots_come_in_turns_there_and_back() -> None:
    boots = [session.boot[-1] for session in planned(2, 2, 8, 8).sessions]
    assert "".join(boots) == "01100110"


many = st.integers(2, 5), st.integers(1, 4), st.integers(2, 20), st.integers(0, 20)


@given(*many)
def test_every_arm_has_each_block_once_and_drift_is_alike_for_all(
    boots: int, blocks: int, least: int, more: int
) -> None:
    most = least + more
    found = planned(boots, blocks, least, most)
    assert [each.number for each in found.sessions] == list(range(1, len(found.sessions) + 1))
    for boot in {each.boot for each in found.sessions}:
        own = [block for each in found.sessions if each.boot == boot for block in each.blocks]
        assert own == list(range(1, most + 1))
    for round_ in range(1, found.most + 1):
        of = [each for each in found.sessions if each.round == round_]
        assert len({each.boot for each in of}) == len(of) == boots
        assert len({each.blocks for each in of}) == 1 and len(of[0].blocks) <= blocks
    whole = found.most - found.most % THERE_AND_BACK
    places = Counter[str]()
    for each in found.sessions[: whole * boots]:
        places[each.boot] += each.number
    assert len(set(places.values())) <= 1
    assert min(least, most) <= found.blocks_of(found.least)[-1]
    assert found.least % THERE_AND_BACK == 0 or found.least == found.most


@given(st.integers(3, 6))
def test_with_several_boots_each_follows_each_other_equally_often(boots: int) -> None:
    found = planned(boots, 1, 2 * boots, 2 * boots).sessions
    rounds = [found[at : at + boots] for at in range(0, len(found), boots)]
    after = Counter((a.boot, b.boot) for each in rounds for a, b in pairwise(each))
    assert max(after.values()) - min(after.values()) <= 2
    places = Counter((each.boot, place) for of in rounds for place, each in enumerate(of))
    assert len(set(places.values())) == 1


@given(*many, st.randoms(use_true_random=False))
def test_all_required_sessions_are_measured_in_any_order_of_boots(
    boots: int, blocks: int, least: int, more: int, draw: st.DataObject
) -> None:
    found = planned(boots, blocks, least, least + more)
    done: list[Session] = []
    while left := found.left([each.number for each in done]):
        up = draw.choice([each.boot for each in left])  # type: ignore[attr-defined]
        done.append(next(each for each in left if each.boot == up))
        numbers = [each.number for each in done]
        # Nothing of later rounds: whether they are measured is not decided yet.
        rounds = found.rounds_done(numbers)
        beyond = [each for each in done if each.round > max(found.least, rounds + THERE_AND_BACK)]
        assert not beyond
    assert sorted(done, key=lambda each: each.number) == list(found.sessions)


def test_runs_are_decided_only_after_whole_turns() -> None:
    found = planned(2, 2, 6, 14)
    assert (found.least, found.most) == (4, 7)
    assert [rounds for rounds in range(1, 8) if found.decided_at(rounds)] == [4, 6, 7]
    assert found.horizon([]) == 4
    assert found.horizon(range(1, 9)) == 6
    assert found.horizon(range(1, 13)) == 7
