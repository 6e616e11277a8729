"""Roles placed on the host's CPUs: the subject, and the neighbours that load the host meanwhile."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, model_validator

from tare.study.model.shape import MOST_VCPUS, Memory, Vcpus, subject_vcpus
from tare.study.reading.hosting import Part
from tare.study.reading.study_path import Absolute
from tare.units import Rate, Size

MOST_SLAVES = 16
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
        "CPU of the host; `spare`: the shape's, as far as two CPUs of the host are left to others, "
        "such as a client and an origin, and one at least; the shape's when left out. Scenarios "
        "that differ only in this show what more CPUs bring: a machine is always compared with a "
        "baseline of as many.",
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
        description="Main memory of each, at least 32 MiB; the shape's when left out (hwang2013 "
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


class Cluster(Part):
    """Machines of the arm that work together as one cluster of Hadoop.

    The subject is its master: it names the files, gives out work, and submits the jobs.
    """

    external: Annotated[Absolute, Field(max_length=4096)] | None = Field(
        None,
        description="A cluster that exists already, by the folder of its configuration "
        "(`core-site.xml` and its kin) on the computer that Tare runs on: a whole path. Jobs are "
        "carried out there, as the user who runs Tare, and in a folder of HDFS that is removed "
        "afterwards. The subject is where their clients run; nothing else can be said beside it.",
    )
    slaves: int = Field(
        1, ge=1, le=MOST_SLAVES, description="How many machines hold data and run tasks."
    )
    master: Literal["apart", "with-first"] = Field(
        "apart",
        description="`apart`: the master has a machine of its own; `with-first`: the first slave's "
        "machine is the master's too.",
    )
    tasks: int = Field(
        2, ge=1, le=64, description="How many map or reduce tasks a slave runs at a time."
    )
    cpus: Literal["any", "own"] = Field(
        "any",
        description="`own`: each slave's vCPUs are bound to host CPUs, its own as far as there are "
        "enough; the subject must be pinned too. Slaves on other hosts than the arm's are not.",
    )
    placement: Literal["together", "apart"] | None = Field(
        None,
        description="`together`: all slaves on the arm's host; `apart`: on the study's hosts in "
        "turn, or on those in `hosts`. When left out: together, unless `hosts` are named.",
    )
    hosts: tuple[str, ...] = Field(
        (),
        description="The hosts that slaves run on, in turn: names out of `hosts` or of the user's "
        "hosts file; the arm's own when left out.",
    )
    vcpus: Annotated[int, Field(ge=1, le=MOST_VCPUS)] | None = Field(
        None,
        description="How many vCPUs a slave has, with `with-first` the subject too; the shape's "
        "when left out.",
    )
    memory: Memory | None = Field(
        None,
        description="A slave's main memory, with `with-first` the subject's too; the shape's when "
        "left out.",
    )
    replication: int = Field(
        3, ge=1, le=16, description="How many copies of each block are wanted where a job says "
        "nothing else; there are never more than slaves."
    )  # fmt: skip
    block: Size = Field(
        32 << 20, ge=1 << 20, description="Bytes of a block of HDFS, of which a map reads one."
    )
    sync: bool = Field(
        False,
        description="Whether a block is brought to the disk when it is complete; Hadoop leaves it "
        "to the page cache.",
    )
    slow_start: float = Field(
        1.0,
        ge=0,
        le=1,
        description="Which share of the maps must have ended before reduces begin; at 1 a slave "
        "runs maps *or* reduces. Hadoop's own default is 0.05.",
    )

    @model_validator(mode="after")
    def _together_is_on_one_host(self) -> Cluster:
        if self.hosts and self.placement == "together":
            raise ValueError("slaves on `hosts` are not together: write `placement: apart`")
        return self

    @model_validator(mode="after")
    def _external_is_as_it_is(self) -> Cluster:
        if self.external is not None and (more := sorted(self.model_fields_set - {"external"})):
            raise ValueError(f"an external cluster is as it is: remove `{more[0]}`")
        return self

    @property
    def begins_with_subject(self) -> bool:
        """Whether the subject is its first slave, and not only its master."""
        return self.external is None and self.master == "with-first"

    @property
    def roles(self) -> tuple[str, ...]:
        """The roles of its machines beside the subject."""
        if self.external is not None:
            return ()
        first = 2 if self.begins_with_subject else 1
        return tuple(f"slave-{number}" for number in range(first, self.slaves + 1))


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
    cluster: Cluster | None = Field(
        None,
        description="A cluster of Hadoop, made of the subject, which is its master, and of "
        "further machines: for workloads that are jobs on one.",
    )
    link: Annotated[Rate, Field(ge=1e5, le=1e12)] | None = Field(
        None,
        description="The speed of the link between the machines and what is outside of them, such "
        "as `1Gbit`, in each direction; as fast as the host can when left out. For workloads with "
        "a network: the peer and an origin are beyond it. Needs root.",
    )
    unpinned: bool = Field(
        False,
        description="Run the scenario with nothing bound to CPUs on platforms that cannot bind "
        "vCPUs, such as Hyper-V, and report that; otherwise it is skipped there. A host with one "
        "CPU needs no binding: there the scenario runs in either case.",
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
        if self.unpinned and any(cpus in ("same", "sibling") for _, cpus in named):
            raise ValueError(
                "without binding, a neighbour on the subject's core may run on any other one: "
                "remove `unpinned`"
            )
        if self.link is not None and (self.machines or self.cluster):
            raise ValueError(
                "a link is between machines and processes of the host; with `machines` or a "
                "`cluster` nothing is beyond it: remove `link`"
            )
        if self.cluster and self.cluster.cpus == "own" and self.subject.cpus == "any":
            raise ValueError(
                "slaves on CPUs of their own need a subject that stays in place; "
                "write `subject: {cpus: pinned}`, or `cpus: any` for them"
            )
        return self

    def vcpus_of(self, shape: int, host_cpus: int) -> int:
        """Return how many vCPUs a subject has in it, whose shape has so many."""
        cluster = self.cluster
        slave = cluster.vcpus if cluster is not None and cluster.begins_with_subject else None
        return subject_vcpus(self.subject.vcpus, slave, shape, host_cpus)

    @property
    def roles(self) -> frozenset[str]:
        """The roles of all machines beside the subject that a workload works with."""
        return frozenset((*self.machines, *(self.cluster.roles if self.cluster else ())))
