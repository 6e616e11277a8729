"""The series that each workload of the agent sends: their columns and maximum sizes.

The agent is one program, so the series of a correct agent are known beforehand. Any other series
comes from a broken or hostile machine, and is refused before it is stored.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tare.agent.message import InvalidMessage

if TYPE_CHECKING:
    import numpy.typing as npt

Columns = tuple[tuple[str, str], ...]
"""Names and types, in the agent's order."""

COUNTERS = "counters"
USUAL_BYTES = 256 << 20
"""Ten million rows of three columns: an hour of short work on a hundred threads."""
MORE_BYTES = {"tick": (1 << 30) + USUAL_BYTES}
"""Limits in bytes by workload: for ``tick`` 1 GiB for the largest log, plus its other series."""
MOST_BYTES = 4 << 30
"""The limit in bytes of all series of a run together, if every single sample is requested."""
GREATEST = 1 << 62
"""The largest value that the analysis can represent; 146 years in nanoseconds."""
_TIME = "time_ns"

_HISTOGRAM: Columns = (("low_ns", "f64"), ("width_ns", "f64"), ("count", "u64"))
_RAW: Columns = (("duration_ns", "u32"),)
_ITERATIONS: Columns = (("thread", "u64"), (_TIME, "u64"), ("iteration_ns", "f64"))
_RUNS: Columns = (("begin_ns", "u64"), ("end_ns", "u64"))
_RESPONSES: Columns = (
    (_TIME, "u64"),
    ("due", "u64"),
    ("completed", "u64"),
    ("failed", "u64"),
    ("connections", "u64"),
    ("body_bytes", "u64"),
    ("mean_ns", "f64"),
    ("median_ns", "u64"),
    ("p99_ns", "u64"),
    ("max_ns", "u64"),
)
_KERNELS = (
    "assignment",
    "bitfield",
    "fourier",
    "fp-emulation",
    "huffman",
    "idea",
    "lu",
    "neural-net",
    "numeric-sort",
    "string-sort",
)

SERIES_OF_WORKLOAD: Mapping[str, Mapping[str, tuple[Columns, ...]]] = {
    **{kernel: {"iterations": (_ITERATIONS,)} for kernel in _KERNELS},
    "bytemark": {"iterations": ((("kernel", "u64"), *_ITERATIONS),)},
    "filebench": {
        "operations": ((("operation", "u64"), ("up_to_ns", "u64"), ("count", "u64")),),
    },
    "fio": {
        "operations": ((("direction", "u64"), ("latency_ns", "u64"), ("count", "u64")),),
    },
    "hog": {"runs": (_RUNS, (*_RUNS, ("charged_ns", "u64")))},
    "http-load": {"responses": (_RESPONSES,), "histogram": (_HISTOGRAM,)},
    "memory-bandwidth": {"repetitions": ((("kernel", "u64"), ("duration_ns", "f64")),)},
    "memory-latency": {
        "ladder": ((("size_bytes", "u64"), (_TIME, "u64"), ("load_ns", "f64")),),
    },
    "program": {
        "repetitions": ((("duration_ns", "f64"), ("user_ns", "f64"), ("system_ns", "f64")),),
    },
    "stacks": {"text": ((("byte", "u8"),),)},
    "switch": {
        "histogram": (_HISTOGRAM,),
        "scatter": (
            (
                (_TIME, "u64"),
                ("first", "u64"),
                ("min_ns", "f64"),
                ("max_ns", "f64"),
                ("mean_ns", "f64"),
                ("samples", "u64"),
            ),
        ),
        "raw": (_RAW,),
    },
    "tick": {
        "scatter": (((_TIME, "u64"), ("min_ns", "f64"), ("max_ns", "f64"), ("samples", "u64")),),
        "gaps": (((_TIME, "u64"), ("excess_ns", "u64")),),
        "histogram": (_HISTOGRAM,),
        "raw": (_RAW,),
    },
    "wakeup": {"histogram": (_HISTOGRAM,)},
}
"""The series that each workload may send, by name, each with its possible columns. A workload that
is not listed sends none."""


@dataclass(frozen=True)
class ExpectedSeries:
    """The series that one run may send.

    Args:
        of: The series by name, each with its possible columns.
        most_bytes: The maximum size of all series together, in bytes.
        counters: Whether the run samples counters, whose columns differ between machines.
    """

    of: Mapping[str, tuple[Columns, ...]]
    most_bytes: int = USUAL_BYTES
    counters: bool = False

    def require(self, name: str, columns: Columns) -> None:
        """Check that a series is expected.

        Raises:
            InvalidMessage: The series, or one of its columns, is not expected.
        """
        if self.counters:
            kinds = {kind for _, kind in columns}
            if name != COUNTERS or columns[0] != (_TIME, "u64") or kinds != {"u64"}:
                raise InvalidMessage(f"the series {name} where counters were requested")
            return
        if name not in self.of:
            raise InvalidMessage(f"the series {name}, which this workload does not send")
        if columns not in self.of[name]:
            names = ", ".join(column for column, _ in columns[:8])
            raise InvalidMessage(
                f"the series {name} with the columns {names}, which are not its own"
            )


COUNTER_SERIES = ExpectedSeries({}, counters=True)


def expected_series(workload: str, params: Mapping[str, Any]) -> ExpectedSeries:
    """Return the series that a run may send.

    Args:
        workload: The agent's name of the workload.
        params: The workload's parameters.
    """
    most = MOST_BYTES if params.get("raw") else MORE_BYTES.get(workload, USUAL_BYTES)
    return ExpectedSeries(SERIES_OF_WORKLOAD.get(workload, {}), most)


def require_numbers(series: str, name: str, values: npt.NDArray[Any]) -> None:
    """Check that a column has plausible values: finite, not negative, and below ``GREATEST``.

    Args:
        series: The series' name.
        name: The column's name.
        values: The column's values.

    Raises:
        InvalidMessage: A value is not plausible.
    """
    if values.size == 0 or (values.dtype.kind == "u" and values.dtype.itemsize < 8):
        return
    least, greatest = float(values.min()), float(values.max())
    if not (math.isfinite(least) and math.isfinite(greatest)):
        raise InvalidMessage(f"series {series}: {name} has a value that is not a number")
    # The analysis adds up counts, so their sum has to be plausible, too.
    whole = float(values.sum(dtype="f8")) if name in ("count", "samples") else greatest
    if least < 0 or whole >= GREATEST:
        raise InvalidMessage(f"series {series}: {name} is from {least:g} to {greatest:g}")
