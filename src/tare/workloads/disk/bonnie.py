"""``bonnie``: run the real Bonnie++ on the machine's own disk, and convert its CSV to SI units."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from pydantic import Field, model_validator

from tare.units import Duration, Size
from tare.workloads.contract import NO_CLAIM, DiskClaim, Metric, Parameters, Workload
from tare.workloads.disk.fio import FOLDER
from tare.workloads.disk.metrics import DISK_METRICS, disk_values
from tare.workloads.values import words

KIB = 1024.0
_PERCENT = 100.0
FORMAT = "1.98"
"""The version of the CSV that Bonnie++ 2.00 writes; bon_csv2html(1) lists its fields in order."""
TOO_QUICK = re.compile(r"\++")
"""The text that Bonnie++ writes for a phase of less than half a second, which it does not rate."""

_RATES: Mapping[str, tuple[str, str]] = {
    "put-char": ("B/s", "Bytes written per second, one by one"),
    "put-block": ("B/s", "Bytes written per second, in blocks"),
    "rewrite": ("B/s", "Bytes per second that are read, changed and written back"),
    "get-char": ("B/s", "Bytes read per second, one by one"),
    "get-block": ("B/s", "Bytes read per second, in blocks"),
    "seeks": ("1/s", "Random seeks per second, each with a read and some with a write"),
}
_FILES: Mapping[str, tuple[str, str]] = {
    "sequential-create": ("1/s", "Files created per second, in order of their names"),
    "sequential-stat": ("1/s", "Files looked up per second, in order of their names"),
    "sequential-delete": ("1/s", "Files deleted per second, in order of their names"),
    "random-create": ("1/s", "Files created per second, in random order"),
    "random-stat": ("1/s", "Files looked up per second, in random order"),
    "random-delete": ("1/s", "Files deleted per second, in random order"),
}
PHASES: Mapping[str, tuple[str, str]] = {**_RATES, **_FILES}
HEADLINES = ("put-block", "get-block", "seeks")
_FIRST_RATE = 9
_FIRST_FILE_RATE = 26
_FIRST_LATENCY = 38
_FIELDS = 50
_LATENCY = re.compile(r"([0-9]{1,15}(?:\.[0-9]{1,9})?)(ns|us|ms|s)?")
_SECONDS = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0}
_MIB = 1 << 20
PREPARATION_S = 1.0
INSTEAD = (
    "write `direct: true` and `chars: false`, or a `size` of twice the memory; or declare it with "
    "`cached: true`"
)
INSTEAD_OF_DIRECT = (
    "`direct` does not reach the disk here; write a `size` of twice the machine's memory"
)


def _phase_metrics(*phases: str) -> frozenset[str]:
    """Return the names of the phases' metrics: rate, share of a CPU and longest operation."""
    return frozenset(f"{phase}{which}" for phase in phases for which in ("", "-cpu", "-latency"))


FROM_READS = _phase_metrics("get-char", "get-block", "rewrite", "seeks")
FROM_WRITES = _phase_metrics("put-char", "put-block", "rewrite")
_RATE = 50e6
_CHARS = 1e6


def _lower(words: str) -> str:
    return words[0].lower() + words[1:]


class BonnieParameters(Parameters):
    """How large a file, and how many small ones."""

    size: Size = Field(
        default=64 << 20,
        ge=2 << 20,
        description="Size of the file. It should be twice the machine's memory; with less, the "
        "page cache counts, and the result says so.",
    )
    files: int = Field(
        default=1,
        ge=0,
        le=1000,
        description="Number of files to create, look up and delete, in multiples of 1024; 0: none.",
    )
    chars: bool = Field(
        default=True,
        description="Also write and read byte by byte, which takes by far the longest.",
    )
    char_size: Size = Field(
        default=20 << 20,
        ge=1 << 20,
        description="Part of the file to write and read byte by byte; 20 MiB is Bonnie++'s own. If "
        "the file is larger than the memory, that part has left the page cache before it is read.",
    )
    concurrency: int = Field(
        default=1,
        ge=1,
        le=256,
        description="Number of concurrent copies of each phase, as Bonnie++'s `-c`: on the one "
        "file of `size`, and on small files of their own. Rates are totals.",
    )
    direct: bool = Field(default=False, description="Bypass the page cache (O_DIRECT).")
    cached: bool = Field(
        default=False,
        description="Measure the page cache on purpose. Otherwise values of reads or of writes are "
        "withheld if the disk did less than half of their work.",
    )
    timeout: Duration = Field(default=1800.0, gt=0, le=86_400, description="Time limit.")

    @model_validator(mode="after")
    def _agrees(self) -> BonnieParameters:
        if self.direct and self.chars:
            raise ValueError(
                "byte-by-byte access cannot bypass the page cache: write `chars: false`"
            )
        if self.direct and self.cached:
            raise ValueError("`direct` bypasses the page cache: remove `cached` or `direct`")
        if self.chars and "char_size" in self.model_fields_set and self.char_size > self.size:
            raise ValueError("`char-size` is a part of the file: at most its `size`")
        return self


class Bonnie(Workload[BonnieParameters]):
    """The program itself, and all its phases."""

    name = "bonnie"
    resource = "disk"
    summary = (
        "Bonnie++'s phases on a disk of the machine's own: output and input by byte and by block, "
        "rewriting, seeks, and creating, looking up and deleting files."
    )
    parameters = BonnieParameters
    needs = frozenset({"disk", "toolbox"})
    from_machine = ("memory_bytes",)
    metrics = (
        *(
            Metric(name, unit, "higher", f"{words}.", headline=name in HEADLINES)
            for name, (unit, words) in PHASES.items()
        ),
        *(
            Metric(f"{name}-cpu", "1", "lower", f"Share of a CPU that was used: {_lower(words)}.")
            for name, (_, words) in PHASES.items()
        ),
        *(
            Metric(
                f"{name}-latency",
                "s",
                "lower",
                f"The longest single operation: {_lower(words)}.",
                kind="maximum",
            )
            for name, (_, words) in PHASES.items()
        ),
        *DISK_METRICS,
    )

    def request(self, parameters: BonnieParameters) -> dict[str, Any]:
        """Return the agent's parameters: Bonnie++'s command line (bonnie++(8))."""
        argv = ["bonnie++", "-q", "-d", FOLDER, "-u", "0:0", "-m", "tare"]
        # Bonnie++ refuses files of less than twice the memory, unless `-r` gives a smaller memory.
        mebibytes = parameters.size // _MIB
        argv += ["-s", f"{mebibytes}", "-r", f"{max(1, mebibytes // 2)}"]
        argv += ["-n", f"{parameters.files}:1024:0:1" if parameters.files else "0"]
        argv += ["-f"]
        if parameters.chars:
            argv[-1] += f"{self._chars(parameters) // _MIB}"
        argv += ["-D"] * parameters.direct + ["-c", f"{parameters.concurrency}"]
        small = parameters.files * parameters.concurrency
        return {
            "argv": argv,
            "bytes": parameters.size + small * 1024 * 4096,
            "timeout_s": parameters.timeout,
            "direct": parameters.direct,
            "times_memory": 2.0,
        }

    def expected_s(self, parameters: BonnieParameters) -> float:
        """Estimate the seconds of one cell: four passes in blocks, two byte by byte."""
        chars = 2 * self._chars(parameters) / _CHARS if parameters.chars else 0.0
        small = 5.0 * parameters.files * parameters.concurrency
        return PREPARATION_S + 4 * parameters.size / _RATE + chars + small

    def _chars(self, parameters: BonnieParameters) -> int:
        return min(parameters.char_size, parameters.size)

    def disk_claim(self, parameters: BonnieParameters, result: Mapping[str, Any]) -> DiskClaim:
        """Return the bytes that the rated phases in blocks moved: the whole file in each phase.

        Through the page cache, the claim is half of that. Bonnie++ requires a file of twice the
        memory, and of such a file a pass can find at most half in the cache.

        Raises:
            KeyError: A value is missing.
            ValueError: Bonnie++'s output has no valid CSV.
        """
        if parameters.cached:
            return NO_CLAIM
        rated = bonnie_values(words(result, "output"))
        each = parameters.size * (1.0 if parameters.direct else 0.5)
        read, written = (
            each * sum(phase in rated for phase in phases)
            for phases in (("rewrite", "get-block"), ("put-block", "rewrite"))
        )
        instead = INSTEAD_OF_DIRECT if parameters.direct else INSTEAD
        return DiskClaim(read, written, instead, FROM_READS, FROM_WRITES)

    def observe(self, parameters: BonnieParameters, result: Mapping[str, Any]) -> dict[str, float]:
        """Return the metrics of each phase; phases too quick for Bonnie++ to rate are left out.

        Raises:
            KeyError: A value is missing.
            ValueError: Bonnie++'s output has no valid CSV, or a value is not a finite number.
        """
        return bonnie_values(words(result, "output")) | disk_values(result)


def bonnie_values(output: str) -> dict[str, float]:
    """Return the metrics in Bonnie++'s output.

    Args:
        output: Its standard output; the CSV is the last line that begins with `FORMAT`.

    Raises:
        ValueError: There is no such line, or it differs from the CSV of Bonnie++ 2.00.
    """
    rows = [row for line in output.splitlines() if (row := line.split(","))[0] == FORMAT]
    if not rows:
        raise ValueError(f"Bonnie++ wrote no CSV of format {FORMAT} in its output")
    row = rows[-1]
    if len(row) < _FIELDS:
        raise ValueError(f"Bonnie++'s CSV has {len(row)} fields instead of {_FIELDS}")
    found: dict[str, float] = {}
    for phases, first in ((_RATES, _FIRST_RATE), (_FILES, _FIRST_FILE_RATE)):
        for index, (name, (unit, _)) in enumerate(phases.items()):
            rate, cpu = row[first + 2 * index], row[first + 2 * index + 1]
            if (value := _number(rate)) is not None:
                # Bonnie++ reports kibibytes per second.
                found[name] = value * (KIB if unit == "B/s" else 1.0)
                if (share := _number(cpu)) is not None:
                    found[f"{name}-cpu"] = share / _PERCENT
    for index, name in enumerate(PHASES):
        if (longest := _latency(row[_FIRST_LATENCY + index])) is not None:
            found[f"{name}-latency"] = longest
    return found


def _number(text: str) -> float | None:
    if not text or TOO_QUICK.fullmatch(text):
        return None
    if not re.fullmatch(r"[0-9]{1,15}(\.[0-9]{1,9})?", text):
        raise ValueError(f"Bonnie++ wrote {text!r} where a number belongs")
    return float(text)


def _latency(text: str) -> float | None:
    if not text or TOO_QUICK.fullmatch(text):
        return None
    match = _LATENCY.fullmatch(text)
    if match is None:
        raise ValueError(f"Bonnie++ wrote {text!r} where a time belongs")
    return float(match[1]) * _SECONDS[match[2] or "s"]
