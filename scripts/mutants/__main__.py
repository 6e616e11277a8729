"""Give the program random mistakes, one at a time, and count which the tests notice.

usage: python -m scripts.mutants [--seed N] [--sample N] [--room ROOM] [--agent N]
"""

from __future__ import annotations

import argparse
import random
import secrets
import shutil
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

from scripts.mutants.agent import UNVIABLE, share_of, try_agent
from scripts.mutants.changes import Change, changes_of
from scripts.mutants.covering import Covering, TestsFailed, run_tests

ROOT = Path(__file__).resolve().parents[2]
EXPLAINED = Path("scripts/mutants/equivalent.md")
LEAST = 0.9
"""The share of mistakes that the tests must notice."""
PATIENCE = 5.0
"""The factor by which tests may take longer than without a mistake; beyond it, they loop endlessly.
"""


@dataclass(frozen=True)
class Room:
    """A part of the program, and the tests that must notice its mistakes."""

    files: tuple[str, ...]
    tests: tuple[str, ...]


ROOMS = {
    "statistics": Room(("src/tare/analysis/statistics/*.py",), ("tests/analysis",)),
    "fold": Room(
        ("src/tare/events/fold.py", "src/tare/events/observations.py", "src/tare/events/chain.py",
         "src/tare/events/results.py"),
        ("tests/events", "tests/analysis"),
    ),
    "planning": Room(
        ("src/tare/study/planning/plan.py", "src/tare/study/planning/arm_order.py",
         "src/tare/study/planning/placement.py", "src/tare/study/planning/cells.py",
         "src/tare/study/planning/baselines.py"),
        ("tests/study", "tests/run/test_run_plans.py", "tests/run/test_run_resume_plans.py"),
    ),
    "resume": Room(
        ("src/tare/run/lifecycle/cell_counts.py", "src/tare/run/lifecycle/folder.py",
         "src/tare/run/preflight/arm_facts.py", "src/tare/run/lifecycle/folder.py",
         "src/tare/run/lifecycle/resume_checks.py"),
        ("tests/run/test_run_cell_accounting.py", "tests/run/test_run_folders.py",
         "tests/run/test_run_program_outputs.py", "tests/run/test_run_plans.py",
         "tests/run/test_run_resume_plans.py", "tests/run/test_run_resuming.py",
         "tests/run/test_run_time_left.py",
         "tests/study/test_study_hypervisor_mistakes.py"),
    ),
    "clock": Room(
        ("src/tare/agent/clocktrust.py", "src/tare/run/cells/plausibility.py",
         "src/tare/run/cells/plausibility.py", "src/tare/run/probes/standstill.py"),
        ("tests/agent", "tests/run/test_run_plausibility.py",
         "tests/run/test_run_disk_plausibility.py",
         "tests/run/test_run_settled_clock.py", "tests/run/test_run_standstill.py"),
    ),
    "comparison": Room(
        ("src/tare/analysis/effects/comparison.py", "src/tare/analysis/effects/compare.py",
         "src/tare/analysis/effects/estimates.py", "src/tare/analysis/topics/interference.py",
         "src/tare/analysis/effects/verdict.py"),
        ("tests/analysis",),
    ),
    "framing": Room(
        ("src/tare/agent/framing.py", "src/tare/agent/message.py", "src/tare/agent/order.py"),
        ("tests/agent",),
    ),
}  # fmt: skip


def main() -> int:
    """Draw a sample, try it, and print unnoticed mistakes; return 1 if they are too many."""
    asked = _asked()
    if asked.agent:
        return _agent(asked.agent, asked.seed)
    rooms = {name: room for name, room in ROOMS.items() if asked.room in ("", name)}
    every = {name: _changes(room) for name, room in rooms.items()}
    chance = random.Random(asked.seed)
    print(
        f"seed {asked.seed}: {asked.sample} of {sum(map(len, every.values()))} mistakes", flush=True
    )
    drawn = _drawn(every, asked.sample, chance)
    with tempfile.TemporaryDirectory(prefix="tare-mutants-") as folder:
        tree = _copied(Path(folder) / "tree")
        tests = sorted({test for room in rooms.values() for test in room.tests})
        covering = Covering(tree, tests, Path(folder) / "covered")
        for test in covering.failed:
            print(f"left out, because it fails without any mistake: {test}", flush=True)
        results: dict[str, list[str]] = defaultdict(list)
        for number, (name, change) in enumerate(drawn, 1):
            started = time.monotonic()
            result = _tried(tree, change, covering)
            results[name].append(result)
            took = f"{time.monotonic() - started:.0f} s"
            print(f"{number:4} {result:9} {name}: {change} ({took})", flush=True)
            if result in ("unnoticed", "untested"):
                print(f"     to explain it: {_key(change, tree)}", flush=True)
    return _judged(results)


def _agent(sample: int, seed: int) -> int:
    print(f"seed {seed}", flush=True)
    found = try_agent(ROOT, sample, seed, (ROOT / EXPLAINED).read_text())
    noticed, counted = share_of(found)
    print(f"agent: {noticed} of {counted} noticed; {found.get(UNVIABLE, 0)} more do not compile")
    return int(noticed < LEAST * counted)


def _asked() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=secrets.randbelow(10**6))
    parser.add_argument("--sample", type=int, default=60)
    parser.add_argument("--room", default="", choices=["", *ROOMS])
    parser.add_argument(
        "--agent", type=int, default=0, metavar="N", help="try N mistakes in the agent instead"
    )
    return parser.parse_args()


def _changes(room: Room) -> list[Change]:
    paths = sorted({path for pattern in room.files for path in ROOT.glob(pattern)})
    return [
        change for path in paths for change in changes_of(path.relative_to(ROOT), path.read_bytes())
    ]


def _drawn(
    every: dict[str, list[Change]], sample: int, chance: random.Random
) -> list[tuple[str, Change]]:
    """Draw the same number of mistakes from each room, or all if a room has fewer."""
    each = max(1, sample // len(every))
    return [
        (name, change)
        for name, changes in every.items()
        for change in chance.sample(changes, min(each, len(changes)))
    ]


def _copied(tree: Path) -> Path:
    names = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT, capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    for name in filter(None, names.split("\0")):
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, tree / name, follow_symlinks=False)
    return tree


def _tried(tree: Path, change: Change, covering: Covering) -> str:
    tests = covering.tests_of(change.path, change.line)
    if _key(change, tree) in (ROOT / EXPLAINED).read_text():
        return "explained"
    if not tests:
        return "untested"
    began = time.monotonic()
    passed, output = run_tests(tree, tests)
    if not passed:
        raise TestsFailed(output[-4000:])
    limit_s = 30 + PATIENCE * (time.monotonic() - began)
    file = tree / change.path
    source = file.read_bytes()
    file.write_bytes(change.applied(source))
    try:
        return "unnoticed" if run_tests(tree, tests, limit_s)[0] else "noticed"
    finally:
        file.write_bytes(source)


def _key(change: Change, tree: Path) -> str:
    """Return a mistake's name on the page of explanations: with its line's text, as lines move."""
    line = (tree / change.path).read_text().splitlines()[change.line - 1].strip()
    return f"{change}".replace(f":{change.line}:", ":") + f" in `{line}`"


def _judged(results: dict[str, list[str]]) -> int:
    for name, found in results.items():
        print(f"{name}: {found.count('noticed')} of {len(found)} noticed")
    found = [result for each in results.values() for result in each]
    counted = [result for result in found if result != "explained"]
    share = counted.count("noticed") / max(1, len(counted))
    print(
        f"all: {counted.count('noticed')} of {len(counted)} noticed, {share:.0%}; "
        f"{len(found) - len(counted)} more make no difference, as {EXPLAINED} explains"
    )
    return int(share < LEAST)


if __name__ == "__main__":
    sys.exit(main())
