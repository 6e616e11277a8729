"""Roles placed on the host's CPUs: the subject, and the neighbours that load the host meanwhile."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, model_validator

from tare.study.hosting import Part
from tare.study.shape import MOST_VCPUS, Memory, Vcpus

Where = Literal["any", "same", "other", "sibling", "other-node"]
"""Where a neighbour runs, seen from the subject."""


class Subject(Part):
    """Where the measured machine runs, and on how many CPUs."""

    cpus: Literal["any", "pinned"] = Field(
        "any",
        description="`any`: the host's scheduler places the vCPUs; `pinned`: each vCPU is bound "
        "to a host CPU of its own.",
    )
    vcpus: Vcpus | None = Field(
        None,
        description="How many vCPUs it has in this scenario, on every arm; `all`: one for each "
        "CPU of the host; the shape's when left out. Scenarios that differ only in this show what "
        "more CPUs bring: a machine is always compared with a baseline of as many.",
    )


def _count(value: object) -> object:
    whole = isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= 1000
    if not whole and value != "fill":
        raise ValueError("must be a whole number from 1 to 1000, or `fill`")
    return value


class Neighbours(Part):
    """Machines that load the host while the subject measures."""

    load: str = Field(
        description="The workload they run, such as `cpu-load` (arithmetic that fits in cache) "
        "or `memory-load` (copying more than all caches hold)."
    )
    count: Annotated[int | Literal["fill"], BeforeValidator(_count)] = Field(
        1,
        description="How many machines; `fill` is one for each host CPU that the subject leaves "
        "free, and at least one.",
    )
    cpus: Where = Field(
        "any",
        description="`same`: bound to the subject's CPUs; `other`: to other CPUs; `sibling`: to "
        "the other hardware threads of the subject's cores; `other-node`: to another NUMA "
        "node; `any`: wherever the host's scheduler puts them.",
    )
    memory: Memory | None = Field(
        None,
        description="Main memory of each, at least 32 MiB; the shape's when left out (seed 002 "
        "gives neighbours half of what the subject has).",
    )
    parameters: dict[str, Any] = Field(
        default_factory=dict, description="The load's own parameters."
    )


class Companion(Part):
    """A further machine of the arm, which a workload works with."""

    cpus: Where = Field(
        "any", description="Where it runs, seen from the subject, as for `neighbours`."
    )
    on: str | None = Field(
        None,
        description="The host that it runs on, out of `hosts` or of the user's hosts file; the "
        "arm's own when left out. On another host no CPUs are chosen for it: `cpus: any`.",
    )
    vcpus: Annotated[int, Field(ge=1, le=MOST_VCPUS)] | None = Field(
        None, description="How many vCPUs it has; the shape's when left out."
    )
    memory: Memory | None = Field(
        None, description="Its main memory, at least 32 MiB; the shape's when left out."
    )


class Scenario(Part):
    """Roles placed on the host's CPUs."""

    summary: str = Field("", description="What the scenario is for, shown in the report.")
    subject: Subject = Field(
        default_factory=lambda: Subject.model_validate({}),
        description="Where the measured machine runs.",
    )
    neighbours: tuple[Neighbours, ...] = Field(
        (), description="Machines that load the host meanwhile."
    )
    machines: dict[str, Companion] = Field(
        default_factory=dict,
        description="Further machines of the arm, by the role that a workload has for them: "
        "`peer` is the other end of a network workload, which is a process of the host where this "
        "is left out.",
    )
    host_trace: bool | None = Field(
        None,
        description="Whether the host's scheduling and interrupts are recorded while `tick` "
        "measures, to name the cause of each gap. When left out: where there are neighbours. "
        "An arm's own `host-trace` goes first.",
    )

    @model_validator(mode="after")
    def _placed_relative_to_something(self) -> Scenario:
        named = [("a neighbour", each.cpus) for each in self.neighbours]
        named += [(f"the machine {role}", each.cpus) for role, each in self.machines.items()]
        for who, cpus in named:
            if cpus != "any" and self.subject.cpus == "any":
                raise ValueError(
                    f"{who} on {cpus!r} CPUs needs a subject that stays in place; "
                    "write `subject: {cpus: pinned}`, or `cpus: any` for it"
                )
        return self
