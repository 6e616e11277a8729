"""Try a sample of mistakes in the agent's framing and clock, with cargo-mutants.

cargo-mutants builds and tests a copy of the agent for each mistake, which takes some minutes.
"""

from __future__ import annotations

import json
import random
import re
import shutil
import subprocess
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from scripts.mutants.tools import cargo_mutants, with_cargo

AGENT = Path("agent")
FILES = (
    "src/channel/frame.rs",
    "src/channel/outbox.rs",
    "src/channel/sending.rs",
    "src/measure/clock.rs",
    "src/measure/tsc.rs",
    "src/measure/histogram.rs",
)
"""The files in which a mistake would damage reported data or times."""
NOTICED = frozenset({"CaughtMutant", "Timeout"})
EXPLAINED = "explained"
_PLACE = re.compile(r":\d+:\d+")
UNVIABLE = "Unviable"
"""The outcome of a mistake that does not compile, so that no test could notice it."""
LEAST_TIMEOUT_S = 120
OWN_TESTS = "--cargo-test-arg=--lib"
"""Run only the tests within the program: others read files of the repository that the copy lacks.
"""


def listed(tool: str, root: Path) -> list[str]:
    """Return the names of all mistakes that could be made, in the tool's order."""
    done = subprocess.run(
        [tool, "mutants", "--list", "--dir", str(root / AGENT), *_files()],
        capture_output=True, text=True, check=True, env=with_cargo(),
    ).stdout  # fmt: skip
    return [line for line in done.splitlines() if line.strip()]


def try_agent(root: Path, sample: int, seed: int, explained: str = "") -> dict[str, int]:
    """Try a sample of mistakes; return how many had each outcome, and print what went unnoticed.

    Args:
        root: The repository.
        sample: The number of mistakes to draw.
        seed: The seed of the drawing.
        explained: Text that names mistakes which make no difference.
    """
    tool = cargo_mutants()
    every = listed(tool, root)
    drawn = random.Random(seed).sample(every, min(sample, len(every)))
    print(f"agent: {len(drawn)} of {len(every)} mistakes", flush=True)
    folder = Path(tempfile.mkdtemp(prefix="tare-mutants-agent-"))
    try:
        # If some are unnoticed, it exits with a status of its own, and its file lists them.
        subprocess.run(
            [tool, "mutants", "--dir", str(root / AGENT), *_files(), "--re", exactly(drawn),
             "--output", str(folder), "--no-shuffle", "--minimum-test-timeout",
             str(LEAST_TIMEOUT_S), "--cargo-arg=--locked", OWN_TESTS],
            check=False, env=with_cargo(),
        )  # fmt: skip
        outcomes = json.loads((folder / "mutants.out" / "outcomes.json").read_text())
    finally:
        shutil.rmtree(folder)
    return judged(outcomes, explained)


def exactly(names: Sequence[str]) -> str:
    """Return the regular expression that names these mistakes and no other."""
    return f"^(?:{'|'.join(map(re.escape, names))})$"


def key_of(name: str) -> str:
    """Return the name by which a mistake is explained: without its place, which may move."""
    return f"{AGENT}/{_PLACE.sub('', name, count=1)}"


def judged(outcomes: object, explained: str = "") -> dict[str, int]:
    """Return how many mistakes had each outcome; print those that went unnoticed.

    Args:
        outcomes: The content of cargo-mutants' file of outcomes.
        explained: Text that names mistakes which make no difference.

    Raises:
        ValueError: The outcomes have another form, or the unchanged agent's tests fail.
    """
    every = outcomes.get("outcomes") if isinstance(outcomes, dict) else None
    if not isinstance(every, list):
        raise ValueError("cargo-mutants wrote no outcomes")
    found: Counter[str] = Counter()
    for each in every:
        scenario, summary = each["scenario"], str(each["summary"])
        if scenario == "Baseline":
            if summary != "Success":
                raise ValueError("the tests of the unchanged agent fail")
            continue
        name = "" if summary in (*NOTICED, UNVIABLE) else str(scenario["Mutant"]["name"])
        if name and f"{key_of(name)} |" in explained:
            summary = EXPLAINED
        elif name:
            print(f"unnoticed in the agent: {name}\n     to explain it: {key_of(name)}", flush=True)
        found[summary] += 1
    return dict(found)


def share_of(found: dict[str, int]) -> tuple[int, int]:
    """Return the number of noticed mistakes, and the number of those that count.

    Mistakes that do not compile or that are explained do not count.
    """
    noticed = sum(found.get(each, 0) for each in NOTICED)
    uncounted = found.get(UNVIABLE, 0) + found.get(EXPLAINED, 0)
    return noticed, sum(found.values()) - uncounted


def _files() -> list[str]:
    return [word for name in FILES for word in ("--file", name)]
