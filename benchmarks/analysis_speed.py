"""How long analysis and report take, and their peak memory: of many samples, of many values.

The runs are synthetic, written through the same event log and series files that a run writes.
What is timed is the whole command, ``tare report DIR``, from the start of Python to its end; CPU
seconds are those of the command and of the helpers that it waited for. The peer is what a script
would do with the same samples: read them whole, take quantiles.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import polars as pl

from benchmarks._results import Fact, Goal, Result, finish, machine_facts
from tare.events import (
    BlockFinished,
    BlockStarted,
    CellFinished,
    CellStarted,
    Event,
    EventLog,
    MachineReady,
    MachineStarting,
    MachineStopped,
    Observed,
    PlatformChecked,
    RunFinished,
    RunStarted,
    SeriesSaved,
)

COMMAND = "import sys; from tare.cli.main import main; sys.exit(main())"
ANALYSIS = """
import sys
from pathlib import Path
from tare.analysis import compare_runs, group_series, load_run, summarise_series
run = load_run(Path(sys.argv[1]))
compare_runs(run)
for entries in group_series([run]).values():
    summarise_series(entries)
"""
PEER = """
import sys
from pathlib import Path
import numpy as np
import polars as pl
for path in sorted(Path(sys.argv[1]).glob("series/*raw.parquet")):
    samples = pl.read_parquet(path).to_series().to_numpy()
    np.quantile(samples, [0.5, 0.9, 0.99, 0.999, 0.9999]), samples.max()
"""
# Until a command executes its own program, its peak includes that of the process that started it.
# A small process starts it, therefore: this one has written a thousand million samples.
STARTER = """
import json, os, sys, time

SOURCES = ("src/tare/analysis", "src/tare/report", "src/tare/events", "src/tare/cli")
began = time.perf_counter()
nowhere = [(os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0)]
child = os.posix_spawn(sys.argv[1], sys.argv[1:], os.environ, file_actions=nowhere)
_, status, usage = os.wait4(child, 0)
seconds = time.perf_counter() - began
cpu_s = usage.ru_utime + usage.ru_stime
print(json.dumps([os.waitstatus_to_exitcode(status), seconds, cpu_s, usage.ru_maxrss * 1024]))
"""
ARMS = {"bare": "bare", "bare-again": "bare", "oci": "oci", "qemu-pv": "qemu", "qemu-em": "qemu"}
BLOCKS = {"values": 30, "samples": 8}
"""Thirty blocks are a study's default most, eight the least that a test needs."""


class Took(NamedTuple):
    """Wall and CPU seconds, and peak resident bytes, of a command."""

    seconds: float
    cpu_s: float
    peak: int


def start(arms: dict[str, str], run: str) -> Iterator[Event]:
    study = {
        "study": run,
        "title": "Synthetic",
        "baseline": "bare",
        "aa": ["bare", "bare-again"] if "bare-again" in arms else None,
        "confidence": 0.95,
        "margin": 0.02,
        "blocks": {"least": 8, "most": BLOCKS[run], "precision": 0.05},
        "arms": {arm: {"platform": platform} for arm, platform in arms.items()},
    }
    yield RunStarted(
        run=run,
        study=study,
        study_path="synthetic.yaml",
        study_sha256="0" * 64,
        seed=1,
        host={"hostname": "synthetic"},
        versions={"tare": "0"},
    )
    for arm, platform in arms.items():
        emulated = platform == "qemu"
        yield PlatformChecked(
            arm=arm, platform=platform, options={}, usable=True, emulated=emulated
        )


def machine(block: int, arm: str, cells: Iterator[Event]) -> Iterator[Event]:
    name = f"tare-synthetic-{block}-{arm}"
    yield MachineStarting(machine=name, block=block, arm=arm, scenario="alone", role="subject")
    yield MachineReady(machine=name, boot_s=1.0, proof={"kernel": {"release": arm}})
    yield from cells
    yield MachineStopped(machine=name, expected=True, host_cost={"cpu_s": 1.0, "rss_bytes": 1e8})


def write(folder: Path, events: Iterator[Event]) -> None:
    folder.mkdir(parents=True)
    with EventLog(folder / "events.jsonl") as log:
        for event in events:
            log.append(event)
        log.append(RunFinished(status="complete", wall_s=100, booting_s=10, measuring_s=80))


def many_values(folder: Path, values: int) -> None:
    """Write a run of as many observations, in cells of ten metrics over thirty blocks."""
    rng = np.random.default_rng(1)
    cells = max(1, round(values / (BLOCKS["values"] * len(ARMS) * 10)))

    def of_machine(block: int, arm: str) -> Iterator[Event]:
        for k in range(cells):
            cell = f"b{block:03d}/{arm}/alone/work[size={k}]"
            yield CellStarted(
                cell=cell, block=block, arm=arm, scenario="alone", workload="work",
                parameters={"size": k},
            )  # fmt: skip
            for m in range(10):
                yield Observed(
                    cell=cell, metric=f"metric-{m}", unit="s", better="lower",
                    kind="maximum" if m == 9 else "tail" if m == 8 else "typical",
                    headline=m == 0, value=float(np.exp(0.05 * rng.standard_normal())),
                )  # fmt: skip
            yield CellFinished(cell=cell, status="ok", measured_s=1.0)

    def events() -> Iterator[Event]:
        yield from start(ARMS, "values")
        for block in range(1, BLOCKS["values"] + 1):
            yield BlockStarted(block=block, order=tuple(ARMS))
            for arm in ARMS:
                yield from machine(block, arm, of_machine(block, arm))
            yield BlockFinished(block=block)

    write(folder, events())


def many_samples(folder: Path, samples: int, *, spread: bool = False) -> None:
    """Write a run of as many raw tick samples, over eight blocks of two arms.

    Args:
        folder: Where.
        samples: How many, in all series together.
        spread: Whether they are spread evenly up to 1 ms, so that hardly two are alike: what is
            counted by the nanosecond cannot take more room.
    """
    rng = np.random.default_rng(2)
    arms = {"bare": "bare", "qemu-pv": "qemu"}
    each = samples // (BLOCKS["samples"] * len(arms))

    def of_machine(block: int, arm: str) -> Iterator[Event]:
        cell = f"b{block:03d}/{arm}/alone/tick[samples={each}]"
        if spread:
            raw = rng.integers(1_000, 1_000_000, each, dtype=np.uint32)
        else:
            raw = (68_000 + rng.gamma(2, 40, each)).astype(np.uint32)
        raw[rng.integers(0, each, each // 60)] += np.uint32(9_000)
        raw[rng.integers(0, each, 20)] += rng.integers(10**5, 10**7, 20, dtype=np.uint32)
        path = folder / "series" / f"{block}-{arm}-raw.parquet"
        pl.DataFrame({"duration_ns": raw}).write_parquet(
            path, compression="zstd", compression_level=1
        )
        yield CellStarted(
            cell=cell, block=block, arm=arm, scenario="alone", workload="tick",
            parameters={"samples": each},
        )  # fmt: skip
        for name, kind, value in (
            ("duration-mean", "typical", float(raw.mean())),
            ("duration-max", "maximum", float(raw.max())),
        ):
            yield Observed(
                cell=cell, metric=name, unit="s", better="lower", kind=kind,  # type: ignore[arg-type]
                headline=True, value=value / 1e9,
            )  # fmt: skip
        yield SeriesSaved(
            cell=cell, name="raw", path=str(path.relative_to(folder)),
            columns={"duration_ns": "UInt32"}, rows=each,
            sha256=hashlib.sha256(path.read_bytes()).hexdigest(),
        )  # fmt: skip
        yield CellFinished(cell=cell, status="ok", measured_s=1.0)

    def events() -> Iterator[Event]:
        (folder / "series").mkdir()
        yield from start(arms, "samples")
        for block in range(1, BLOCKS["samples"] + 1):
            yield BlockStarted(block=block, order=tuple(arms))
            for arm in arms:
                yield from machine(block, arm, of_machine(block, arm))
            yield BlockFinished(block=block)

    write(folder, events())


def timed(argv: Sequence[str]) -> Took:
    """Run Python with ``argv`` and return what it took.

    Raises:
        SystemExit: It failed.
    """
    # Users' Python keeps what it compiled, as the first run here does.
    keeping = {name: os.environ[name] for name in os.environ if name != "PYTHONDONTWRITEBYTECODE"}
    starter = [sys.executable, "-c", STARTER, sys.executable, *argv]
    done = subprocess.run(starter, stdout=subprocess.PIPE, text=True, env=keeping, check=True)
    status, seconds, cpu_s, peak = json.loads(done.stdout)
    if status:
        raise SystemExit(f"{argv[-1]}: exit status {status}")
    return Took(seconds, cpu_s, peak)


def several(argv: Sequence[str], times: int) -> list[Took]:
    timed(argv)  # The first one fills the caches.
    return [timed(argv) for _ in range(times)]


def goals(name: str, limit_s: float, runs: Sequence[Took], peak: float | None) -> list[Goal]:
    seconds = [run.seconds for run in runs]
    found = [
        Goal(
            name=f"{name}: analysis and report, the whole command",
            peer="the limit set",
            limit=limit_s,
            found=statistics.median(seconds),
            unit="s",
            detail=f"median of {len(runs)}, {min(seconds):.2f} to {max(seconds):.2f} s",
        )
    ]
    if peak is not None:
        most = max(run.peak for run in runs) / 1e9
        found.append(Goal(f"{name}: peak memory", "the limit set", peak, most, "GB"))
    return found


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--samples", type=int, default=50_000_000)
    parser.add_argument("--values", type=int, default=10_000)
    parser.add_argument("--many-values", type=int, default=100_000)
    parser.add_argument("--times", type=int, default=5)
    asked = parser.parse_args(argv)
    facts = machine_facts()
    with tempfile.TemporaryDirectory(prefix="tare-bench-") as temporary:
        long, wide, widest = (Path(temporary, name) for name in ("samples", "values", "many"))
        many_samples(long, asked.samples)
        many_values(wide, asked.values)
        many_values(widest, asked.many_values)
        reports = {
            folder: several(["-c", COMMAND, "report", str(folder)], asked.times)
            for folder in (long, wide, widest)
        }
        analyses = {
            folder: several(["-c", ANALYSIS, str(folder)], asked.times)
            for folder in (long, wide, widest)
        }
        peer = several(["-c", PEER, str(long)], asked.times)

    def fact(name: str, runs: Sequence[Took]) -> list[Fact]:
        return [
            Fact(f"{name}, median", statistics.median(run.seconds for run in runs), "s"),
            Fact(f"{name}, CPU time, median", statistics.median(run.cpu_s for run in runs), "s"),
            Fact(f"{name}, peak memory", max(run.peak for run in runs) / 1e9, "GB"),
        ]

    result = Result(
        benchmark="analysis_speed",
        goals=(
            *goals(f"{asked.samples:,} raw samples", 5.0, reports[long], 1.0),
            *goals(f"{asked.values:,} observations", 1.0, reports[wide], None),
            *goals(f"{asked.many_values:,} observations", 5.0, reports[widest], 0.4),
        ),
        facts=(
            *fact("samples: analysis alone", analyses[long]),
            *fact("samples: read whole, numpy quantiles", peer),
            *fact(f"{asked.values:,} observations: the whole command", reports[wide]),
            *fact(f"{asked.values:,} observations: analysis alone", analyses[wide]),
            *fact(f"{asked.many_values:,} observations: the whole command", reports[widest]),
            *fact(f"{asked.many_values:,} observations: analysis alone", analyses[widest]),
        ),
        samples={
            "report_of_samples_s": [run.seconds for run in reports[long]],
            "report_of_observations_s": [run.seconds for run in reports[wide]],
            "report_of_many_observations_s": [run.seconds for run in reports[widest]],
        },
    )
    return finish(result, facts)


if __name__ == "__main__":
    sys.exit(main())
