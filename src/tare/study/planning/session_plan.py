"""Which session follows which: A-B-B-A, so that what drifts evenly is alike in both.

A *round* is one session of each boot; all measure the same blocks, each its own arms. The rounds go
there and back: the second is the first in reverse order. Of more than two boots each pair of rounds
begins with another row of a Williams square.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import Field

from tare.study.model.names import Slug
from tare.study.planning.blocks import LEAST_BLOCKS, Blocks
from tare.study.planning.order import williams
from tare.study.reading.hosting import Part
from tare.units import Duration

THERE_AND_BACK = 2
"""Rounds after which each boot was as early as late."""


LEAST_BOOTS = 2


class SessionBoot(Part):
    """One way the computer is booted, and the arms that are measured then."""

    arms: list[Slug] = Field(
        min_length=1,
        description="The arms that are measured while the computer is booted so; twins go with "
        "what they repeat.",
    )
    how: str = Field(
        "",
        max_length=200,
        description="How the computer is booted so, in words for whoever does it: `from disk B`; "
        "the name of the boot when left out.",
    )
    takes: Duration = Field(
        600.0, ge=0, description="How long it takes to boot it so, for the estimate; with a unit."
    )


class Sessions(Part):
    """How one computer is booted in turns, by hand: by other disks, sticks or menu entries."""

    computer: str = Field(
        "the computer",
        min_length=1,
        max_length=100,
        description="What the computer is called where Tare says what to boot.",
    )
    blocks: int = Field(
        2, ge=1, le=1000, description="Blocks of each of its arms that are measured in a session."
    )
    boots: dict[Slug, SessionBoot] = Field(
        min_length=LEAST_BOOTS,
        description="The ways it is booted, by name. Two of them come in turns as A-B-B-A.",
    )

    def way(self, boot: str) -> str:
        """Return how the computer is booted so, in words."""
        return self.boots[boot].how or boot


@dataclass(frozen=True)
class Session:
    """One time for which the computer is booted in one way.

    Args:
        number: In the order that is planned, from 1.
        round: Which round it is of, from 1.
        boot: The name of the boot.
        first: The first of its blocks.
        last: The last of them.
    """

    number: int
    round: int
    boot: str
    first: int
    last: int

    @property
    def blocks(self) -> range:
        """The numbers of its blocks."""
        return range(self.first, self.last + 1)


@dataclass(frozen=True)
class Agenda:
    """The sessions of a study, and how many of them must be.

    Args:
        sessions: All that there may be, in the order that is planned.
        least: The rounds that are always measured.
        most: The rounds after which the run ends in any case.
    """

    sessions: tuple[Session, ...]
    least: int
    most: int

    def rounds_done(self, done: Collection[int]) -> int:
        """Return how many rounds from the first on are whole.

        Args:
            done: The numbers of the sessions that are done.
        """
        left = [each.round for each in self.sessions if each.number not in done]
        return min(left, default=self.most + 1) - 1

    def decided_at(self, rounds: int) -> bool:
        """Return whether it is decided after so many rounds if others follow: there and back."""
        back = (rounds - self.least) % THERE_AND_BACK == 0
        return rounds == self.most or (rounds >= self.least and back)

    def horizon(self, done: Collection[int]) -> int:
        """Return the last round whose sessions may be measured, if the run goes on.

        Sessions may be measured in another order than is planned, but not those of rounds of which
        it is decided only later whether they are.
        """
        rounds = self.rounds_done(done)
        if rounds < self.least:
            return self.least
        back = (rounds - self.least) // THERE_AND_BACK + 1
        return min(self.least + back * THERE_AND_BACK, self.most)

    def left(self, done: Collection[int]) -> tuple[Session, ...]:
        """Return the sessions that may be measured now, in the order that is planned."""
        horizon = self.horizon(done)
        return tuple(
            each for each in self.sessions if each.number not in done and each.round <= horizon
        )

    def blocks_of(self, round_: int) -> range:
        """Return the blocks of a round."""
        return next(each.blocks for each in self.sessions if each.round == round_)

    def session(self, number: int) -> Session:
        """Return the session of a number, from 1."""
        return self.sessions[number - 1]


def agenda(sessions: Sessions, blocks: Blocks) -> Agenda:
    """Return a study's sessions.

    Args:
        sessions: How its computer is booted.
        blocks: How many blocks each arm has: the last round has what is left of them.
    """
    most = -(-blocks.most // sessions.blocks)
    least = -(-blocks.least // sessions.blocks)
    # Who stops half-way has one boot early and the other late.
    least = min(least + least % THERE_AND_BACK, most)
    found: list[Session] = []
    for round_ in range(1, most + 1):
        first = (round_ - 1) * sessions.blocks + 1
        last = min(round_ * sessions.blocks, blocks.most)
        for boot in order_of(tuple(sessions.boots), round_):
            found.append(Session(len(found) + 1, round_, boot, first, last))
    return Agenda(tuple(found), least, most)


def order_of(boots: Sequence[str], round_: int) -> list[str]:
    """Return in which order a computer is booted in a round.

    Args:
        boots: The names of the boots, as the study has them.
        round_: From 1; an even one is the one before it in reverse order.
    """
    # The further half of an odd square is the first half reversed, as every second round is; and
    # both rows of two are each other's reverse.
    rows = williams(len(boots))[: len(boots) if len(boots) > THERE_AND_BACK else 1]
    pair, back = divmod(round_ - 1, THERE_AND_BACK)
    row = rows[pair % len(rows)]
    return [boots[index] for index in (reversed(row) if back else row)]


def odd_rounds(sessions: Sessions, blocks: Blocks) -> list[str]:
    """Return a warning where a study's rounds do not go there and back."""
    planned = agenda(sessions, blocks)
    if planned.most % THERE_AND_BACK == 0:
        return []
    whole = sessions.blocks * THERE_AND_BACK
    return [
        f"at most {blocks.most} blocks, {sessions.blocks} a session, are "
        f"{planned.most} rounds: after an odd number of them what drifts does not cancel out; make "
        f"blocks.most a multiple of {whole}"
    ]


def without_arms(data: Mapping[str, Any], left: Collection[str]) -> dict[str, Any]:
    """Return a study's plain data whose sessions do not name the arms that were left out of it.

    Where all that remains is of one boot, nothing is to be swapped, and there are no sessions.

    Args:
        data: The study as written.
        left: The arms that were left out.
    """
    said = data.get("sessions")
    boots = said.get("boots") if isinstance(said, Mapping) else None
    if not isinstance(said, Mapping) or not isinstance(boots, Mapping) or not left:
        return dict(data)
    kept = {}
    for name, boot in boots.items():
        named = boot.get("arms") if isinstance(boot, Mapping) else None
        if not isinstance(named, list):
            kept[name] = boot
        elif there := [arm for arm in named if arm not in left]:
            kept[name] = {**boot, "arms": there}
    if len(kept) < LEAST_BOOTS <= len(boots):
        return {key: value for key, value in data.items() if key != "sessions"}
    return {**data, "sessions": {**said, "boots": kept}}


def with_as_many(data: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a study's plain data with as many blocks at most as at least, unless it says more.

    Whoever swaps disks wants to know beforehand how often.

    Args:
        data: What the study says for all arms.
    """
    blocks = data.get("blocks", {})
    if data.get("sessions") is None or not isinstance(blocks, Mapping) or "most" in blocks:
        return data
    return {**data, "blocks": {**blocks, "most": blocks.get("least", LEAST_BLOCKS)}}
