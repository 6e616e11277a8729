"""What takes longer than ``make test`` may: run before an issue is called resolved.

usage: .venv/bin/python tests/acceptance.py [PART...]
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal
from xml.etree import ElementTree

from rich.console import Console
from rich.table import Table

ROOT = Path(__file__).resolve().parent.parent
SCRIPTS = ROOT / "scripts"
NOTHING_COLLECTED = 5
"""pytest's status where no test was selected (its documentation of exit codes)."""
NOT_HERE = 3
"""By this status a script says that this computer cannot have what it is for."""

Result = Literal["passed", "failed", "skipped"]


@dataclass(frozen=True)
class Outcome:
    """The result of one part, with the reasons of skipped and failed tests."""

    result: Result
    counts: Mapping[str, int] = field(default_factory=dict)
    why: tuple[str, ...] = ()


@dataclass(frozen=True)
class Part:
    """One row of the table: what it shows, and how it is run."""

    name: str
    shows: str
    carry_out: Callable[[], Outcome]


def run_tests(*selected: str, path: str = "") -> Outcome:
    """Run some tests, with another directory first in PATH where one is named."""
    with tempfile.TemporaryDirectory(prefix="tare-acceptance-") as folder:
        report = Path(folder) / "report.xml"
        argv = [sys.executable, "-m", "pytest", f"--junit-xml={report}", *selected]
        wide = {**os.environ, "PATH": os.pathsep.join(filter(None, (path, os.environ["PATH"])))}
        status = subprocess.run(argv, cwd=ROOT, env=wide, check=False).returncode
        if status == NOTHING_COLLECTED:
            return Outcome("skipped", why=("there is no such test",))
        if not report.exists():
            return Outcome("failed", why=(f"pytest ended with status {status}",))
        outcome = outcome_in(report)
    return replace(outcome, result="failed") if status else outcome


def outcome_in(report: Path) -> Outcome:
    """Return what pytest wrote into a report of JUnit's form."""
    counts: Counter[str] = Counter()
    why: Counter[str] = Counter()
    for case in ElementTree.parse(report).iter("testcase"):
        end = "passed"
        for kind, word in (("skipped", "skipped"), ("failure", "failed"), ("error", "failed")):
            for element in case.iter(kind):
                end = word
                reason = (element.get("message") or "").partition("\n")[0]
                why[reason if word == "skipped" else f"{case.get('name')}: {reason}"] += 1
        counts[end] += 1
    reasons = tuple(f"{times} × {reason}" if times > 1 else reason for reason, times in why.items())
    result: Result = "failed" if counts["failed"] else "passed" if counts["passed"] else "skipped"
    return Outcome(result, counts, reasons)


def with_newer_qemu(*selected: str) -> Outcome:
    """Run some tests with the QEMU of the distribution's backports."""
    found = subprocess.run([SCRIPTS / "newer-qemu"], capture_output=True, text=True, check=False)
    last = (found.stderr.strip().splitlines() or ["it did not report a reason"])[-1]
    if found.returncode:
        return Outcome("skipped" if found.returncode == NOT_HERE else "failed", why=(last,))
    outcome = run_tests(*selected, path=found.stdout.strip())
    return replace(outcome, why=(last, *outcome.why))


def script(name: str, *words: str) -> Outcome:
    """Run one of the scripts for which a whole system is made."""
    program = SCRIPTS / name
    if not program.exists():
        return Outcome("skipped", why=(f"there is no scripts/{name}",))
    status = subprocess.run([program, *words], cwd=ROOT, check=False).returncode
    if status == NOT_HERE:
        return Outcome("skipped", why=("this computer cannot have it; see above",))
    if status:
        return Outcome("failed", why=(f"it ended with status {status}",))
    return Outcome("passed")


ENGINES = ROOT / "tests/run/test_run_engines.py"
INSTANCES = sorted(ROOT.glob("tests/platforms/test_incus_*.py"))
CLUSTERS = [ENGINES, *sorted(ROOT.glob("tests/run/test_run_cluster*.py"))]
ISOLATED = ROOT / "tests/platforms/test_isolated_loads.py"
LABS = [ROOT / "tests/lab", ROOT / "tests/fleet", *sorted(ROOT.glob("tests/run/test_run_lab*.py"))]
SIDE_BY_SIDE = ("-n", "2", "--dist", "loadfile")
"""Tests that boot machines but judge no figures run two files at a time."""


def long_tests(*selected: str | Path) -> Outcome:
    """Run those of some tests that only acceptance runs."""
    return run_tests("-m", "acceptance", *map(str, selected))


def all_but(*paths: Path) -> list[str]:
    """Return what has pytest take all tests but those of some files and folders."""
    return [f"--ignore={path}" for path in paths]


PARTS = (
    Part(
        "platforms",
        "each platform in full, images, faults",
        lambda: long_tests(*all_but(*LABS, *CLUSTERS, *INSTANCES, ISOLATED)),
    ),
    Part(
        "isolated",
        "loads over isolated networks at simulated hypervisors",
        lambda: long_tests(ISOLATED),
    ),
    Part(
        "instances",
        "containers and VMs of this Debian's LXD or Incus",
        lambda: long_tests(*INSTANCES),
    ),
    Part("labs", "KVM and Xen in labs", lambda: long_tests(*LABS)),
    Part("clusters", "Hadoop and Spark on clusters", lambda: long_tests(*CLUSTERS)),
    Part(
        "newer-qemu",
        "QEMU's guests and the lab with a newer QEMU",
        lambda: with_newer_qemu(
            *SIDE_BY_SIDE, "-m", "guest and not acceptance", "tests/platforms", "tests/lab"
        ),
    ),
    Part(
        "newer-options",
        "options of a newer QEMU",
        lambda: with_newer_qemu("-m", "not guest", "-k", "qemu", "tests/platforms"),
    ),
    Part("least-rust", "the least Rust that is promised", lambda: script("least-rust")),
    Part("debian-13", "set-up and quick study on Debian 13", lambda: script("debian-13")),
    Part(
        "debian-13-tests",
        "all tests on Debian 13, and its Incus",
        lambda: script("debian-13", "test"),
    ),
)


def shown(rows: Sequence[tuple[Part, Outcome, float]]) -> Table:
    """Return what ran, passed and was skipped, and why, as a table."""
    table = Table(
        "part", "result", "passed", "failed", "skipped", "time", "why", title="acceptance"
    )
    styles = {"passed": "green", "failed": "bold red", "skipped": "yellow"}
    for part, outcome, took_s in rows:
        counts = [
            str(outcome.counts.get(kind, "") or "") for kind in ("passed", "failed", "skipped")
        ]
        result = f"[{styles[outcome.result]}]{outcome.result}"
        minutes, seconds = divmod(round(took_s), 60)
        table.add_row(
            part.shows, result, *counts, f"{minutes}:{seconds:02}", "\n".join(outcome.why)
        )
    return table


def main(wanted: Sequence[str]) -> int:
    """Run all parts or the wanted ones; return 1 if one failed, 2 if there is no such part."""
    known = {part.name: part for part in PARTS}
    if unknown := sorted({*wanted} - {*known}):
        print(f"there is no part {unknown[0]}; use {', '.join(known)}", file=sys.stderr)
        return 2
    rows: list[tuple[Part, Outcome, float]] = []
    for part in PARTS:
        if wanted and part.name not in wanted:
            continue
        print(f"== {part.shows}", flush=True)
        began = time.monotonic()
        rows.append((part, part.carry_out(), time.monotonic() - began))
    Console(highlight=False, width=None if sys.stdout.isatty() else 160).print(shown(rows))
    return int(any(outcome.result == "failed" for _, outcome, _ in rows))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
