"""The model of a study: workloads, arms, scenarios, repetition and confidence.

Keys are written in kebab-case in YAML (``twin-of``) and in snake_case here (``twin_of``).
Platforms' options and workloads' parameters are typed by the :class:`Catalog`.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import combinations
from pathlib import Path as FilePath
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    Field,
    InstanceOf,
    PrivateAttr,
    SerializeAsAny,
    computed_field,
    model_validator,
)

from tare.study.model.forms import Slug
from tare.study.model.matrix import Design, Matrix
from tare.study.model.platform_options import PlatformOptions
from tare.study.model.releases import Release
from tare.study.model.scenario import Scenario
from tare.study.model.shape import Shape
from tare.study.planning.blocks import FEWEST_BLOCKS_FOR_A_VERDICT, SMOKE_RUN, Blocks
from tare.study.planning.cpu_choice import CpuChoice
from tare.study.planning.guest_kernels import GENERAL, HOST
from tare.study.planning.session_plan import Sessions, odd_rounds, with_as_many
from tare.study.planning.spreading import Spreadable
from tare.study.reading.checking import shown, suggestion
from tare.study.reading.hosting import CpuKeys, HostSpec, LabSpec, StudyPart, allow_list_of_names
from tare.units import Confidence, Duration


@dataclass(frozen=True, eq=False)
class Catalog:
    """The names that a study can use: each platform's options and each workload's parameters.

    Args:
        platforms: Platform name to the model of its options.
        workloads: Workload name to the model of its parameters.
        summaries: One sentence for a platform (``platform/NAME``) or workload (``workload/NAME``),
            for the reference.
        neighbours_only: Workloads that end with a subject, so that none can be a subject.
        roles: The roles of additional machines that some workload uses.
        products: A platform's product name, if it differs from its name.
        known_as: Other words that users write for platforms, each with the value for ``platform:``.
        left_out: The reason why an installed platform (``platform/NAME``) or workload
            (``workload/NAME``) cannot be used.
    """

    platforms: Mapping[str, type[PlatformOptions]]
    workloads: Mapping[str, type[BaseModel]]
    summaries: Mapping[str, str] = field(default_factory=dict)
    neighbours_only: Container[str] = frozenset()
    roles: frozenset[str] = frozenset()
    products: Mapping[str, str] = field(default_factory=dict)
    known_as: Mapping[str, str] = field(default_factory=dict)
    left_out: Mapping[str, str] = field(default_factory=dict)

    def without(self, kind: Literal["platform", "workload"], name: object) -> str:
        """Return the message for an unknown name, with advice."""
        missing = f"there is no {kind} {shown(name)}"
        if reason := self.left_out.get(f"{kind}/{name}"):
            return f"{missing}: {reason}"
        if kind == "platform" and (meant := self.known_as.get(str(name).lower())):
            return f"{missing}; write {{platform: {meant}}}"
        return missing + suggestion(name, self.platforms if kind == "platform" else self.workloads)


_KERNEL_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+~-]{0,127}")
"""A package's name (Debian Policy 5.6.1), or a file name without its folder; never an option of
apt.
"""


def _kernel_exists(value: str) -> str:
    if "/" in value and not FilePath(value).is_file():
        raise ValueError(
            f"there is no kernel file {value}; write `host`, `rt`, `cloud`, a kernel package's "
            "name, or the path of a vmlinuz"
        )
    if "/" not in value and not _KERNEL_NAME.fullmatch(value):
        raise ValueError(
            "is not a kernel's name; write `host`, `rt`, `cloud`, a kernel package's name, or the "
            "path of a vmlinuz"
        )
    return value


Kernel = Annotated[str, Field(min_length=1), AfterValidator(_kernel_exists)]
"""``host``, ``rt``, ``cloud``, a kernel package, or (with a slash in it) a file."""


def _as_tuple(value: object) -> object:
    return tuple(value) if isinstance(value, list) else value


ProbeNames = Annotated[tuple[Slug, ...], BeforeValidator(_as_tuple)]


class NoiseGate(StudyPart):
    """How the noise of the hosts is measured before a study with real-time workloads."""

    duration: Duration = Field(
        2.0,
        ge=0,
        le=600,
        description="Time for each of the two measurements: firmware alone, with interrupts off, "
        "and everything. 0 measures nothing.",
    )
    limit: Duration = Field(
        100e-6,
        gt=0,
        description="The longest gap by firmware that is acceptable. If one is longer, the host "
        "counts as unfit for the study.",
    )

    @property
    def host_s(self) -> float:
        """Seconds that the two measurements of one host take: firmware only, and everything."""
        return 2 * self.duration


class ArmFrame(StudyPart):
    """The keys of every arm, whatever its platform."""

    platform: str = Field(description="The platform that runs the arm's machines.")
    on: Slug | None = Field(
        None,
        description="The name of the host that it runs on, from `hosts` or from the user's hosts "
        "file. Default: the study's `host`.",
    )
    twin_of: Slug | None = Field(
        None,
        description="The arm that this one repeats exactly, as an A/A pair. Its boots count as the "
        "other's, and the difference between the two is a diagnostic. Keys that are left out are "
        "the other arm's.",
    )
    yours: bool = Field(
        False,
        description="Use your own hypervisor of that platform, with its options under "
        "`hypervisors` in your hosts file. The arm is skipped if the file does not have it.",
    )
    shape: Shape | None = Field(
        None, description="This arm's machine size, if it differs from the study's `shape`."
    )
    kernel: Kernel | None = Field(
        None, description="This arm's kernel, if it differs from the study's."
    )
    release: Release | None = Field(
        None,
        description="The arm's Debian release: `bookworm` (12) or `trixie` (13). Its guests boot "
        "that release's kernel. In the lab, it also provides Linux, the hypervisor with its tools, "
        "and the QEMU that runs them; elsewhere these are the host's own. Default: the lab's "
        "`release`, or else this computer's.",
    )
    host_trace: bool | None = Field(
        None,
        description="Record the host's scheduling and interrupts while `tick` measures, to name "
        "the cause of each gap. Default: as in the scenario.",
    )
    probes: ProbeNames | None = Field(
        None,
        description="The probes of this arm's cells, if they differ from the study's `probes`.",
    )


class Arm(ArmFrame):
    """One platform with its options, compared with the baseline."""

    options: SerializeAsAny[InstanceOf[PlatformOptions]] = Field(
        description="The platform's own options, written next to `platform`."
    )

    def value_of(self, field: str) -> Any:
        """Return the plain value of a field of the arm or of its options."""
        holder = self if field in ArmFrame.model_fields else self.options
        value = dict(holder).get(field)
        return value.model_dump(mode="json") if isinstance(value, BaseModel) else value


class WorkloadSpec(StudyPart):
    """A workload to measure, with one or several sets of parameters."""

    workload: str = Field(
        description="The workload's name. Default: the label. With another label, the same "
        "workload can be measured differently."
    )
    scenarios: tuple[Slug, ...] | None = Field(
        None, description="The scenarios to measure it in. Default: all."
    )
    emulated: bool = Field(
        True,
        description="Also measure it on arms whose processors are emulated; use `false` if that "
        "would take hours.",
    )
    repeats: int = Field(
        1, ge=1, le=1000, description="Number of measurements of each cell within one boot."
    )
    deadline: Duration | None = Field(
        None,
        gt=0,
        description="Time after which a cell fails, in seconds or with a unit. Default: derived "
        "from the expected time.",
    )
    points: tuple[dict[str, Any], ...] = Field(
        ({},),
        description="One set of parameters per cell, with the parameters that the study sets.",
    )


class StudyFrame(Spreadable, CpuKeys):
    """The settings of a study for all its arms, scenarios and workloads."""

    study: Slug = Field(description="Short name: lower-case letters, digits, `-`, `_`, `.`.")
    title: str = Field("", max_length=200, description="The report's title. Default: `study`.")
    description: str = Field(
        "", max_length=10_000, description="The question that the study asks, shown in the report."
    )
    baseline: Slug = Field(description="The arm that all others are compared with.")
    blocks: Blocks = Field(
        default_factory=lambda: Blocks.model_validate({}),
        description="Number of fresh boots of every arm.",
    )
    margin: float = Field(
        0.02,
        ge=0,
        lt=1,
        description="Practical margin: a ratio that is closer to 1 than this is irrelevant, "
        "however certain it is (0.02 is 2 %).",
    )
    floors: dict[str, Annotated[float, Field(gt=0)]] = Field(
        default_factory=dict,
        description="By metric, a difference in the metric's unit that never matters: below this "
        "absolute difference, even a large percentage is ignored.",
    )
    confidence: Confidence = Field(
        0.95, description="Confidence level of all intervals, such as 0.95 or 0.99."
    )
    seed: int | None = Field(
        None,
        ge=0,
        lt=2**63,
        description="Seed of the random order. Default: drawn at random and recorded.",
    )
    shape: Shape = Field(
        default_factory=lambda: Shape.model_validate({}),
        description="The size of every machine, equal on all arms.",
    )
    host: HostSpec = Field(
        default_factory=lambda: HostSpec.model_validate({}),
        description="The computer that machines run on: `local` (this one), `lab` (an emulated "
        "one), a name from the user's hosts file, or how to reach another over SSH. Default: the "
        "first of `hosts`, or else `local`.",
    )
    hosts: dict[Slug, HostSpec] = Field(
        default_factory=dict,
        description="Several computers by name, for arms that name theirs in `on`. Each is "
        "described like `host`. A list of names from the user's hosts file works too.",
        json_schema_extra=allow_list_of_names,
    )
    lab: LabSpec = Field(
        default_factory=lambda: LabSpec.model_validate({}),
        description="The emulated computer of `host: lab`.",
    )
    sessions: Sessions | None = Field(
        None,
        description="For arms that need one computer booted differently, for example from another "
        "disk: which arms belong to which boot. Boots are measured in turn, and `tare plan` says "
        "when to swap.",
    )
    noise: NoiseGate = Field(
        default_factory=lambda: NoiseGate.model_validate({}),
        description="With real-time workloads, Tare first measures what firmware and the rest of "
        "each host take from the CPUs, with the kernel's tracers `osnoise` and `hwlat`.",
    )
    probes: ProbeNames = Field(
        (),
        description="Probes that observe each cell and cost a little time: `exits` counts the "
        "exits of machines by reason; `energy` records the energy of the host's processors (RAPL) "
        "and of the whole host (its `bmc`), where these can be read; `stacks` records kernel "
        "stacks of what holds the CPUs during gaps, on the host and in the guest.",
    )
    matrix: dict[Slug, Matrix] = Field(
        default_factory=dict,
        max_length=16,
        description="Matrices by name. Each makes arms from values of some settings of an arm, one "
        "at a time or in combinations, and the report says which settings to change.",
    )
    kernel: Kernel | None = Field(
        None,
        description="The kernel that machines boot: `host` (the kernel that the arm's host runs), "
        "`rt`, `cloud`, `generic`, a kernel package's name, or a file. Default: `rt` if a workload "
        "is real-time, a real-time kernel exists, and every arm runs on it (Xen's arms do not, and "
        "the live image has another kernel); otherwise `host` if a test shows that this kernel "
        "boots as a guest; otherwise `generic`. All arms get the same kernel.",
    )

    @model_validator(mode="before")
    @classmethod
    def _titled(cls, data: Any) -> Any:
        if not isinstance(data, dict):
            return data
        values = with_as_many(data)
        # An invalid name must be reported for `study`, not for a title that nobody wrote.
        named = isinstance(values.get("study"), str)
        return {**values, "title": values.get("title") or values["study"]} if named else values


class Study(StudyFrame):
    """The whole YAML file."""

    arms: dict[Slug, Arm] = Field(
        min_length=1, description="The arms to compare: one platform with its options per name."
    )
    scenarios: dict[Slug, Scenario] = Field(
        default_factory=lambda: {"alone": Scenario.model_validate({})},
        min_length=1,
        description="The conditions of the measurement. Default: `alone`, unpinned.",
    )
    workloads: dict[Slug, WorkloadSpec] = Field(
        min_length=1, description="The workloads to measure; each key is a label."
    )
    folder: str = Field(
        "", description="The folder of the study file; paths in the study are relative to it."
    )
    designs: dict[str, Design] = Field(
        default_factory=dict, description="The designs that were planned for the matrices, by name."
    )
    left_out: dict[str, str] = Field(
        default_factory=dict,
        description="Arms that were skipped because the user has not named their hypervisor, with "
        "the reason.",
    )
    _baseline_took_shape: bool = PrivateAttr(default=False)

    @property
    def baseline_took_shape(self) -> bool:
        """Whether the baseline has another arm's shape, because the file gives it none."""
        return self._baseline_took_shape

    _notices: tuple[str, ...] = PrivateAttr(default=())

    @property
    def notices(self) -> tuple[str, ...]:
        """Advice on the study's file, such as renamed keys, one sentence each."""
        return self._notices

    def with_notices(self, notices: Iterable[str]) -> Self:
        """Add advice on the study's file, and return the study."""
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

        On another host, an arm without a baseline of its shape gets any baseline of that host.
        """
        if self.baseline not in self.arms:
            # This is the part of a study in sessions that belongs to another boot.
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
        """The study's weaknesses, one sentence each."""
        found = []
        if self.blocks.most == 1:
            found.append(SMOKE_RUN)
        elif self.blocks.most < FEWEST_BLOCKS_FOR_A_VERDICT:
            found.append(
                f"at most {self.blocks.most} blocks: with fewer than {FEWEST_BLOCKS_FOR_A_VERDICT} "
                "all results are preliminary; raise blocks.most"
            )
        elif self.blocks.least < FEWEST_BLOCKS_FOR_A_VERDICT:
            found.append(
                f"blocks.least is {self.blocks.least}: if the run stops before "
                f"{FEWEST_BLOCKS_FOR_A_VERDICT} blocks, all results are preliminary"
            )
        if len(self.arms) == 1:
            found.append(
                "the baseline is the only arm: its values are shown, and nothing is compared"
            )
        elif self.aa is None:
            twin = f"`{self.baseline}-again: {{twin-of: {self.baseline}}}`"
            found.append(
                "no A/A pair, so the difference between identical arms here is unknown: "
                + (
                    f"run it once with {twin} as the other arm"
                    if self.blocks.paired
                    else f"add an arm {twin}"
                )
            )
        found += [
            f"{other} is identical to {one}: if that is intended, write `{other}: {{twin-of: "
            f"{one}}}`"
            for one, other in combinations(self.arms, 2)
            if self.arms[one] == self.arms[other]
        ]
        if self.sessions is not None:
            found += odd_rounds(self.sessions, self.blocks)
        labs = any(host.kind == "lab" for host in self.computers.values())
        if not labs and "lab" in self.model_fields_set and self.lab != LabSpec.model_validate({}):
            found.append("`lab` has no effect, because no host of the study is `lab`")
        for name in self.scenarios:
            if all(
                spec.scenarios is not None and name not in spec.scenarios
                for spec in self.workloads.values()
            ):
                found.append(f"no workload is measured in the scenario {name}")
        return tuple(found)

    @property
    def computers(self) -> Mapping[str, HostSpec]:
        """All hosts that arms run on, by name; the name is empty if there is only one."""
        return self.hosts or {"": self.host}

    def host_of(self, arm: str) -> str:
        """Return the name of the host that an arm runs on; empty if there is only one."""
        return self.arms[arm].on or ""

    def matches_baseline(self, arm: str) -> bool:
        """Return whether an arm equals the baseline, apart from its host and shape.

        A twin is not a baseline.
        """
        without = {"on": None, "shape": None}
        one = self.arms[arm].model_copy(update=without)
        return one == self.arms[self.baseline].model_copy(update=without)

    def choice_of(self, host: str) -> CpuChoice:
        """Return the choice of a host's CPUs: its own keys take precedence over the study's."""
        return self.computers[host].choice.over(self.choice)

    def vcpus_on(self, host: str) -> int:
        """Return the vCPUs of the largest subject on a host, ignoring the host's CPUs."""
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
        """Return the number of vCPUs of an arm's subject in a scenario.

        Args:
            arm: Name of the arm.
            scenario: Name of the scenario, which takes precedence over any shape.
            host_cpus: Number of CPUs of the host, for `all` and `spare`.
        """
        return self.scenarios[scenario].vcpus_of(self.shape_of(arm).vcpus, host_cpus)

    def records_host(self, arm: str, scenario: str) -> bool:
        """Return whether the host's side is recorded for an arm in a scenario."""
        placed = self.scenarios[scenario]
        for values in (self.arms[arm].host_trace, placed.host_trace):
            if values is not None:
                return values
        return bool(placed.neighbours)

    def probes_of(self, arm: str) -> tuple[str, ...]:
        """Return the probes that observe an arm's cells: its own, or else the study's."""
        own = self.arms[arm].probes
        return self.probes if own is None else own

    def kernel_of(self, arm: str) -> str | None:
        """Return the kernel an arm boots: its own, or else the study's.

        The host of an arm in the lab is the emulated computer, so ``host`` is that one's kernel.
        """
        kernel = self.arms[arm].kernel or self.kernel
        if kernel == HOST and self.in_lab(arm):
            return self.lab.kernel or GENERAL
        return kernel

    def in_lab(self, arm: str) -> bool:
        """Return whether an arm runs on the emulated computer."""
        return self.computers[self.host_of(arm)].kind == "lab"

    def release_of(self, arm: str) -> Release | None:
        """Return an arm's release: its own or its lab's; None for this computer's."""
        return self.arms[arm].release or (self.lab.release if self.in_lab(arm) else None)
