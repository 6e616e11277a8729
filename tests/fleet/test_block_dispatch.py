"""Every block is measured once, by whom it may be, whatever becomes of the hosts."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tare.fleet.assignment import Deal, Lockstep, Way, blocks_in_all

WAYS = st.sampled_from(["replicate", "split"])


@given(how=WAYS, hosts=st.integers(1, 5), most=st.integers(1, 12), seed=st.integers(0, 2**32))
def test_every_block_is_done_once_though_hosts_lose_theirs(
    how: Way, hosts: int, most: int, seed: int
) -> None:
    draw = random.Random(seed)
    names = [f"h{number}" for number in range(hosts)]
    deal = Deal(how, names, most)
    done: dict[int, str] = {}
    at: dict[str, int] = {}
    while not deal.idle:
        host = draw.choice(names)
        if host not in at:
            block = deal.take(host)
            if block is not None:
                at[host] = block
        elif draw.random() < 0.3:
            assert deal.give_back(host) == (at.pop(host),)
        else:
            block = at.pop(host)
            assert block not in done
            done[block] = host
            deal.done(block, host)
    assert sorted(done) == list(range(1, blocks_in_all(how, hosts, most) + 1))
    if how == "replicate":
        assert all(deal.owner(block) == host for block, host in done.items())
        assert {host: list(done.values()).count(host) for host in names} == dict.fromkeys(
            names, most
        )


def test_finished_blocks_are_not_dispatched_again() -> None:
    deal = Deal("split", ["a", "b"], 4, finished=[1, 3])
    assert [deal.take("b"), deal.take("a"), deal.take("a")] == [2, 4, None]


def test_a_block_that_was_begun_is_kept_for_its_host_until_that_is_given_up() -> None:
    deal = Deal("split", ["a", "b"], 3)
    assert (deal.take("a"), deal.take("b")) == (1, 2)
    deal.done(2, "b")
    assert deal.give_back("a") == (1,)
    assert deal.take("b") == 3
    deal.done(3, "b")
    # There may still be a block for the other, so its session continues.
    assert deal.take("b") is None and deal.awaits("b") and not deal.idle
    assert deal.take("a") == 1 and not deal.awaits("b")
    assert deal.give_back("a") == (1,) and deal.give_up("a") == ()
    assert deal.take("b") == 1


def test_resumed_run_keeps_blocks_for_their_hosts() -> None:
    begun = {1: "a", 2: "b", 3: "z"}
    deal = Deal("split", ["a", "b"], 4, {1}, begun)
    assert [deal.take("a"), deal.take("b"), deal.take("a")] == [3, 2, 4]
    own = Deal("replicate", ["a", "b"], 1, (), {1: "a"})
    assert own.take("b") == 2 and own.take("b") is None and not own.awaits("b")


def test_the_blocks_of_a_host_that_stays_away_go_to_others_only_where_they_are_shared() -> None:
    shared, own = Deal("split", ["a", "b"], 2), Deal("replicate", ["a", "b"], 2)
    assert shared.take("a") == 1 and own.take("a") == 1
    assert shared.give_up("a") == () and own.give_up("a") == (1, 3)
    assert shared.take("b") == 1 and own.take("b") == 2


@pytest.mark.parametrize("how", ["replicate", "split"])
def test_nothing_is_dealt_out_once_it_is_closed_but_what_is_out_is_waited_for(how: Way) -> None:
    deal = Deal(how, ["a"], 3)
    assert deal.take("a") == 1
    deal.close()
    assert deal.take("a") is None and not deal.idle
    deal.done(1, "a")
    assert deal.idle


@given(hosts=st.integers(1, 4), most=st.integers(1, 8), seed=st.integers(0, 2**32))
def test_hosts_with_arms_of_their_own_go_through_the_blocks_together(
    hosts: int, most: int, seed: int
) -> None:
    draw = random.Random(seed)
    names = [f"h{number}" for number in range(hosts)]
    deal = Lockstep(names, most, {1: {"h0"}})
    done = {("h0", 1)}
    at: dict[str, int] = {}
    while not deal.idle:
        host = draw.choice(names)
        if host not in at:
            block = deal.take(host)
            if block is None:
                assert deal.awaits(host) == ((host, most) not in done)
                continue
            assert all((each, block - 1) in done for each in names) or block == 1
            at[host] = block
        elif draw.random() < 0.3:
            assert deal.give_back(host) == (at.pop(host),)
        else:
            block = at.pop(host)
            deal.done(block, host)
            done.add((host, block))
            assert deal.whole(block) == all((each, block) in done for each in names)
    assert done == {(host, block) for host in names for block in range(1, most + 1)}


def test_absent_host_lets_the_others_continue_the_block() -> None:
    deal = Lockstep(["a", "b"], 2)
    assert (deal.take("a"), deal.take("b")) == (1, 1)
    deal.done(1, "a")
    assert deal.take("a") is None and deal.awaits("a") and not deal.whole(1)
    assert deal.give_up("b") == (1, 2)
    assert deal.whole(1) and deal.take("a") == 2 and deal.take("b") is None
