"""Synthetic runs for the report's tests: plausible events of runs that never happened.

Nothing here was measured. Every run's title says so, so that no picture of it can be taken for a
result.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any, Literal

import numpy as np
import polars as pl

from report.report_values import ArmSpec, CellSpec, observations_of, series_of
from tare.analysis.data.load import load_runs
from tare.analysis.effects.compare import compare
from tare.analysis.model import Comparison
from tare.events import (
    BlockFinished,
    BlockStarted,
    CellFinished,
    CellStarted,
    Check,
    Decided,
    EventLog,
    ImageReady,
    Interrupted,
    MachineReady,
    MachineStarting,
    MachineStopped,
    Observed,
    Planned,
    PlatformChecked,
    Preflight,
    RunFinished,
    RunStarted,
    SeriesSaved,
    Skipped,
)

CellStatus = Literal["ok", "failed", "withheld"]


QUICK: dict[str, ArmSpec] = {
    "bare": ArmSpec(),
    "bare-again": ArmSpec(),
    "oci": ArmSpec(
        "oci", cpu=1.001, latency=1.01, tail=1.2, options={"runtime": "runc"},
        versions={"runc": "1.1.5"},
    ),
    "qemu-pv": ArmSpec(
        "qemu", cpu=14.2, memory=3.1, latency=21, tail=9, spread=0.02, emulated=True,
        options={"accelerator": "tcg", "devices": "paravirtual"}, versions={"qemu": "7.2.9"},
    ),
    "qemu-em": ArmSpec(
        "qemu", cpu=14.3, memory=3.15, latency=22, tail=12, spread=0.02, emulated=True,
        options={"accelerator": "tcg", "devices": "emulated"}, versions={"qemu": "7.2.9"},
    ),
    "kvm": ArmSpec(
        "qemu", usable=False,
        reason="/dev/kvm opens, but no guest booted within 20 s",
        options={"accelerator": "kvm"}, versions={"qemu": "7.2.9"},
    ),
}  # fmt: skip


CELLS = (
    CellSpec("tick", {"samples": 20000, "loop_s": 6.8e-05}),
    CellSpec("switch", {"threads": 2, "rounds": 2000}),
    CellSpec("switch", {"threads": 100, "rounds": 2000}),
    CellSpec("memory-bandwidth", {"seconds": 1.0}),
    CellSpec("numeric-sort", {"seconds": 1.0, "threads": 1}),
)


class Writer:
    """Writes one invented run, block by block."""

    def __init__(self, folder: Path, arms: dict[str, ArmSpec], seed: int, title: str) -> None:
        self.folder, self.arms, self.title = folder, arms, title
        self.random = np.random.default_rng(seed)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "series").mkdir(exist_ok=True)
        self.log = EventLog(folder / "events.jsonl")

    def begin(
        self,
        *,
        run: str,
        baseline: str,
        aa: tuple[str, str] | None,
        blocks: int,
        unfit: str = "",
        changes: tuple[str, ...] = (),
        **study: Any,
    ) -> None:
        resolved: dict[str, Any] = {
            "study": "quick",
            "title": self.title,
            "baseline": baseline,
            "aa": list(aa) if aa else None,
            "blocks": {"least": blocks, "most": blocks, "precision": 0.05, "budget": None},
            "margin": 0.02,
            "confidence": 0.95,
            "shape": {"vcpus": 1, "memory": 256 << 20},
            "arms": {name: {"platform": arm.platform} for name, arm in self.arms.items()},
            "scenarios": {"pinned": {"subject": {"cpus": "pinned"}}},
            "workloads": {"tick": {"workload": "tick"}},
            **study,
        }
        self.log.append(
            RunStarted(
                run=run,
                study=resolved,
                study_path="studies/quick.yaml",
                study_sha256=hashlib.sha256(b"quick").hexdigest(),
                seed=421337,
                host={
                    "name": "synthetic",
                    "cpu": {"model": "Invented CPU @ 2.80 GHz", "online": 2},
                    "memory_bytes": 8 << 30,
                    "kernel": "6.1.0-18-amd64",
                },
                versions={"tare": "0.1.0", "python": "3.11.2"},
                changes=changes,
            )
        )
        self.log.append(
            Preflight(
                checks=(
                    Check(name="frequency governor", level="warn", found="schedutil",
                          hint="cpupower frequency-set -g performance"),
                    Check(
                        name="load",
                        level="bad" if unfit else "ok",
                        found=unfit or "0.04 over one minute",
                    ),
                    Check(name="other guests", level="ok", found="none"),
                    Check(name="mitigations", level="ok", found="6 active"),
                )
            )
        )  # fmt: skip
        self.log.append(
            Planned(
                blocks_most=blocks, cells_per_block=4, expected_block_s=9.0,
                notes=("pinned: 1 cpu-load neighbour to fill a host of 2 CPUs",),
            )
        )  # fmt: skip
        for name, arm in self.arms.items():
            self.log.append(
                PlatformChecked(
                    arm=name, platform=arm.platform, options=arm.options, usable=arm.usable,
                    reason=arm.reason, emulated=arm.emulated, versions=arm.versions,
                    hint="" if arm.usable else "run tare doctor", mark=arm.mark,
                )
            )  # fmt: skip
            if not arm.usable:
                self.log.append(Skipped(arm=name, reason=arm.reason))
            elif arm.platform == "qemu":
                self.log.append(
                    ImageReady(arm=name, kernel="6.1.0-18-rt-amd64", digest="sha256:" + "4f" * 32,
                               cached=True, took_s=0.012)
                )  # fmt: skip

    def block(
        self,
        number: int,
        *,
        statuses: dict[tuple[str, str], CellStatus] | None = None,
        cells: tuple[CellSpec, ...] = CELLS,
        scenario: str = "pinned",
        series: bool = True,
        reason: str = "the guest panicked",
        console: tuple[str, ...] = (),
        repeats: int = 1,
        cut: bool = False,
        neighbour: bool = False,
        counters: bool = False,
    ) -> None:
        statuses = statuses or {}
        usable = [name for name, arm in self.arms.items() if arm.usable]
        self.random.shuffle(usable)
        self.log.append(
            BlockStarted(block=number, order=tuple(f"{name}/{scenario}" for name in usable))
        )
        host = float(self.random.normal(0, 0.01))
        for place, name in enumerate(usable):
            arm = self.arms[name]
            machine = f"tare-synthetic-{number}-{place}-{name}"
            self._machine(machine, number, name, arm, scenario)
            boot = float(np.exp(host + self.random.normal(0, arm.spread)))
            for cell in cells:
                for repeat in range(1, repeats + 1):
                    status = statuses.get((name, cell.workload), "ok")
                    self._cell(
                        number, name, arm, scenario, cell, repeat, boot, status, reason, series,
                        counters,
                    )  # fmt: skip
            if neighbour:
                self._neighbour(number, name, scenario)
            failed = any(key[0] == name and status == "failed" for key, status in statuses.items())
            self.log.append(
                MachineStopped(
                    machine=machine,
                    expected=not failed,
                    reason=reason if failed else "",
                    console_tail=console if failed else (),
                    host_cost={"cpu_s": 2.1 * arm.cpu, "rss_bytes": 3e8 if arm.emulated else 9e6},
                )
            )
        if not cut:
            self.log.append(BlockFinished(block=number))
            self.log.append(Decided(block=number, go_on=True, reason="fewer blocks than the least"))

    def end(self, status: Literal["complete", "stopped", "failed"] | None = "complete") -> None:
        if status is None:
            self.log.append(Interrupted(finishing=False, reason="SIGINT"))
        else:
            self.log.append(
                RunFinished(status=status, reason="" if status == "complete" else "out of budget",
                            wall_s=301.0, booting_s=92.0, measuring_s=204.0)
            )  # fmt: skip
        self.log.close()

    def _machine(self, machine: str, block: int, name: str, arm: ArmSpec, scenario: str) -> None:
        self.log.append(
            MachineStarting(machine=machine, block=block, arm=name, scenario=scenario,
                            role="subject")
        )  # fmt: skip
        guest = arm.platform == "qemu"
        self.log.append(
            MachineReady(
                machine=machine,
                boot_s=float((2.0 if guest else 0.02) * self.random.uniform(0.95, 1.1)),
                proof={
                    "kernel": {"release": "6.1.0-18-rt-amd64" if guest else "6.1.0-18-amd64"},
                    "clocksource": "tsc" if not arm.emulated else "hpet",
                    "cpu": {"model": "QEMU TCG CPU" if guest else "Invented CPU @ 2.80 GHz"},
                    "hypervisor": arm.platform if guest else None,
                },
                placement={"cpus": [1]},
            )
        )

    def _cell(
        self, block: int, name: str, arm: ArmSpec, scenario: str, spec: CellSpec, repeat: int,
        boot: float, status: CellStatus, reason: str, series: bool, counters: bool,
    ) -> None:  # fmt: skip
        cell = f"b{block:03d}/{name}/{scenario}/{spec.label}"
        cell += f"#{repeat}" if repeat > 1 else ""
        self.log.append(
            CellStarted(cell=cell, block=block, arm=name, scenario=scenario,
                        workload=spec.workload, parameters=spec.parameters)
        )  # fmt: skip
        if status == "ok":
            noise = boot * float(np.exp(self.random.normal(0, arm.spread / 2)))
            for observed in observations_of(self.random, cell, spec, arm, noise):
                self.log.append(observed)
            if series and spec.workload == "tick":
                self._save_series(cell, arm)
            if counters:
                self._save_counters(cell)
        self.log.append(
            CellFinished(
                cell=cell,
                status=status,
                reason="" if status == "ok" else reason,
                logs=() if status == "ok" else ("machines/console.log: " + reason,),
                measured_s=1.4,
                warnings=("the TSC is not invariant here",) if arm.emulated else (),
                facts={"clock": {"drift_ppm": 3.1, "trusted": status != "withheld"}},
            )
        )

    def _save_counters(self, cell: str) -> None:
        """One CPU that is busy for half of five seconds."""
        seconds = np.arange(5, dtype=np.int64)
        frame = pl.DataFrame(
            {"time_ns": seconds * 10**9, "cpu.user": seconds * 50, "cpu.idle": seconds * 50}
        )
        self._save(cell, "counters", frame)

    def _neighbour(self, block: int, name: str, scenario: str) -> None:
        cell = f"b{block:03d}/{name}/{scenario}/cpu-load"
        self.log.append(
            CellStarted(
                cell=cell, block=block, arm=name, scenario=scenario, workload="cpu-load",
                parameters={},
            )
        )  # fmt: skip
        self.log.append(
            Observed(
                cell=cell, role="neighbour-1", metric="rate", unit="1/s", better="higher",
                value=float(self.random.uniform(9e8, 1e9)),
            )
        )  # fmt: skip
        self.log.append(CellFinished(cell=cell, status="ok"))

    def _save_series(self, cell: str, arm: ArmSpec) -> None:
        scatter, histogram = series_of(self.random, arm)
        for name, frame in (("scatter", scatter), ("histogram", histogram)):
            self._save(cell, name, frame)

    def _save(self, cell: str, name: str, frame: pl.DataFrame) -> None:
        stem = hashlib.sha256(cell.encode()).hexdigest()[:12]
        path = f"series/{stem}-subject-{name}.parquet"
        frame.write_parquet(self.folder / path)
        self.log.append(
            SeriesSaved(
                cell=cell,
                name=name,
                path=path,
                columns={k: str(v) for k, v in frame.schema.items()},
                rows=frame.height,
                sha256=hashlib.sha256((self.folder / path).read_bytes()).hexdigest(),
            )
        )


def write_run(
    folder: Path,
    *,
    arms: dict[str, ArmSpec] | None = None,
    baseline: str = "bare",
    aa: tuple[str, str] | None = ("bare", "bare-again"),
    blocks: int = 8,
    run: str = "synthetic-20261121",
    title: str = "Synthetic data, not measured: what this machine’s platforms cost",
    ended: Literal["complete", "stopped", "failed"] | None = "complete",
    seed: int = 7,
    statuses: dict[int, dict[tuple[str, str], CellStatus]] | None = None,
    unfit: str = "",
    changes: tuple[str, ...] = (),
    **block: Any,
) -> Path:
    """Write an invented run into ``folder``; ``statuses`` maps block → (arm, workload) → status."""
    writer = Writer(folder, arms or QUICK, seed, title)
    writer.begin(run=run, baseline=baseline, aa=aa, blocks=blocks, unfit=unfit, changes=changes)
    for number in range(1, blocks + 1):
        cut = ended is None and number == blocks
        writer.block(number, statuses=(statuses or {}).get(number), cut=cut, **block)
    writer.end(ended)
    return folder


def hostile() -> str:
    """Return text that breaks out of HTML, attributes, CSS, SVG and LaTeX if let through."""
    return (
        "<script>alert(1)</script>\"'><img src=x onerror=alert(2)>&amp;${7*7}{{7*7}}\\input{x}_%#"
    )


def json_hostile() -> str:
    """Return ``hostile`` with control characters and a null, as a console may print."""
    return str(json.loads('"\\u0000\\u001b[31m\\ud7ff\\ufffe"')) + hostile()


def comparison_of(*folders: Path) -> Comparison:
    """Load and compare runs, as ``tare report`` does."""
    return compare(load_runs(folders))
