"""The options of every platform whose host schedules machines as a study requests."""

from __future__ import annotations

from typing import Any

from pydantic import (
    BaseModel,
    Field,
    SerializerFunctionWrapHandler,
    field_validator,
    model_serializer,
)

from tare.platforms.machine import SUBJECT, TRIAL
from tare.platforms.scheduling import NOTHING, Scheduling
from tare.study.model.platform_options import PlatformOptions


def subject_scheduling(description: str) -> Any:
    """Return the field ``scheduling`` with a platform's own description."""
    return Field(default_factory=lambda: NOTHING, description=description)


class ScheduledOptions(PlatformOptions):
    """Options for the scheduling of the subject, and of each of its neighbours."""

    scheduling: Scheduling = subject_scheduling(
        "How the host schedules the subject next to others; see `scheduling` below."
    )
    neighbour_scheduling: Scheduling = Field(
        default_factory=lambda: NOTHING,
        description="The same for each neighbour of the subject.",
    )

    @classmethod
    def within(cls, wanted: Scheduling) -> Scheduling:
        """Refuse settings that this platform's scheduler never supports.

        Raises:
            ValueError: A setting is not supported; the message says what to write instead.
        """
        return wanted

    @field_validator("scheduling", "neighbour_scheduling")
    @classmethod
    def _within(cls, wanted: Scheduling) -> Scheduling:
        return cls.within(wanted)

    @model_serializer(mode="wrap")
    def _omit_unset(self, usual: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Leave out settings that keep the host's default, so that a report shows what was set."""
        values: dict[str, Any] = usual(self)
        for name, group in self:
            if isinstance(group, BaseModel) and name in values:
                usually = {key: info.default for key, info in type(group).model_fields.items()}
                held, chosen = values.pop(name), dict(group)
                asked = {key: held[key] for key in held if chosen[key] != usually[key]}
                if asked:
                    values[name] = asked
        return values

    @property
    def subject_scheduling(self) -> Scheduling:
        """The scheduling of the subject."""
        return self.scheduling

    @property
    def neighbours_scheduling(self) -> Scheduling:
        """The scheduling of each neighbour."""
        return self.neighbour_scheduling

    def scheduling_of(self, role: str) -> Scheduling:
        """Return the scheduling of the machine with this role; a trial keeps the host's default."""
        if role == TRIAL:
            return NOTHING
        return self.scheduling if role == SUBJECT else self.neighbour_scheduling


def refused(wanted: Scheduling, unknown: tuple[str, ...], who: str) -> Scheduling:
    """Return the requested scheduling, unless the scheduler does not support it.

    Args:
        wanted: The scheduling that a study asks for.
        unknown: Settings that the scheduler lacks, by the names of :class:`Scheduling`.
        who: The scheduler, for messages: ``Xen's schedulers``.

    Raises:
        ValueError: A setting is not supported.
    """
    for name in unknown:
        if name in wanted.given:
            raise ValueError(f"`{name}` is not supported by {who}; remove it")
    return wanted
