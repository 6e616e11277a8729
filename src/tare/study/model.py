"""The model of a study: what to measure, on what, how often, and how sure to become.

Keys are written in kebab-case in YAML (``twin-of``) and in snake_case here (``twin_of``).
Platforms' options and workloads' parameters are typed by the :class:`Catalog`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path as FilePath
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    Field,
    InstanceOf,
    SerializeAsAny,
    computed_field,
    model_validator,
)

from tare.study.hosting import HostSpec, LabSpec, Part
from tare.study.quantities import Duration, Size, format_size

LEAST_MEMORY = 32 << 20
"""Bytes; below this no Linux kernel with an initramfs boots anywhere."""
LEAST_DISK = 32 << 20
"""Bytes; an ext4 of less has no room for its journal and anything else."""
MOST_VCPUS = 4096
FEWEST_BLOCKS_FOR_A_TEST = 8
"""A block-paired permutation test over fewer blocks cannot reach p < 0.01 (2/2^8 = 0.0078)."""

Slug = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9._-]{0,39}$")]
"""A short name, safe in file names, cell identities and names of machines."""


@dataclass(frozen=True)
class Catalog:
    """What a study may name: each platform's options and each workload's parameters.

    Args:
        platforms: Platform name to the model of its options.
        workloads: Workload name to the model of its parameters.
        summaries: One sentence for a platform (``platform/NAME``) or workload
            (``workload/NAME``), for the reference.
        neighbours_only: Workloads that end when a subject does, so that none can be one.
    """

    platforms: Mapping[str, type[BaseModel]]
    workloads: Mapping[str, type[BaseModel]]
    summaries: Mapping[str, str] = field(default_factory=dict)
    neighbours_only: frozenset[str] = frozenset()


def _enough_memory(value: int) -> int:
    if value < LEAST_MEMORY:
        raise ValueError(
            f"{format_size(value)} is too little memory for any machine; "
            f"give at least {format_size(LEAST_MEMORY)}"
        )
    return value


def _disk_or_none(value: int) -> int:
    if value and value < LEAST_DISK:
        raise ValueError(
            f"{format_size(value)} is too small a disk for a file system with a journal; "
            f"give at least {format_size(LEAST_DISK)}, or 0 for none"
        )
    return value


def _kernel_exists(value: str) -> str:
    if "/" in value and not FilePath(value).is_file():
        raise ValueError(
            f"there is no kernel file {value}; write `rt`, `cloud`, a kernel package's name, "
            "or the path of a vmlinuz"
        )
    return value


Kernel = Annotated[str, Field(min_length=1), AfterValidator(_kernel_exists)]
"""``rt``, ``cloud``, a kernel package, or (with a slash in it) a file."""


_LAB = LabSpec.model_validate({})


class Shape(Part):
    """The size of a machine."""

    vcpus: int = Field(1, ge=1, le=MOST_VCPUS, description="Number of virtual CPUs.")
    memory: Annotated[Size, AfterValidator(_enough_memory)] = Field(
        256 << 20, description="Main memory, in bytes or with a unit, at least 32 MiB."
    )
    disk: Annotated[Size, AfterValidator(_disk_or_none)] = Field(
        0,
        description="A disk of the machine's own, at least 32 MiB: an ext4 in a file of the host, "
        "new for every machine, for workloads on files; 0: none.",
    )


class Blocks(Part):
    """How many blocks to run: between ``least`` and ``most``, until precise enough."""

    least: int = Field(
        FEWEST_BLOCKS_FOR_A_TEST,
        ge=2,
        le=10_000,
        description="Blocks that are always run; fewer than 8 cannot reach p < 0.01.",
    )
    most: int = Field(
        30,
        ge=2,
        le=10_000,
        description="Blocks after which the run ends even if it is not yet precise; "
        "30, or `least` when that is greater.",
    )
    precision: float = Field(
        0.05,
        gt=0,
        lt=1,
        description="Stop once the confidence interval of every headline ratio is within "
        "plus or minus this share (0.05 is 5 %).",
    )
    budget: Duration | None = Field(
        None,
        description="Start no further block after this time, once `least` blocks are done; "
        "in seconds or with a unit.",
    )

    @model_validator(mode="before")
    @classmethod
    def _let_most_follow(cls, data: Any) -> Any:
        if isinstance(data, dict) and "most" not in data and isinstance(data.get("least"), int):
            return {**data, "most": max(30, data["least"])}
        return data

    @model_validator(mode="after")
    def _ordered(self) -> Blocks:
        if self.least > self.most:
            raise ValueError(
                f"least ({self.least}) is more than most ({self.most}); raise most or lower least"
            )
        return self


class ArmFrame(Part):
    """What every arm has, whatever its platform."""

    platform: str = Field(description="The platform that runs the arm's machines.")
    twin_of: Slug | None = Field(
        None,
        description="The arm that this one repeats exactly, as an A/A pair: what differs "
        "between the two is the noise floor. Everything else may be left out, and is then "
        "the other's.",
    )
    shape: Shape | None = Field(
        None, description="This arm's machine size where it differs from the study's `shape`."
    )
    kernel: Kernel | None = Field(
        None, description="This arm's kernel where it differs from the study's."
    )
    host_trace: bool | None = Field(
        None,
        description="Whether the host's scheduling and interrupts are recorded while `tick` "
        "measures, to name the cause of each gap; the scenario decides when left out.",
    )


class Arm(ArmFrame):
    """One platform with its options, as compared with the baseline."""

    options: SerializeAsAny[InstanceOf[BaseModel]] = Field(
        description="The platform's own options, written beside `platform`."
    )


Where = Literal["any", "same", "other", "sibling", "other-node"]
"""Where a neighbour runs, seen from the subject."""


def _vcpus(value: object) -> object:
    whole = isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= MOST_VCPUS
    if not whole and value != "all":
        raise ValueError(f"must be a whole number from 1 to {MOST_VCPUS}, or `all`")
    return value


Vcpus = Annotated[
    Annotated[int, Field(ge=1, le=MOST_VCPUS)] | Literal["all"], BeforeValidator(_vcpus)
]


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
    memory: Annotated[Size, AfterValidator(_enough_memory)] | None = Field(
        None,
        description="Main memory of each, at least 32 MiB; the shape's when left out (seed 002 "
        "gives neighbours half of what the subject has).",
    )
    parameters: dict[str, Any] = Field(
        default_factory=dict, description="The load's own parameters."
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
    host_trace: bool | None = Field(
        None,
        description="Whether the host's scheduling and interrupts are recorded while `tick` "
        "measures, to name the cause of each gap. When left out: where there are neighbours. "
        "An arm's own `host-trace` goes first.",
    )

    @model_validator(mode="after")
    def _placed_relative_to_something(self) -> Scenario:
        for wanted in self.neighbours:
            if wanted.cpus != "any" and self.subject.cpus == "any":
                raise ValueError(
                    f"a neighbour on {wanted.cpus!r} CPUs needs a subject that stays in place; "
                    "write `subject: {cpus: pinned}`, or `cpus: any` for the neighbour"
                )
        return self


class WorkloadSpec(Part):
    """A workload to measure, with one or several sets of parameters."""

    workload: str = Field(
        description="The workload's name; the label itself when left out, so that a second "
        "label can measure the same workload differently."
    )
    scenarios: tuple[Slug, ...] | None = Field(
        None, description="The scenarios to measure it in; all when left out."
    )
    repeats: int = Field(
        1, ge=1, le=1000, description="How often each cell is measured within one boot."
    )
    deadline: Duration | None = Field(
        None,
        description="Time after which a cell has failed, in seconds or with a unit; derived "
        "from the expected time when left out.",
    )
    points: tuple[dict[str, Any], ...] = Field(
        ({},), description="One set of parameters per cell, each holding those the study sets."
    )


class StudyFrame(Part):
    """What a study says once, for all its arms, scenarios and workloads."""

    study: Slug = Field(description="Short name: lower-case letters, digits, `-`, `_`, `.`.")
    title: str = Field("", max_length=200, description="The report's title; `study` if left out.")
    description: str = Field(
        "", max_length=10_000, description="What the study asks, shown in the report."
    )
    baseline: Slug = Field(description="The arm that all others are compared with.")
    blocks: Blocks = Field(
        default_factory=lambda: Blocks.model_validate({}),
        description="How many fresh boots of every arm.",
    )
    margin: float = Field(
        0.02,
        ge=0,
        lt=1,
        description="Practical margin: a ratio nearer to 1 than this share is of no "
        "consequence, however certain (0.02 is 2 %).",
    )
    confidence: float = Field(
        0.95, ge=0.5, le=0.999, description="Confidence level of all intervals, as 0.95 or 0.99."
    )
    seed: int | None = Field(
        None,
        ge=0,
        lt=2**63,
        description="Seed of the random order; drawn and recorded when left out.",
    )
    shape: Shape = Field(
        default_factory=lambda: Shape.model_validate({}),
        description="The size of every machine, the same on all arms.",
    )
    host: HostSpec = Field(
        default_factory=lambda: HostSpec.model_validate({}),
        description="The computer that machines run on: `local`, which is this one, `lab`, which "
        "is an emulated one, or how another is reached over SSH.",
    )
    lab: LabSpec = Field(
        default_factory=lambda: LabSpec.model_validate({}),
        description="What the emulated computer of `host: lab` is like.",
    )
    kernel: Kernel | None = Field(
        None,
        description="What machines boot: `rt`, `cloud`, `generic`, a kernel package's name or a "
        "file; by default `rt` where a workload is real-time, and `generic` otherwise.",
    )

    @model_validator(mode="before")
    @classmethod
    def _titled(cls, data: Any) -> Any:
        if isinstance(data, dict) and not data.get("title") and "study" in data:
            return {**data, "title": data["study"]}
        return data


class Study(StudyFrame):
    """What to measure: the whole YAML file."""

    arms: dict[Slug, Arm] = Field(
        min_length=1, description="What is compared: one platform with its options per name."
    )
    scenarios: dict[Slug, Scenario] = Field(
        default_factory=lambda: {"alone": Scenario.model_validate({})},
        min_length=1,
        description="Under which conditions; `alone`, unpinned, when left out.",
    )
    workloads: dict[Slug, WorkloadSpec] = Field(
        min_length=1, description="What is measured; each key is a label."
    )

    @computed_field  # type: ignore[prop-decorator]
    @property
    def aa(self) -> tuple[str, str] | None:
        """The A/A pair that sets the noise floor: the baseline's twin if there is one."""
        pairs = self.twins
        return next((pair for pair in pairs if pair[0] == self.baseline), next(iter(pairs), None))

    @property
    def twins(self) -> tuple[tuple[str, str], ...]:
        """All pairs (arm, its twin) in the study's order."""
        return tuple((arm.twin_of, name) for name, arm in self.arms.items() if arm.twin_of)

    @property
    def warnings(self) -> tuple[str, ...]:
        """What makes the study weaker than it could be, one sentence each."""
        found = []
        if self.blocks.most < FEWEST_BLOCKS_FOR_A_TEST:
            found.append(
                f"at most {self.blocks.most} blocks: fewer than {FEWEST_BLOCKS_FOR_A_TEST} cannot "
                "reach p < 0.01; raise blocks.most"
            )
        elif self.blocks.least < FEWEST_BLOCKS_FOR_A_TEST:
            found.append(
                f"blocks.least is {self.blocks.least}: if the run stops before "
                f"{FEWEST_BLOCKS_FOR_A_TEST} blocks, no test can reach p < 0.01"
            )
        if self.aa is None:
            found.append(
                "no A/A pair, so no noise floor: add an arm "
                f"`{self.baseline}-again: {{twin-of: {self.baseline}}}`"
            )
        if self.host.kind != "lab" and "lab" in self.model_fields_set and self.lab != _LAB:
            found.append("`lab` describes the computer of `host: lab`, and the host is another")
        for name in self.scenarios:
            if all(
                spec.scenarios is not None and name not in spec.scenarios
                for spec in self.workloads.values()
            ):
                found.append(f"scenario {name} has no workload that is measured in it")
        return tuple(found)

    def shape_of(self, arm: str) -> Shape:
        """Return the machine size of an arm: its own, or else the study's."""
        return self.arms[arm].shape or self.shape

    def vcpus_of(self, arm: str, scenario: str, host_cpus: int) -> int:
        """Return how many vCPUs an arm's subject has in a scenario.

        Args:
            arm: Name of the arm.
            scenario: Name of the scenario, which goes before any shape.
            host_cpus: How many CPUs the host has, for `all`.
        """
        wanted = self.scenarios[scenario].subject.vcpus
        if wanted == "all":
            return host_cpus
        return wanted or self.shape_of(arm).vcpus

    def records_host(self, arm: str, scenario: str) -> bool:
        """Return whether the host's side is recorded for an arm in a scenario."""
        placed = self.scenarios[scenario]
        for said in (self.arms[arm].host_trace, placed.host_trace):
            if said is not None:
                return said
        return bool(placed.neighbours)

    def kernel_of(self, arm: str) -> str | None:
        """Return the kernel an arm boots: its own, or else the study's."""
        return self.arms[arm].kernel or self.kernel
