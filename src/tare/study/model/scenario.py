"""Roles placed on the host's CPUs: the subject, and the neighbours that load the host."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, model_validator

from tare.study.model.forms import Absolute
from tare.study.model.shape import MOST_VCPUS, Memory, Vcpus, subject_vcpus
from tare.study.reading.hosting import StudyPart
from tare.units import Rate, Size

MOST_SLAVES = 16
Where = Literal["any", "same", "other", "sibling", "other-node"]
"""Where a neighbour runs relative to the subject."""


class Subject(StudyPart):
    """The measured machine's CPUs."""

    cpus: Literal["any", "pinned"] = Field(
        "any",
        description="`any`: the host's scheduler places the vCPUs; `pinned`: each vCPU is pinned "
        "to a host CPU of its own.",
    )
    vcpus: Vcpus | None = Field(
        None,
        description="Number of vCPUs in this scenario, on every arm. `all`: one for each CPU of "
        "the host. `spare`: the shape's number, reduced so that two CPUs of the host stay free for "
        "others, such as a client and an origin; at least one. Default: the shape's number. A "
        "machine is always compared with a baseline of equally many vCPUs, so scenarios that "
        "differ only in this show the effect of more CPUs.",
    )


def _count(value: object) -> object:
    whole = isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= 1000
    if not whole and value != "fill":
        raise ValueError("must be a whole number from 1 to 1000, or `fill`")
    return value


class Neighbours(StudyPart):
    """Machines that load the host while the subject measures."""

    load: str = Field(
        description="The workload that they run, such as `cpu-load` (arithmetic that fits in the "
        "cache) or `memory-load` (copies of more data than all caches hold)."
    )
    count: Annotated[int | Literal["fill"], BeforeValidator(_count)] = Field(
        1,
        description="Number of machines; `fill`: one for each host CPU that the subject leaves "
        "free, at least one.",
    )
    cpus: Where = Field(
        "any",
        description="`same`: pinned to the subject's CPUs; `other`: to other CPUs; `sibling`: to "
        "the other hardware threads of the subject's cores; `other-node`: to another NUMA node; "
        "`any`: placed by the host's scheduler.",
    )
    memory: Memory | None = Field(
        None,
        description="Main memory of each, at least 32 MiB. Default: the shape's. (hwang2013 gives "
        "each neighbour half of the subject's.)",
    )
    parameters: dict[str, Any] = Field(
        default_factory=dict, description="The load's own parameters."
    )


class Companion(StudyPart):
    """An additional machine of the arm, which a workload uses."""

    cpus: Where = Field(
        "any", description="Where it runs relative to the subject, as for `neighbours`."
    )
    on: str | None = Field(
        None,
        description="The host that it runs on, from `hosts` or from the user's hosts file. "
        "Default: the arm's own. On another host no CPUs are chosen for it: use `cpus: any`.",
    )
    vcpus: Annotated[int, Field(ge=1, le=MOST_VCPUS)] | None = Field(
        None, description="Number of vCPUs. Default: the shape's."
    )
    memory: Memory | None = Field(
        None, description="Main memory, at least 32 MiB. Default: the shape's."
    )


class Cluster(StudyPart):
    """Machines of the arm that form one Hadoop cluster.

    The subject is its master: it holds the file names, schedules the work, and submits the jobs.
    """

    external: Annotated[Absolute, Field(max_length=4096)] | None = Field(
        None,
        description="An existing cluster, given as the absolute path of its configuration folder "
        "(with `core-site.xml` and the rest) on the computer that Tare runs on. Jobs run there as "
        "the user who runs Tare, in a folder of HDFS that is removed afterwards. The job clients "
        "run on the subject. No other key of `cluster` can be combined with it.",
    )
    slaves: int = Field(
        1, ge=1, le=MOST_SLAVES, description="Number of machines that hold data and run tasks."
    )
    master: Literal["apart", "with-first"] = Field(
        "apart",
        description="`apart`: the master has a machine of its own; `with-first`: it shares the "
        "first slave's machine.",
    )
    tasks: int = Field(
        2, ge=1, le=64, description="Number of map or reduce tasks that a slave runs at a time."
    )
    cpus: Literal["any", "own"] = Field(
        "any",
        description="`own`: each slave's vCPUs are pinned to host CPUs of its own, as far as there "
        "are enough; the subject must be pinned too. Slaves on other hosts than the arm's are not "
        "pinned.",
    )
    placement: Literal["together", "apart"] | None = Field(
        None,
        description="`together`: all slaves on the arm's host; `apart`: on the study's hosts in "
        "turn, or on those in `hosts`. Default: `together`, unless `hosts` is given.",
    )
    hosts: tuple[str, ...] = Field(
        (),
        description="The hosts that slaves run on, in turn: names from `hosts` or from the user's "
        "hosts file. Default: the arm's own.",
    )
    vcpus: Annotated[int, Field(ge=1, le=MOST_VCPUS)] | None = Field(
        None,
        description="Number of vCPUs of a slave; with `with-first` also of the subject. Default: "
        "the shape's.",
    )
    memory: Memory | None = Field(
        None,
        description="Main memory of a slave; with `with-first` also of the subject. Default: the "
        "shape's.",
    )
    replication: int = Field(
        3, ge=1, le=16, description="Number of copies of each block, unless a job sets its own; "
        "never more than there are slaves."
    )  # fmt: skip
    block: Size = Field(
        32 << 20, ge=1 << 20, description="Size of an HDFS block in bytes; one map reads one block."
    )
    sync: bool = Field(
        False,
        description="Write each block to the disk when it is complete. Hadoop leaves it to the "
        "page cache.",
    )
    slow_start: float = Field(
        1.0,
        ge=0,
        le=1,
        description="Share of the maps that must have ended before reduces start; at 1 a slave "
        "runs maps *or* reduces. Hadoop's own default is 0.05.",
    )

    @model_validator(mode="after")
    def _check_placement(self) -> Cluster:
        if self.hosts and self.placement == "together":
            raise ValueError("`hosts` spreads the slaves: write `placement: apart`")
        return self

    @model_validator(mode="after")
    def _external_has_no_other_keys(self) -> Cluster:
        if self.external is not None and (more := sorted(self.model_fields_set - {"external"})):
            raise ValueError(f"Tare cannot change an external cluster: remove `{more[0]}`")
        return self

    @property
    def begins_with_subject(self) -> bool:
        """Whether the subject is also its first slave."""
        return self.external is None and self.master == "with-first"

    @property
    def roles(self) -> tuple[str, ...]:
        """The roles of its machines other than the subject."""
        if self.external is not None:
            return ()
        first = 2 if self.begins_with_subject else 1
        return tuple(f"slave-{number}" for number in range(first, self.slaves + 1))


class Scenario(StudyPart):
    """Roles placed on the host's CPUs."""

    summary: str = Field("", description="The scenario's purpose, shown in the report.")
    subject: Subject = Field(
        default_factory=lambda: Subject.model_validate({}),
        description="The measured machine's CPUs.",
    )
    neighbours: tuple[Neighbours, ...] = Field(
        (), description="Machines that load the host during the measurement."
    )
    machines: dict[str, Companion] = Field(
        default_factory=dict,
        description="Additional machines of the arm, by the role that a workload has for them. "
        "`peer` is the other end of a network workload; without it, that end is a process on the "
        "host.",
    )
    cluster: Cluster | None = Field(
        None,
        description="A Hadoop cluster, consisting of the subject as its master and of additional "
        "machines, for workloads that are jobs on a cluster.",
    )
    link: Annotated[Rate, Field(ge=1e5, le=1e12)] | None = Field(
        None,
        description="Speed limit of the link between the machines and the outside, in each "
        "direction, such as `1Gbit`. Default: no limit. For workloads with a network: the peer and "
        "an origin are behind the link. Requires root.",
    )
    unpinned: bool = Field(
        False,
        description="Run the scenario with nothing bound to CPUs on platforms that cannot bind "
        "vCPUs, such as Hyper-V, and report that; otherwise it is skipped there. A host with one "
        "CPU needs no binding: there the scenario runs in either case.",
    )
    host_trace: bool | None = Field(
        None,
        description="Record the host's scheduling and interrupts while `tick` measures, to name "
        "the cause of each gap. Default: on if there are neighbours. An arm's own `host-trace` "
        "takes precedence.",
    )

    @model_validator(mode="after")
    def _placed_relative_to_something(self) -> Scenario:
        named = [("a neighbour", each.cpus) for each in self.neighbours]
        named += [(f"the machine {role}", each.cpus) for role, each in self.machines.items()]
        for who, cpus in named:
            if cpus != "any" and self.subject.cpus == "any":
                raise ValueError(
                    f"{who} on {cpus!r} CPUs needs a pinned subject; write `subject: {{cpus: "
                    f"pinned}}`, or `cpus: any` for it"
                )
        if self.unpinned and any(cpus in ("same", "sibling") for _, cpus in named):
            raise ValueError(
                "without binding, a neighbour on the subject's core may run on any other one: "
                "remove `unpinned`"
            )
        if self.link is not None and (self.machines or self.cluster):
            raise ValueError(
                "a link connects machines with processes of the host; with `machines` or a "
                "`cluster` nothing is behind it: remove `link`"
            )
        if self.cluster and self.cluster.cpus == "own" and self.subject.cpus == "any":
            raise ValueError(
                "slaves on CPUs of their own need a pinned subject; write `subject: "
                "{cpus: pinned}`, or `cpus: any` for them"
            )
        return self

    def vcpus_of(self, shape: int, host_cpus: int) -> int:
        """Return a subject's number of vCPUs in this scenario, given its shape's number."""
        cluster = self.cluster
        slave = cluster.vcpus if cluster is not None and cluster.begins_with_subject else None
        return subject_vcpus(self.subject.vcpus, slave, shape, host_cpus)

    @property
    def roles(self) -> frozenset[str]:
        """The roles of all machines that a workload uses, other than the subject."""
        return frozenset((*self.machines, *(self.cluster.roles if self.cluster else ())))
