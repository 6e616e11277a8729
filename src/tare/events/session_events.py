"""What happens in a study in sessions: the computer is booted one way, is measured, is swapped."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from tare.events.parts import Base


class SessionStarted(Base):
    """The computer is up in one way, and a session of those arms is measured, or gone on with.

    Its blocks are those from ``first`` to ``last``, of its own arms alone; sessions of all boots
    with the same ``round`` measure the same blocks. ``planned`` is the session that was next in the
    plan: another number says that what was up was measured instead. ``cells`` are how many each arm
    has in a block. ``host`` is the host as it was found. ``booted`` tells one boot of the computer
    from another, where it shows; empty where it does not.
    """

    type: Literal["session_started"] = "session_started"
    session: int
    boot: str
    round: int
    first: int
    last: int
    planned: int
    cells: dict[str, int]
    host: dict[str, Any] = Field(default_factory=dict)
    booted: str = ""


class SessionFinished(Base):
    """All blocks of a session have ended, as far as its arms go."""

    type: Literal["session_finished"] = "session_finished"
    session: int


class Waiting(Base):
    """Nothing that is up is left to be measured: the computer is to be booted as ``boot``.

    It is for the ``session`` that is next in the plan; ``swap`` says what to do.
    """

    type: Literal["waiting"] = "waiting"
    session: int
    boot: str
    swap: str
