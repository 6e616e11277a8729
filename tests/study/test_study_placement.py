from __future__ import annotations

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tare.study.model.scenario import Scenario
from tare.study.planning.host_cpus import HostCpus
from tare.study.planning.placement import (
    ONLY_CPU,
    Placement,
    Unplaceable,
    place,
    with_ends,
)

ONE = HostCpus(online=(0,))
TWO = HostCpus(online=(0, 1))
FOUR = HostCpus(online=(0, 1, 2, 3))
SMT = HostCpus(
    online=tuple(range(8)),
    siblings={cpu: (cpu % 4, cpu % 4 + 4) for cpu in range(8)},
    nodes={cpu: cpu % 4 // 2 for cpu in range(8)},
)


def scenario(subject: str = "pinned", *neighbours: dict[str, object]) -> Scenario:
    return Scenario.model_validate({"subject": {"cpus": subject}, "neighbours": neighbours})


def placed(wanted: Scenario, cpus: HostCpus, vcpus: int = 1) -> Placement:
    return place(wanted, cpus, vcpus, True)


def test_an_unpinned_subject_runs_anywhere_even_where_nothing_can_be_pinned() -> None:
    assert place(scenario("any"), TWO, 1, False) == Placement()


def test_a_pinned_subject_leaves_the_first_cpu_free() -> None:
    assert placed(scenario(), TWO).subject == (1,)
    assert placed(scenario(), FOUR, 3).subject == (1, 2, 3)


def test_a_pinned_subject_that_takes_all_cpus_is_noted() -> None:
    assert "only CPU" in placed(scenario(), ONE).notes[0]
    assert "all 2 CPUs" in placed(scenario(), TWO, 2).notes[0]


def test_vcpus_get_cores_of_their_own_on_one_node() -> None:
    assert placed(scenario(), SMT, 2).subject == (6, 7)
    assert placed(scenario(), SMT, 3).subject == (5, 6, 7)


def test_sharing_cores_is_noted() -> None:
    placement = placed(scenario(), SMT, 6)
    assert 0 not in placement.subject
    assert "share a core" in placement.notes[0]


@pytest.mark.parametrize(
    ("where", "count", "cpus", "expected"),
    [
        ("same", 2, FOUR, [(3,), (3,)]),
        ("other", 2, FOUR, [(2, 1, 0), (1, 0, 2)]),
        ("other", 1, TWO, [(0,)]),
        ("sibling", 1, SMT, [(3,)]),
        ("other-node", 1, SMT, [(0, 1, 4, 5)]),
        ("any", 3, FOUR, [(), (), ()]),
    ],
)
def test_neighbours_run_where_they_are_wanted(
    where: str, count: int, cpus: HostCpus, expected: list[tuple[int, ...]]
) -> None:
    placement = placed(scenario("pinned", {"load": "x", "count": count, "cpus": where}), cpus)
    assert [neighbour.cpus for neighbour in placement.neighbours] == expected


def test_another_core_comes_before_the_subjects_own_sibling() -> None:
    pool = placed(scenario("pinned", {"load": "x", "cpus": "other"}), SMT).neighbours[0].cpus
    assert pool == (6, 5, 4, 2, 1, 0, 3)


@pytest.mark.parametrize(("cpus", "count"), [(ONE, 1), (TWO, 1), (FOUR, 3), (SMT, 7)])
def test_neighbours_fill_the_host_and_say_so(cpus: HostCpus, count: int) -> None:
    placement = placed(scenario("any", {"load": "x", "count": "fill"}), cpus)
    assert len(placement.neighbours) == count
    assert f"{count} x neighbour" in placement.notes[0]


def test_neighbours_that_must_share_are_noted() -> None:
    placement = placed(scenario("pinned", {"load": "x", "count": 3, "cpus": "other"}), TWO)
    assert placement.notes == ("3 x neighbours share 1 CPU",)


@pytest.mark.parametrize(
    ("where", "cpus", "reason"),
    [
        ("other", ONE, "a CPU other than the subject's; this host has 1 CPU"),
        ("sibling", FOUR, "second hardware thread"),
        ("other-node", FOUR, "second NUMA node"),
    ],
)
def test_missing_cpus_of_the_host_are_the_reason(where: str, cpus: HostCpus, reason: str) -> None:
    with pytest.raises(Unplaceable, match=reason):
        placed(scenario("pinned", {"load": "x", "cpus": where}), cpus)


def test_pinning_without_the_capability_or_the_cpus_is_unplaceable() -> None:
    with pytest.raises(Unplaceable, match="cannot do here"):
        place(scenario(), TWO, 1, False)
    with pytest.raises(Unplaceable, match="this host has 2"):
        placed(scenario(), TWO, 3)


@st.composite
def hosts(draw: st.DrawFn) -> HostCpus:
    cores = draw(st.integers(1, 8))
    threads = draw(st.integers(1, 2))
    nodes = draw(st.integers(1, 3))
    every = range(cores * threads)
    online = draw(st.sets(st.sampled_from(every), min_size=1))
    return HostCpus(
        online=tuple(sorted(online)),
        siblings={c: tuple(c % cores + cores * t for t in range(threads)) for c in every},
        nodes={c: c % cores % nodes for c in every},
    )


@given(
    hosts(),
    st.integers(1, 6),
    st.lists(
        st.tuples(
            st.sampled_from(["any", "same", "other", "sibling", "other-node"]),
            st.integers(1, 4) | st.just("fill"),
        ),
        max_size=3,
    ),
)
def test_roles_stay_on_usable_cpus_and_apart_where_wanted(
    cpus: HostCpus, vcpus: int, wanted: list[tuple[str, object]]
) -> None:
    neighbours = [{"load": where, "cpus": where, "count": count} for where, count in wanted]
    try:
        placement = placed(scenario("pinned", *neighbours), cpus, vcpus)
    except Unplaceable:
        assume(False)
    subject = set(placement.subject)
    assert len(subject) == len(placement.subject) == vcpus
    assert subject <= set(cpus.online)
    assert vcpus == len(cpus.online) or cpus.online[0] not in subject
    for neighbour in placement.neighbours:
        assert set(neighbour.cpus) <= set(cpus.online)
        if neighbour.load in ("other", "sibling", "other-node"):
            assert neighbour.cpus
            assert not set(neighbour.cpus) & subject
        if neighbour.load == "same":
            assert set(neighbour.cpus) == subject


def test_a_machine_on_another_host_is_not_placed_by_the_subject() -> None:
    apart = Scenario.model_validate({"machines": {"peer": {"on": "there", "memory": 64 << 20}}})
    (peer,) = place(apart, TWO, 1, True, "here").companions
    assert (peer.host, peer.cpus, peer.memory) == ("there", (), 64 << 20)
    (companion,) = place(apart, TWO, 1, True, "there").companions
    assert companion.host == ""
    pinned = {"subject": {"cpus": "pinned"}, "machines": {"peer": {"on": "there", "cpus": "other"}}}
    with pytest.raises(Unplaceable, match=r"on another host, there.*`cpus: any`"):
        place(Scenario.model_validate(pinned), TWO, 1, True, "here")


def test_a_link_is_placed_between_machines_and_processes_of_the_host() -> None:
    linked = Scenario.model_validate({"link": "1Gbit"})
    assert place(linked, TWO, 1, True).link == 1e9
    assert place(Scenario.model_validate({}), TWO, 1, True).link is None
    with pytest.raises(ValueError, match="nothing is behind it: remove `link`"):
        Scenario.model_validate({"link": "1Gbit", "machines": {"peer": {}}})
    with pytest.raises(ValueError, match="greater than or equal"):
        Scenario.model_validate({"link": "1kbit"})


def test_on_one_cpu_a_platform_that_cannot_bind_runs_what_is_bound() -> None:
    """This is fayyad2013's own way with Hyper-V: it switched off all other CPUs."""
    placement = place(scenario("pinned", {"load": "cpu-load", "cpus": "same"}), ONE, 1, False)
    assert placement.subject == () and not placement.unpinned
    assert [each.cpus for each in placement.neighbours] == [()]
    assert ONLY_CPU in placement.notes
    with pytest.raises(Unplaceable, match="needs 2 CPUs to bind 2 vCPUs"):
        place(scenario(), ONE, 2, False)


def test_a_scenario_runs_unpinned_only_where_it_says_so_and_nothing_can_be_bound() -> None:
    wanted = scenario("pinned", {"load": "cpu-load", "cpus": "other"})
    with pytest.raises(Unplaceable, match="needs vCPUs bound"):
        place(wanted, FOUR, 1, False)
    free = wanted.model_copy(update={"unpinned": True})
    placement = place(free, FOUR, 1, False)
    assert placement.unpinned and placement.subject == placement.neighbours[0].cpus == ()
    assert place(free, FOUR, 1, True) == place(wanted, FOUR, 1, True)
    with pytest.raises(ValueError, match="may run on any other one"):
        Scenario.model_validate(
            {
                "subject": {"cpus": "pinned"},
                "unpinned": True,
                "neighbours": [{"load": "cpu-load", "cpus": "same"}],
            }
        )


def ends_of(found: Placement) -> dict[str, tuple[int, ...]]:
    return {each.role: each.cpus for each in found.companions}


def test_ends_that_are_machines_get_cpus_of_their_own_next_to_a_pinned_subject() -> None:
    cpus = HostCpus(tuple(range(8)))
    alone = placed(scenario(), cpus)
    found = with_ends(alone, ("peer", "origin"), cpus, 2, can_pin=True)
    ends = ends_of(found)
    assert len({*found.subject, *ends["peer"], *ends["origin"]}) == 5
    (note,) = found.notes
    assert note == "peer and origin are machines too: no process reaches the arm's network"


def test_ends_share_what_a_pinned_subject_leaves_and_the_plan_says_so() -> None:
    cpus = HostCpus((0, 1))
    found = with_ends(placed(scenario(), cpus), ("peer", "origin"), cpus, 1, can_pin=True)
    assert ends_of(found) == {"peer": (0,), "origin": (0,)}
    assert found.notes[-1] == "peer and origin share 1 CPU"
    one = HostCpus((0,))
    found = with_ends(placed(scenario(), one), ("peer",), one, 1, can_pin=True)
    assert ends_of(found) == {"peer": ()}
    assert found.notes[-1] == "no CPU of its own is left for peer"


def test_ends_of_an_unpinned_subject_run_anywhere_and_those_of_the_scenario_stay() -> None:
    cpus = HostCpus((0, 1, 2, 3))
    wanted = Scenario.model_validate({"machines": {"peer": {"vcpus": 3}}})
    found = with_ends(placed(wanted, cpus), ("peer", "origin"), cpus, 1, can_pin=True)
    assert [(each.role, each.vcpus) for each in found.companions] == [("peer", 3), ("origin", None)]
    assert ends_of(found) == {"peer": (), "origin": ()}
    assert with_ends(found, ("peer",), cpus, 1, can_pin=True) == found
