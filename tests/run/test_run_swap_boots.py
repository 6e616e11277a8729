"""A boot of a computer is identified by its name, or by its start time."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tare.platforms.contract import Presence
from tare.run.sessions.boot_state import SAME_S, boot_words, canonical_boot

T0 = 1_800_000_000
drifts = st.lists(st.integers(-int(SAME_S), int(SAME_S)), max_size=20)


def boot_since(since: float, *before: str) -> str:
    return canonical_boot(boot_words([Presence(since=since)]), before)


def test_a_name_of_a_boot_is_taken_as_it_is() -> None:
    presences = [Presence(boot="b"), Presence(), Presence(boot="a", since=3.0), Presence(boot="b")]
    assert boot_words(presences) == ("b", "a")
    assert canonical_boot(boot_words(presences), ["c"]) == "a b"
    assert canonical_boot((), ["c"]) == ""


@given(drifts)
def test_slightly_different_start_time_is_the_same_boot(drifts: list[int]) -> None:
    first = boot_since(T0)
    before = [first]
    for drift in drifts:
        before.append(boot_since(T0 + drift, *before))
    assert set(before) == {first}


@given(st.floats(SAME_S + 1, 1e8), st.booleans())
def test_later_boot_is_another_boot(later: float, named: bool) -> None:
    first = boot_since(T0)
    assert boot_since(T0 + later, *([first, "since:1"] if named else [first])) != first


def test_arms_on_one_host_tell_one_boot() -> None:
    presences = [Presence(since=T0 + 1.4), Presence(since=T0), Presence(since=T0 + 0.6)]
    assert canonical_boot(boot_words(presences), ()) == f"since:{T0}"
    # With another host in the same boot, one that is rebooted makes another boot.
    both = [*presences, Presence(since=T0 + 500)]
    before = canonical_boot(boot_words(both), ())
    again = [*presences, Presence(since=T0 + 5000)]
    assert len(before.split()) == 2 and canonical_boot(boot_words(again), [before]) != before
    assert canonical_boot(reversed(boot_words(both)), [before]) == before
