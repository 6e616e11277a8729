"""A boot of a computer is told from another by its name, or by since when it runs."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tare.platforms.contract import Presence
from tare.run.sessions.boots import SAME_S, told_as_before, words_of

T0 = 1_800_000_000
drifts = st.lists(st.integers(-int(SAME_S), int(SAME_S)), max_size=20)


def told(since: float, *before: str) -> str:
    return told_as_before(words_of([Presence(since=since)]), before)


def test_a_name_of_a_boot_is_taken_as_it_is() -> None:
    presences = [Presence(boot="b"), Presence(), Presence(boot="a", since=3.0), Presence(boot="b")]
    assert words_of(presences) == ("b", "a")
    assert told_as_before(words_of(presences), ["c"]) == "a b"
    assert told_as_before((), ["c"]) == ""


@given(drifts)
def test_a_time_that_is_told_anew_a_little_off_is_the_same_boot(drifts: list[int]) -> None:
    first = told(T0)
    before = [first]
    for drift in drifts:
        before.append(told(T0 + drift, *before))
    assert set(before) == {first}


@given(st.floats(SAME_S + 1, 1e8), st.booleans())
def test_a_computer_that_was_booted_later_is_told_apart(later: float, named: bool) -> None:
    first = told(T0)
    assert told(T0 + later, *([first, "since:1"] if named else [first])) != first


def test_arms_on_one_host_tell_one_boot() -> None:
    presences = [Presence(since=T0 + 1.4), Presence(since=T0), Presence(since=T0 + 0.6)]
    assert told_as_before(words_of(presences), ()) == f"since:{T0}"
    # And with another host in the same boot, one that is booted anew tells them apart.
    both = [*presences, Presence(since=T0 + 500)]
    before = told_as_before(words_of(both), ())
    anew = [*presences, Presence(since=T0 + 5000)]
    assert len(before.split()) == 2 and told_as_before(words_of(anew), [before]) != before
    assert told_as_before(reversed(words_of(both)), [before]) == before
