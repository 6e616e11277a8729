"""The classes that the report reads, in one place; it reads nothing else from the analysis.

Everything here is frozen and has no side effects. All values are in the SI unit named next to them,
durations in seconds, except where a name says nanoseconds.
"""

from tare.analysis.data.rundata import OBSERVATION_COLUMNS, RunData
from tare.analysis.effects.comparison import (
    ArmVerdict,
    Comparison,
    Correction,
    EnvironmentChange,
    FailureRate,
    HostCost,
    ProofDifference,
)
from tare.analysis.effects.pairs import AllPairs, Rank, Tie
from tare.analysis.effects.resources import Finding, ResourceCost, ResourceName
from tare.analysis.effects.results import (
    DECLARED,
    ArmSummary,
    BlockValue,
    Effect,
    Family,
    Flag,
    FlagKind,
    Interval,
    IntervalMethod,
    Key,
    Robust,
    Scale,
    VerdictWord,
    as_cost,
    cost_ends,
)
from tare.analysis.series.series_data import (
    Quantile,
    SeriesKey,
    SeriesSummary,
)
from tare.events import Calibrated, Calibration, CpuNoise, NoiseMeasured
from tare.events.metric import Better, Kind, Metric
from tare.events.results import (
    CellResult,
    CheckResult,
    ImageUsed,
    MachineResult,
    PlatformResult,
    SeriesEntry,
    SkippedPart,
)
from tare.events.session_progress import SessionResult

__all__ = [
    "DECLARED",
    "OBSERVATION_COLUMNS",
    "AllPairs",
    "ArmSummary",
    "ArmVerdict",
    "Better",
    "BlockValue",
    "Calibrated",
    "Calibration",
    "CellResult",
    "CheckResult",
    "Comparison",
    "Correction",
    "CpuNoise",
    "Effect",
    "EnvironmentChange",
    "FailureRate",
    "Family",
    "Finding",
    "Flag",
    "FlagKind",
    "HostCost",
    "ImageUsed",
    "Interval",
    "IntervalMethod",
    "Key",
    "Kind",
    "MachineResult",
    "Metric",
    "NoiseMeasured",
    "PlatformResult",
    "ProofDifference",
    "Quantile",
    "Rank",
    "ResourceCost",
    "ResourceName",
    "Robust",
    "RunData",
    "Scale",
    "SeriesEntry",
    "SeriesKey",
    "SeriesSummary",
    "SessionResult",
    "SkippedPart",
    "Tie",
    "VerdictWord",
    "as_cost",
    "cost_ends",
]
