"""The events of a study in sessions, in which one computer is booted in turns."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from tare.events.parts import Base


class SessionStarted(Base):
    """A boot of the computer is up, and the session of its arms is started or resumed.

    Its blocks are those from ``first`` to ``last``, with only its own arms; sessions of all boots
    with the same ``round`` measure the same blocks. ``planned`` is the session that was next in the
    plan: another number means that the boot that was up was measured instead. ``cells`` is the
    number of cells of each arm in a block. ``host`` has the host's facts. ``booted`` identifies the
    boot of the computer; empty if nothing identifies it.
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
    """All blocks of a session have ended for the session's arms."""

    type: Literal["session_finished"] = "session_finished"
    session: int


class Waiting(Base):
    """No boot that is up has anything left to measure: the user has to start ``boot``.

    The next session in the plan is ``session``; ``swap`` is the instruction to the user.
    """

    type: Literal["waiting"] = "waiting"
    session: int
    boot: str
    swap: str
