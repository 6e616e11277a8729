"""The common base of events, roles of machines and hosts, and checks before a run."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict

Level = Literal["ok", "warn", "bad"]

SUBJECT = "subject"
"""The role of the machine that is measured."""
ARMS_HOST = "host"
"""The role of the arm's own host, whose counters are sampled in addition to the machines'."""


def host_role(name: str) -> str:
    """Return the role of a host; ``name`` is the study's name for it, empty for the arm's own."""
    return f"{ARMS_HOST}-{name}" if name else ARMS_HOST


def is_host(role: str) -> bool:
    """Return whether a role is that of a host, not of a machine."""
    return role == ARMS_HOST or role.startswith(f"{ARMS_HOST}-")


def host_named(role: str) -> str:
    """Return the study's name for the host with this role; empty for the arm's own host."""
    return role.removeprefix(ARMS_HOST).removeprefix("-")


class Base(BaseModel):
    """The base class of all events: immutable data."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, defer_build=True)


class Check(Base):
    """One pre-flight check of a host: the finding, and the advice."""

    name: str
    level: Level
    found: str
    hint: str = ""


class Calibration(Base):
    """One figure of the agent compared with a reference.

    ``own`` is the agent's figure and ``reference`` that of ``by``, both in ``unit``; either may be
    missing. ``level`` is ``ok`` if they agree, or if there is nothing to compare.
    """

    what: str
    unit: str = ""
    own: float | None = None
    reference: float | None = None
    by: str = ""
    level: Level
    found: str


class CpuNoise(Base):
    """The time that one CPU spent on anything but the program that reads its clock.

    The CPU was watched for ``watched_s`` and lost ``taken_s``, at most ``longest_s`` at once.
    ``hardware`` counts the gaps that the kernel cannot explain; the other fields count the kernel's
    own activities.
    """

    cpu: int
    watched_s: float = 0.0
    taken_s: float = 0.0
    longest_s: float = 0.0
    hardware: int = 0
    nmis: int = 0
    irqs: int = 0
    softirqs: int = 0
    threads: int = 0

    @property
    def share(self) -> float:
        """The share of the watched time that was lost."""
        return self.taken_s / self.watched_s if self.watched_s else 0.0
