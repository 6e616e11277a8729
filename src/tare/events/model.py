"""The event types: everything that can happen in a run, in the order it may happen.

The state machine over them is described in ``tare help events``.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from tare.events.metric import Better, Kind, Metric, Resource
from tare.events.parts import SUBJECT, Base, Calibration, Check, CpuNoise
from tare.events.session_events import SessionFinished, SessionStarted, Waiting

STREAM_VERSION = 2
"""The stream's version. Since version 2, lines have a hash: see :mod:`tare.events.chain`."""

CellStatus = Literal["ok", "failed", "withheld"]


class RunStarted(Base):
    """The first event: the study to run, the versions and the seed.

    ``study`` includes all changes; ``changes`` are the options of the command line that made it
    differ from its file.
    """

    type: Literal["run_started"] = "run_started"
    version: int = STREAM_VERSION
    run: str
    study: dict[str, Any]
    study_path: str
    study_sha256: str
    seed: int
    host: dict[str, Any]
    versions: dict[str, str]
    changes: tuple[str, ...] = ()


class RunResumed(Base):
    """A new process resumed the run at the first unfinished cell.

    ``doubts`` are the signs that the stream was changed after it was written. ``changed`` are
    changes since the run's last record that the user accepted. They are a break between two blocks,
    so the cells of an unfinished block do not count. ``host`` has the host's facts; empty in older
    runs.
    """

    type: Literal["run_resumed"] = "run_resumed"
    run: str
    versions: dict[str, str]
    doubts: tuple[str, ...] = ()
    host: dict[str, Any] = Field(default_factory=dict)
    changed: tuple[str, ...] = ()


class Preflight(Base):
    """The condition of the host before the first block (or when the run was resumed).

    ``host`` is its name if several hosts share a run: each has its own event.
    """

    type: Literal["preflight"] = "preflight"
    host: str = ""
    checks: tuple[Check, ...]


class Calibrated(Base):
    """The agent's figures of a host's counter, memory and disk, compared with references.

    ``host`` is its name if there are several; the calibration took ``took_s`` seconds.
    """

    type: Literal["calibrated"] = "calibrated"
    host: str = ""
    took_s: float
    found: tuple[Calibration, ...]


class NoiseMeasured(Base):
    """The time that firmware and all else took from a host's CPUs before a real-time study.

    ``by`` is the kernel's tracer that measured ``firmware``, with interrupts off: ``osnoise``, or
    ``hwlat``, whose ``taken_s`` are lower bounds. ``system`` was measured with interrupts on.
    ``missing`` is the reason why nothing was measured. ``limit_s`` is the longest gap by firmware
    that the study allows. On a ``virtual`` host, ``firmware`` includes the time that the hypervisor
    below took. An ``emulated`` host shows its emulator's noise.
    """

    type: Literal["noise_measured"] = "noise_measured"
    host: str = ""
    took_s: float
    by: str = ""
    firmware: tuple[CpuNoise, ...] = ()
    system: tuple[CpuNoise, ...] = ()
    missing: str = ""
    limit_s: float
    virtual: bool = False
    emulated: bool = False


class PlatformChecked(Base):
    """Whether an arm can run here; if not, the reason.

    ``facts`` are all facts used for planning, so that a resumed run gets the same plan; older runs
    have none. ``mark`` is a phrase for the place where the arm runs, such as dom0, if that is not
    where it belongs. ``shown`` has the facts that an existing machine reports on itself, and
    ``uncontrolled`` the properties of it that Tare does not control. ``lasting`` is False if the
    check itself failed, and True if the host lacks something.
    """

    type: Literal["platform_checked"] = "platform_checked"
    arm: str
    platform: str
    options: dict[str, Any]
    usable: bool
    reason: str = ""
    hint: str = ""
    emulated: bool = False
    versions: dict[str, str] = Field(default_factory=dict)
    capabilities: dict[str, Any] = Field(default_factory=dict)
    description: str = ""
    facts: dict[str, Any] = Field(default_factory=dict)
    mark: str = ""
    shown: dict[str, str] = Field(default_factory=dict)
    uncontrolled: tuple[str, ...] = ()
    lasting: bool = True


class Skipped(Base):
    """An arm, or one scenario or workload of it, that will not run, with the reason."""

    type: Literal["skipped"] = "skipped"
    arm: str
    scenario: str | None = None
    workload: str | None = None
    reason: str


class Planned(Base):
    """The size of the plan: the most blocks, and the cells and estimated seconds of each.

    ``notes`` are sentences on how scenarios were adapted to this host.
    """

    type: Literal["planned"] = "planned"
    blocks_most: int
    cells_per_block: int
    expected_block_s: float
    notes: tuple[str, ...] = ()


class ImageReady(Base):
    """The image that an arm's machines boot, identified by its digest."""

    type: Literal["image_ready"] = "image_ready"
    arm: str
    kernel: str
    digest: str
    cached: bool
    took_s: float


class HostJoined(Base):
    """A host takes part in a run that several share; ``checked`` has its verdict on each arm.

    ``facts`` identify it, and ``worker`` is the address of its worker in the cluster. It measures
    ``cells_per_block`` cells in each of its blocks. ``images`` has the digest of the image that
    each arm boots; empty in older runs.
    """

    type: Literal["host_joined"] = "host_joined"
    host: str
    worker: str
    facts: dict[str, Any]
    versions: dict[str, str]
    checked: tuple[PlatformChecked, ...]
    cells_per_block: int
    images: dict[str, str] = Field(default_factory=dict)


class HostLost(Base):
    """A host left a run that several share; ``blocks`` are those that no other host can measure."""

    type: Literal["host_lost"] = "host_lost"
    host: str
    reason: str
    blocks: tuple[int, ...] = ()


class CpusChanged(Base):
    """CPUs of a host went offline or online, or another control group's limit holds for the run.

    ``before`` and ``after`` are the CPUs that could be used, as the kernel lists them; ``gone`` and
    ``came`` are the difference. ``cell`` is the cell that was measured meanwhile, which does not
    count; empty if the change was noticed before a cell. ``host`` is the host's name if there are
    several.
    """

    type: Literal["cpus_changed"] = "cpus_changed"
    host: str = ""
    block: int
    cell: str = ""
    before: str
    after: str
    gone: str = ""
    came: str = ""

    @property
    def words(self) -> str:
        """A phrase for the change."""
        parts = [
            *([f"CPU {self.gone} can no longer be used"] if self.gone else []),
            *([f"CPU {self.came} can be used now"] if self.came else []),
        ]
        return f"{' and '.join(parts)} (before: {self.before}; now: {self.after or 'none'})"


class LabFroze(Base):
    """An emulated host stopped answering during a batch, while its emulator still ran.

    ``repeated`` is True if the host is booted again for the batch's unfinished cells. After the
    second freeze of one batch its cells fail instead.
    """

    type: Literal["lab_froze"] = "lab_froze"
    block: int
    arm: str
    scenario: str
    reason: str
    repeated: bool
    console_tail: tuple[str, ...] = ()


class BlockStarted(Base):
    """One fresh boot of every arm begins, in this order of ``arm/scenario`` batches.

    ``host`` is the host that measures it, if several share a run.
    """

    type: Literal["block_started"] = "block_started"
    block: int
    order: tuple[str, ...]
    host: str = ""


class MachineStarting(Base):
    """A machine is about to be started for a role."""

    type: Literal["machine_starting"] = "machine_starting"
    machine: str
    block: int
    arm: str
    scenario: str
    role: str


class MachineReady(Base):
    """The machine's agent sent its hello; ``proof`` is its environment proof."""

    type: Literal["machine_ready"] = "machine_ready"
    machine: str
    boot_s: float
    proof: dict[str, Any]
    placement: dict[str, Any] = Field(default_factory=dict)


class MachineStopped(Base):
    """The machine has ended; ``reason`` is set if that was unexpected, with its last console lines.

    ``files`` are its logs, relative to the run's folder, each with its SHA-256 in hexadecimal.
    """

    type: Literal["machine_stopped"] = "machine_stopped"
    machine: str
    expected: bool
    reason: str = ""
    console_tail: tuple[str, ...] = ()
    host_cost: dict[str, float] = Field(default_factory=dict)
    files: dict[str, str] = Field(default_factory=dict)


class ClusterReady(Base):
    """The machines of a batch are one cluster now, ``took_s`` seconds after they were ready.

    ``machine`` is its master; ``facts`` has its configuration.
    """

    type: Literal["cluster_ready"] = "cluster_ready"
    machine: str
    block: int
    arm: str
    scenario: str
    took_s: float
    facts: dict[str, Any] = Field(default_factory=dict)


class ClusterStopped(Base):
    """A cluster has ended; ``reason`` states why it never came up, or which part of it was lost."""

    type: Literal["cluster_stopped"] = "cluster_stopped"
    machine: str
    expected: bool
    reason: str = ""
    logs: tuple[str, ...] = ()


class CellStarted(Base):
    """One arm × scenario × workload × parameters begins within a block.

    ``machines`` has the name of the machine in each role; empty if the cell could not start.
    """

    type: Literal["cell_started"] = "cell_started"
    cell: str
    block: int
    arm: str
    scenario: str
    workload: str
    parameters: dict[str, Any]
    attempt: int = 1
    machines: dict[str, str] = Field(default_factory=dict)


class Observed(Base):
    """One value of one metric, in SI units."""

    type: Literal["observation"] = "observation"
    cell: str
    role: str = SUBJECT
    metric: str
    unit: str
    better: Better
    kind: Kind = "typical"
    headline: bool = False
    resource: Resource | None = None
    value: float

    @classmethod
    def of(cls, cell: str, role: str, metric: Metric, value: float) -> Observed:
        """Return the event for a value of a metric; only the subject's metrics can be headlines."""
        return cls(
            cell=cell,
            role=role,
            metric=metric.name,
            unit=metric.unit,
            better=metric.better,
            kind=metric.kind,
            headline=metric.headline and role == SUBJECT,
            resource=metric.resource,
            value=value,
        )

    @property
    def described(self) -> Metric:
        """The metric, with only those of its fields that events hold."""
        return Metric(
            self.metric,
            self.unit,
            self.better,
            kind=self.kind,
            headline=self.headline,
            resource=self.resource,
        )


class SeriesSaved(Base):
    """A binary series of a cell was written as Parquet, relative to the run's folder."""

    type: Literal["series"] = "series"
    cell: str
    role: str = SUBJECT
    name: str
    path: str
    columns: dict[str, str]
    rows: int
    sha256: str


class CellFinished(Base):
    """The cell ended: ``ok``, ``failed`` (with its reason) or ``withheld`` (not trustworthy).

    ``files`` are the files in ``logs`` that exist already, each with its SHA-256 in hexadecimal.
    """

    type: Literal["cell_finished"] = "cell_finished"
    cell: str
    status: CellStatus
    reason: str = ""
    transient: bool = False
    warnings: tuple[str, ...] = ()
    logs: tuple[str, ...] = ()
    measured_s: float = 0.0
    facts: dict[str, Any] = Field(default_factory=dict)
    files: dict[str, str] = Field(default_factory=dict)


class BlockFinished(Base):
    """All batches of the block have ended."""

    type: Literal["block_finished"] = "block_finished"
    block: int


class Decided(Base):
    """The decision whether to measure another block, and why (precision, most blocks, budget)."""

    type: Literal["decided"] = "decided"
    block: int
    go_on: bool
    reason: str


class ArmEnded(Base):
    """An arm gets no further block, because all cells that it tried failed in several blocks.

    ``host`` is the host on which it ends, if several hosts each measure all arms.
    """

    type: Literal["arm_ended"] = "arm_ended"
    arm: str
    block: int
    tried: int
    failed: int
    reason: str
    host: str = ""


class Interrupted(Base):
    """The user or a signal asked the run to stop; ``finishing`` ends the current cell first."""

    type: Literal["interrupted"] = "interrupted"
    finishing: bool
    reason: str


class RunFinished(Base):
    """The last event of a run; a run without it can be resumed."""

    type: Literal["run_finished"] = "run_finished"
    status: Literal["complete", "stopped", "failed"]
    reason: str = ""
    wall_s: float = 0.0
    booting_s: float = 0.0
    measuring_s: float = 0.0
    cells: dict[str, int] = Field(default_factory=dict)
    reasons: dict[str, int] = Field(default_factory=dict)


Event = Annotated[
    RunStarted
    | RunResumed
    | Preflight
    | Calibrated
    | NoiseMeasured
    | PlatformChecked
    | Skipped
    | Planned
    | ImageReady
    | HostJoined
    | HostLost
    | CpusChanged
    | LabFroze
    | SessionStarted
    | SessionFinished
    | Waiting
    | BlockStarted
    | MachineStarting
    | MachineReady
    | MachineStopped
    | ClusterReady
    | ClusterStopped
    | CellStarted
    | Observed
    | SeriesSaved
    | CellFinished
    | BlockFinished
    | Decided
    | ArmEnded
    | Interrupted
    | RunFinished,
    Field(discriminator="type"),
]


class Record(Base):
    """One line of ``events.jsonl``: an event with its place and time (seconds since the epoch).

    ``chain`` is the line's hash, in hexadecimal; old lines have none.
    """

    seq: int
    time: float
    event: Event
    chain: str = ""
