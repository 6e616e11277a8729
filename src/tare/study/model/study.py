"""The model of a study: what to measure, on what, how often, and how sure to become.

Keys are written in kebab-case in YAML (``twin-of``) and in snake_case here (``twin_of``).
Platforms' options and workloads' parameters are typed by the :class:`Catalog`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import combinations
from pathlib import Path as FilePath
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    Field,
    InstanceOf,
    PrivateAttr,
    SerializeAsAny,
    computed_field,
    model_validator,
)

from tare.study.model.names import Slug
from tare.study.model.platform_options import PlatformOptions
from tare.study.model.releases import Release
from tare.study.model.scenario import Scenario
from tare.study.model.shape import Shape
from tare.study.planning.blocks import FEWEST_BLOCKS_FOR_A_VERDICT, SMOKE_RUN, Blocks
from tare.study.planning.cpu_choice import CpuChoice
from tare.study.planning.session_plan import Sessions, odd_rounds, with_as_many
from tare.study.planning.spreading import Spreadable
from tare.study.reading.checking import shown, suggestion
from tare.study.reading.hosting import CpuKeys, HostSpec, LabSpec, Part, or_list_of_names
from tare.units import Confidence, Duration


@dataclass(frozen=True, eq=False)
class Catalog:
    """What a study may name: each platform's options and each workload's parameters.

    Args:
        platforms: Platform name to the model of its options.
        workloads: Workload name to the model of its parameters.
        summaries: One sentence for a platform (``platform/NAME``) or workload
            (``workload/NAME``), for the reference.
        neighbours_only: Workloads that end when a subject does, so that none can be one.
        roles: The roles of further machines that some workload works with.
        products: What the makers of a platform call it, where that is not its name.
        known_as: Other words that people have for platforms, to what stands behind ``platform:``
            instead.
        left_out: Why a platform (``platform/NAME``) or workload (``workload/NAME``) that is
            installed cannot be named.
    """

    platforms: Mapping[str, type[PlatformOptions]]
    workloads: Mapping[str, type[BaseModel]]
    summaries: Mapping[str, str] = field(default_factory=dict)
    neighbours_only: frozenset[str] = frozenset()
    roles: frozenset[str] = frozenset()
    products: Mapping[str, str] = field(default_factory=dict)
    known_as: Mapping[str, str] = field(default_factory=dict)
    left_out: Mapping[str, str] = field(default_factory=dict)

    def without(self, kind: Literal["platform", "workload"], name: object) -> str:
        """Return, for a name that there is not, a sentence that says so and what to do."""
        missing = f"there is no {kind} {shown(name)}"
        if reason := self.left_out.get(f"{kind}/{name}"):
            return f"{missing}: {reason}"
        if kind == "platform" and (meant := self.known_as.get(str(name).lower())):
            return f"{missing}; write {{platform: {meant}}}"
        return missing + suggestion(name, self.platforms if kind == "platform" else self.workloads)


_KERNEL_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+~-]{0,127}")
"""A package's (Debian Policy 5.6.1), or a file's without its folder; never an option of apt's."""


def _kernel_exists(value: str) -> str:
    if "/" in value and not FilePath(value).is_file():
        raise ValueError(
            f"there is no kernel file {value}; write `host`, `rt`, `cloud`, a kernel package's "
            "name, or the path of a vmlinuz"
        )
    if "/" not in value and not _KERNEL_NAME.fullmatch(value):
        raise ValueError(
            "is no name of a kernel; write `host`, `rt`, `cloud`, a kernel package's name, or the "
            "path of a vmlinuz"
        )
    return value


Kernel = Annotated[str, Field(min_length=1), AfterValidator(_kernel_exists)]
"""``host``, ``rt``, ``cloud``, a kernel package, or (with a slash in it) a file."""


_LAB = LabSpec.model_validate({})


class ArmFrame(Part):
    """What every arm has, whatever its platform."""

    platform: str = Field(description="The platform that runs the arm's machines.")
    on: Slug | None = Field(
        None,
        description="The name of the host that it runs on, out of `hosts` or of the user's hosts "
        "file; the study's `host` when left out.",
    )
    twin_of: Slug | None = Field(
        None,
        description="The arm that this one repeats exactly, as an A/A pair: its "
        "boots count as the other's, and how far the two differ is a diagnostic. Everything "
        "else may be left out, and is then "
        "the other's.",
    )
    yours: bool = Field(
        False,
        description="Whether its hypervisor is the one of that platform in your hosts file, under "
        "`hypervisors`, whose options it takes; without that the arm is left out.",
    )
    shape: Shape | None = Field(
        None, description="This arm's machine size where it differs from the study's `shape`."
    )
    kernel: Kernel | None = Field(
        None, description="This arm's kernel where it differs from the study's."
    )
    release: Release | None = Field(
        None,
        description="The release of Debian that the arm is of: `bookworm` (12) or `trixie` (13). "
        "Its guests boot that release's kernel. In the lab the Linux, the hypervisor with its "
        "tools and the QEMU that run them are of it too; elsewhere they are the host's own. The "
        "lab's `release` when left out, or else this computer's own.",
    )
    host_trace: bool | None = Field(
        None,
        description="Whether the host's scheduling and interrupts are recorded while `tick` "
        "measures, to name the cause of each gap; the scenario decides when left out.",
    )


class Arm(ArmFrame):
    """One platform with its options, as compared with the baseline."""

    options: SerializeAsAny[InstanceOf[PlatformOptions]] = Field(
        description="The platform's own options, written beside `platform`."
    )

    def value_of(self, field: str) -> Any:
        """Return the plain value of a field, its own or one of its options."""
        holder = self if field in ArmFrame.model_fields else self.options
        value = dict(holder).get(field)
        return value.model_dump(mode="json") if isinstance(value, BaseModel) else value


class WorkloadSpec(Part):
    """A workload to measure, with one or several sets of parameters."""

    workload: str = Field(
        description="The workload's name; the label itself when left out, so that a second "
        "label can measure the same workload differently."
    )
    scenarios: tuple[Slug, ...] | None = Field(
        None, description="The scenarios to measure it in; all when left out."
    )
    emulated: bool = Field(
        True,
        description="Whether it is also measured where an arm's processors are emulated; "
        "`false` for what would take those hours.",
    )
    repeats: int = Field(
        1, ge=1, le=1000, description="How often each cell is measured within one boot."
    )
    deadline: Duration | None = Field(
        None,
        gt=0,
        description="Time after which a cell has failed, in seconds or with a unit; derived "
        "from the expected time when left out.",
    )
    points: tuple[dict[str, Any], ...] = Field(
        ({},), description="One set of parameters per cell, each holding those the study sets."
    )


class StudyFrame(Spreadable, CpuKeys):
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
    floors: dict[str, Annotated[float, Field(gt=0)]] = Field(
        default_factory=dict,
        description="By metric, a difference in its unit that never matters, however large a share "
        "it is: what is lost of next to nothing is next to nothing.",
    )
    confidence: Confidence = Field(
        0.95, description="Confidence level of all intervals, as 0.95 or 0.99."
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
        "is an emulated one, a name from the user's hosts file, or how another is reached over "
        "SSH. When left out: the first of `hosts`, else `local`.",
    )
    hosts: dict[Slug, HostSpec] = Field(
        default_factory=dict,
        description="Several computers by name, for arms that say `on` which they run on; each as "
        "of `host`, or a list of names from the user's hosts file.",
        json_schema_extra=or_list_of_names,
    )
    lab: LabSpec = Field(
        default_factory=lambda: LabSpec.model_validate({}),
        description="What the emulated computer of `host: lab` is like.",
    )
    sessions: Sessions | None = Field(
        None,
        description="Where arms need one computer booted differently, as from another disk: which "
        "arms go with which boot. It is measured in turns, and `tare plan` says when to swap.",
    )
    kernel: Kernel | None = Field(
        None,
        description="What machines boot: `host` for the kernel that the arm's host runs, `rt`, "
        "`cloud`, `generic`, a kernel package's name or a file. By default `rt` if a workload is "
        "real-time, there is a real-time kernel, and every arm runs on it (Xen's do not, and the "
        "live image has another); otherwise `host` if that kernel boots as a guest, which is "
        "tried; otherwise `generic`. All arms get the same kernel.",
    )

    @model_validator(mode="before")
    @classmethod
    def _titled(cls, data: Any) -> Any:
        if not isinstance(data, dict):
            return data
        said = with_as_many(data)
        # What is no name is told as that, and not of a title that nobody wrote.
        named = isinstance(said.get("study"), str)
        return {**said, "title": said.get("title") or said["study"]} if named else said


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
    folder: str = Field(
        "", description="Where the study file was, to which the paths in it are relative."
    )
    left_out: dict[str, str] = Field(
        default_factory=dict,
        description="Arms whose hypervisor the user has not named, each with that reason.",
    )
    _baseline_took_shape: bool = PrivateAttr(default=False)

    @property
    def baseline_took_shape(self) -> bool:
        """Whether the baseline has the shape of another arm, because the file gives it none."""
        return self._baseline_took_shape

    _notices: tuple[str, ...] = PrivateAttr(default=())

    @property
    def notices(self) -> tuple[str, ...]:
        """What to change in the study's file, as keys that were renamed, one sentence each."""
        return self._notices

    def noticed(self, notices: Iterable[str]) -> Self:
        """Add notices on how the study's file is written, and return the study."""
        self._notices = (*self._notices, *notices)
        return self

    @computed_field  # type: ignore[prop-decorator]
    @property
    def aa(self) -> tuple[str, str] | None:
        """The A/A pair: the baseline's twin if there is one."""
        pairs = self.twins
        return next((pair for pair in pairs if pair[0] == self.baseline), next(iter(pairs), None))

    @computed_field  # type: ignore[prop-decorator]
    @property
    def own_baselines(self) -> dict[str, str]:
        """The baseline of its own host and shape, for each arm that differs from the study's.

        On another host, an arm of whose shape there is no baseline has any of that host.
        """
        if self.baseline not in self.arms:
            # The part of a study in sessions that is of another boot.
            return {}
        home, of_host, of_both = self.host_of(self.baseline), {}, {}
        for arm in reversed(self.arms):
            if self.matches_baseline(arm):
                of_host[self.host_of(arm)] = arm
                of_both[self.host_of(arm), self.shape_of(arm)] = arm
        of_both[home, self.shape_of(self.baseline)] = of_host[home] = self.baseline
        found = {}
        for arm in self.arms:
            host = self.host_of(arm)
            own = of_both.get((host, self.shape_of(arm)), of_host.get(host, self.baseline))
            if own != self.baseline:
                found[arm] = own
        return found

    @property
    def twins(self) -> tuple[tuple[str, str], ...]:
        """All pairs (arm, its twin) in the study's order."""
        return tuple((arm.twin_of, name) for name, arm in self.arms.items() if arm.twin_of)

    @property
    def warnings(self) -> tuple[str, ...]:
        """What makes the study weaker than it could be, one sentence each."""
        found = []
        if self.blocks.most == 1:
            found.append(SMOKE_RUN)
        elif self.blocks.most < FEWEST_BLOCKS_FOR_A_VERDICT:
            found.append(
                f"at most {self.blocks.most} blocks: of fewer than {FEWEST_BLOCKS_FOR_A_VERDICT} "
                "all is preliminary; raise blocks.most"
            )
        elif self.blocks.least < FEWEST_BLOCKS_FOR_A_VERDICT:
            found.append(
                f"blocks.least is {self.blocks.least}: if the run stops before "
                f"{FEWEST_BLOCKS_FOR_A_VERDICT} blocks, all is preliminary"
            )
        if len(self.arms) == 1:
            found.append(
                "the baseline is the only arm: its values are told, and nothing is compared"
            )
        elif self.aa is None:
            twin = f"`{self.baseline}-again: {{twin-of: {self.baseline}}}`"
            found.append(
                "no A/A pair, so nothing says how far identical arms differ here: "
                + (
                    f"run it once with {twin} as the other arm"
                    if self.blocks.paired
                    else f"add an arm {twin}"
                )
            )
        found += [
            f"{other} is {one} in everything: if that is meant, write `{other}: {{twin-of: {one}}}`"
            for one, other in combinations(self.arms, 2)
            if self.arms[one] == self.arms[other]
        ]
        if self.sessions is not None:
            found += odd_rounds(self.sessions, self.blocks)
        labs = any(host.kind == "lab" for host in self.computers.values())
        if not labs and "lab" in self.model_fields_set and self.lab != _LAB:
            found.append("`lab` describes the computer of `host: lab`, and the host is another")
        for name in self.scenarios:
            if all(
                spec.scenarios is not None and name not in spec.scenarios
                for spec in self.workloads.values()
            ):
                found.append(f"scenario {name} has no workload that is measured in it")
        return tuple(found)

    @property
    def computers(self) -> Mapping[str, HostSpec]:
        """All hosts that arms run on, by name; the name is empty where there is only one."""
        return self.hosts or {"": self.host}

    def host_of(self, arm: str) -> str:
        """Return the name of the host that an arm runs on; empty where there is only one."""
        return self.arms[arm].on or ""

    def matches_baseline(self, arm: str) -> bool:
        """Return whether an arm is the baseline, on whichever host and of whichever shape.

        A twin is not a baseline.
        """
        without = {"on": None, "shape": None}
        one = self.arms[arm].model_copy(update=without)
        return one == self.arms[self.baseline].model_copy(update=without)

    def choice_of(self, host: str) -> CpuChoice:
        """Return what is asked for of a host's CPUs: its own keys go before the study's."""
        return self.computers[host].choice.over(self.choice)

    def vcpus_on(self, host: str) -> int:
        """Return how many vCPUs the largest subject on a host has, whatever CPUs it has."""
        counts = [
            self.vcpus_of(arm, name, 1)
            for arm in self.arms
            if self.host_of(arm) == host
            for name in self.scenarios
        ]
        return max(counts, default=1)

    def shape_of(self, arm: str) -> Shape:
        """Return the machine size of an arm: its own, or else the study's."""
        return self.arms[arm].shape or self.shape

    def vcpus_of(self, arm: str, scenario: str, host_cpus: int) -> int:
        """Return how many vCPUs an arm's subject has in a scenario.

        Args:
            arm: Name of the arm.
            scenario: Name of the scenario, which goes before any shape.
            host_cpus: How many CPUs the host has, for `all` and `spare`.
        """
        return self.scenarios[scenario].vcpus_of(self.shape_of(arm).vcpus, host_cpus)

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

    def in_lab(self, arm: str) -> bool:
        """Return whether an arm runs on the emulated computer."""
        return self.computers[self.host_of(arm)].kind == "lab"

    def release_of(self, arm: str) -> Release | None:
        """Return the release an arm is of: its own, or its lab's; None: this computer's."""
        return self.arms[arm].release or (self.lab.release if self.in_lab(arm) else None)
