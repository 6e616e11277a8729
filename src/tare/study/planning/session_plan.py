"""The order of sessions: A-B-B-A, so that linear drift affects both alike.

A *round* is one session of each boot; all sessions of a round measure the same blocks, each with
its own arms. Rounds go there and back: the second is the first in reverse order. With more than two
boots, each pair of rounds starts with another row of a Williams square.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import Field

from tare.study.model.forms import Slug
from tare.study.planning.arm_order import williams
from tare.study.planning.blocks import LEAST_BLOCKS, Blocks
from tare.study.reading.hosting import StudyPart
from tare.units import Duration

THERE_AND_BACK = 2
"""The number of rounds after which each boot was early and late equally often."""


LEAST_BOOTS = 2


class SessionBoot(StudyPart):
    """One way to boot the computer, and the arms that are measured then."""

    arms: list[Slug] = Field(
        min_length=1,
        description="The arms to measure in this boot; twins belong to the arm that they repeat.",
    )
    how: str = Field(
        "",
        max_length=200,
        description="How to boot the computer this way, in words for the operator: `from disk B`. "
        "Default: the name of the boot.",
    )
    takes: Duration = Field(
        600.0, ge=0, description="Time to boot it this way, for the estimate; with a unit."
    )


class Sessions(StudyPart):
    """One computer that is booted by hand in several ways in turn: disks, sticks, menu entries."""

    computer: str = Field(
        "the computer",
        min_length=1,
        max_length=100,
        description="The computer's name in instructions about what to boot.",
    )
    blocks: int = Field(
        2,
        ge=1,
        le=1000,
        description="Number of blocks to measure in a session, for each of its arms.",
    )
    boots: dict[Slug, SessionBoot] = Field(
        min_length=LEAST_BOOTS,
        description="The ways to boot it, by name. Two of them alternate as A-B-B-A.",
    )

    def way(self, boot: str) -> str:
        """Return how to boot the computer this way, in words."""
        return self.boots[boot].how or boot


@dataclass(frozen=True)
class Session:
    """One period with the computer booted in one way.

    Args:
        number: Its number in the planned order, from 1.
        round: Its round, from 1.
        boot: The name of the boot.
        first: The first of its blocks.
        last: The last of its blocks.
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
    """The sessions of a study, and how many of them are required.

    Args:
        sessions: All possible sessions, in the planned order.
        least: The number of rounds that are always measured.
        most: The number of rounds after which the run ends in any case.
    """

    sessions: tuple[Session, ...]
    least: int
    most: int

    def rounds_done(self, done: Collection[int]) -> int:
        """Return the number of complete rounds, counted from the first until one is incomplete.

        Args:
            done: The numbers of the finished sessions.
        """
        left = [each.round for each in self.sessions if each.number not in done]
        return min(left, default=self.most + 1) - 1

    def decided_at(self, rounds: int) -> bool:
        """Return whether to decide after this number of rounds if more follow."""
        back = (rounds - self.least) % THERE_AND_BACK == 0
        return rounds == self.most or (rounds >= self.least and back)

    def horizon(self, done: Collection[int]) -> int:
        """Return the last round whose sessions may be measured if the run continues.

        Sessions may be measured in another order than planned, but not sessions of rounds whose
        need is decided only later.
        """
        rounds = self.rounds_done(done)
        if rounds < self.least:
            return self.least
        back = (rounds - self.least) // THERE_AND_BACK + 1
        return min(self.least + back * THERE_AND_BACK, self.most)

    def left(self, done: Collection[int]) -> tuple[Session, ...]:
        """Return the sessions that may be measured now, in the planned order."""
        horizon = self.horizon(done)
        return tuple(
            each for each in self.sessions if each.number not in done and each.round <= horizon
        )

    def blocks_of(self, round_: int) -> range:
        """Return the blocks of a round."""
        return next(each.blocks for each in self.sessions if each.round == round_)

    def session(self, number: int) -> Session:
        """Return the session with a number, from 1."""
        return self.sessions[number - 1]


def agenda(sessions: Sessions, blocks: Blocks) -> Agenda:
    """Return a study's sessions.

    Args:
        sessions: How its computer is booted.
        blocks: The number of blocks of each arm; the last round has the rest of them.
    """
    most = -(-blocks.most // sessions.blocks)
    least = -(-blocks.least // sessions.blocks)
    # If a run stopped half-way, one boot would be early and the other late.
    least = min(least + least % THERE_AND_BACK, most)
    found: list[Session] = []
    for round_ in range(1, most + 1):
        first = (round_ - 1) * sessions.blocks + 1
        last = min(round_ * sessions.blocks, blocks.most)
        for boot in order_of(tuple(sessions.boots), round_):
            found.append(Session(len(found) + 1, round_, boot, first, last))
    return Agenda(tuple(found), least, most)


def order_of(boots: Sequence[str], round_: int) -> list[str]:
    """Return the order of boots in a round.

    Args:
        boots: The names of the boots, as in the study.
        round_: The round, from 1; an even round is the previous one in reverse order.
    """
    # The second half of an odd square is the first half reversed, like every second round; and the
    # two rows of a square of two are each other's reverse.
    rows = williams(len(boots))[: len(boots) if len(boots) > THERE_AND_BACK else 1]
    pair, back = divmod(round_ - 1, THERE_AND_BACK)
    row = rows[pair % len(rows)]
    return [boots[index] for index in (reversed(row) if back else row)]


def odd_rounds(sessions: Sessions, blocks: Blocks) -> list[str]:
    """Return a warning if a study's rounds do not go there and back."""
    planned = agenda(sessions, blocks)
    if planned.most % THERE_AND_BACK == 0:
        return []
    whole = sessions.blocks * THERE_AND_BACK
    return [
        f"at most {blocks.most} blocks, {sessions.blocks} a session, are {planned.most} rounds: "
        "drift does not cancel out after an odd number of rounds; make blocks.most a multiple of "
        f"{whole}"
    ]


def without_arms(data: Mapping[str, Any], left: Collection[str]) -> dict[str, Any]:
    """Return a study's plain data without some arms in its sessions.

    If all remaining arms belong to one boot, nothing is swapped, and the sessions are removed.

    Args:
        data: The study as written.
        left: The arms that were left out.
    """
    written = data.get("sessions")
    boots = written.get("boots") if isinstance(written, Mapping) else None
    if not isinstance(written, Mapping) or not isinstance(boots, Mapping) or not left:
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
    return {**data, "sessions": {**written, "boots": kept}}


def with_as_many(data: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a study's plain data with ``most`` blocks equal to ``least``, unless it sets ``most``.

    Somebody who swaps disks needs to know the number in advance.

    Args:
        data: The study's settings for all arms.
    """
    blocks = data.get("blocks", {})
    if data.get("sessions") is None or not isinstance(blocks, Mapping) or "most" in blocks:
        return data
    return {**data, "blocks": {**blocks, "most": blocks.get("least", LEAST_BLOCKS)}}
