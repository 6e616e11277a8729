"""What tells one boot of a computer from another: a name of the boot, or since when it runs.

Both are words of one text. A time is not told twice to the second: clocks are set, and some makers
reckon it anew from how long the computer runs. So a time near one that was told before is that one.
"""

from __future__ import annotations

from collections.abc import Iterable

from tare.platforms.contract import Presence

SINCE = "since:"
SAME_S = 60.0
"""Nobody measures a session, boots the computer anew, and is up again, within so many seconds."""


def words_of(presences: Iterable[Presence]) -> tuple[str, ...]:
    """Return what computers that are there tell of their boots, each once."""
    found: dict[str, None] = {}
    for each in presences:
        if each.boot:
            found[each.boot] = None
        elif each.since is not None:
            found[f"{SINCE}{each.since:.0f}"] = None
    return tuple(found)


def told_as_before(words: Iterable[str], before: Iterable[str] = ()) -> str:
    """Return words as one text, with each time as it was told before.

    Args:
        words: What tells the boot now.
        before: What told boots before: texts of such words.
    """
    times = [word for text in before for word in text.split() if word.startswith(SINCE)]
    found = set()
    # In order, so that of two that are one now it is always the same that names both.
    for word in sorted(words):
        known = _nearest(word, times) if word.startswith(SINCE) else word
        times += [known] if known.startswith(SINCE) else []
        found.add(known)
    return " ".join(sorted(found))


def _nearest(word: str, times: Iterable[str]) -> str:
    """Return the known time that a time may be; itself where there is none."""
    away = {each: abs(_seconds(each) - _seconds(word)) for each in times}
    near = [each for each, seconds in away.items() if seconds <= SAME_S]
    return min(near, key=lambda each: away[each], default=word)


def _seconds(word: str) -> float:
    return float(word.removeprefix(SINCE))
