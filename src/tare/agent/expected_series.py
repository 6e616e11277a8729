"""Which series each of the agent's works sends: their columns, and how many bytes they may have.

The agent is one program, so that what an honest one can send is known beforehand. Anything else
comes from a machine that is broken or hostile, and is refused before it is written or read.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tare.agent.message import Nonsense

if TYPE_CHECKING:
    import numpy.typing as npt

Columns = tuple[tuple[str, str], ...]
"""Names and types, in the agent's order."""

COUNTERS = "counters"
USUAL_BYTES = 256 << 20
"""Ten million rows of three columns: an hour of short work on a hundred threads."""
MORE_BYTES = {"tick": (1 << 30) + USUAL_BYTES}
"""By work: what the fullest log of ``tick`` brings, and its other series."""
MOST_BYTES = 4 << 30
"""Of all series of a run together, where every single sample is asked for."""
GREATEST = 1 << 62
"""So much fits into what the analysis counts with, and is 146 years in nanoseconds."""
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

OF_WORK: Mapping[str, Mapping[str, tuple[Columns, ...]]] = {
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
"""By the agent's name of a work, the series it may send, each in the forms it may have. Works that
are not here send none."""


@dataclass(frozen=True)
class Forms:
    """What may come of one run.

    Args:
        of: The series by name, each in the forms that it may have.
        most_bytes: How large all of them together may be.
        counters: Whether it is the sampling of counters, whose columns each machine names.
    """

    of: Mapping[str, tuple[Columns, ...]]
    most_bytes: int = USUAL_BYTES
    counters: bool = False

    def require(self, name: str, columns: Columns) -> None:
        """See that a series is one that was asked for.

        Raises:
            Nonsense: It is not.
        """
        if self.counters:
            kinds = {kind for _, kind in columns}
            if name != COUNTERS or columns[0] != (_TIME, "u64") or kinds != {"u64"}:
                raise Nonsense(f"the series {name} where counters were asked for")
            return
        if name not in self.of:
            raise Nonsense(f"the series {name}, which this work does not send")
        if columns not in self.of[name]:
            names = ", ".join(column for column, _ in columns[:8])
            raise Nonsense(f"the series {name} with the columns {names}, which are not its own")


OF_COUNTERS = Forms({}, counters=True)


def forms_of(work: str, params: Mapping[str, Any]) -> Forms:
    """Return what may come of a run.

    Args:
        work: The agent's name of it.
        params: What it was asked with.
    """
    most = MOST_BYTES if params.get("raw") else MORE_BYTES.get(work, USUAL_BYTES)
    return Forms(OF_WORK.get(work, {}), most)


def require_numbers(series: str, name: str, values: npt.NDArray[Any]) -> None:
    """See that a column holds what can be: nothing of it is below zero, or beyond all counting.

    Args:
        series: The series' name.
        name: The column's.
        values: Its values.

    Raises:
        Nonsense: It does not.
    """
    if values.size == 0 or (values.dtype.kind == "u" and values.dtype.itemsize < 8):
        return
    least, greatest = float(values.min()), float(values.max())
    if not (math.isfinite(least) and math.isfinite(greatest)):
        raise Nonsense(f"series {series}: {name} holds what is no number")
    # A sum is counted with, of what is counted.
    whole = float(values.sum(dtype="f8")) if name in ("count", "samples") else greatest
    if least < 0 or whole >= GREATEST:
        raise Nonsense(f"series {series}: {name} is from {least:g} to {greatest:g}")
