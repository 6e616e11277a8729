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


def told_as_before(words: Iterable[str], before: Iterable[str]) -> str:
    """Return words as one text, with each time as it was told before.

    Args:
        words: What tells the boot now.
        before: What told boots before: texts of such words.
    """
    times = [word for text in before for word in text.split() if word.startswith(SINCE)]
    found = set()
    # The earliest first: of two of now that are one, either would do, but always the same.
    for word in sorted(words):
        if word.startswith(SINCE):
            near = [each for each in times if abs(_seconds(each) - _seconds(word)) <= SAME_S]
            # The one told last: who drifts does so from there.
            word = near[-1] if near else word
            times.append(word)
        found.add(word)
    return " ".join(sorted(found))


def _seconds(word: str) -> float:
    return float(word.removeprefix(SINCE))
