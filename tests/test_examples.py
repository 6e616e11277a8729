"""The examples as a reader uses them: installed by pip, tested, and run in a study together."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"
PLATFORM, WORKLOAD = EXAMPLES / "tare-bubblewrap", EXAMPLES / "tare-redis"
PROBE = EXAMPLES / "tare-pressure"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.boots,
    pytest.mark.skipif(os.geteuid() != 0, reason="a bubblewrap with a toolbox needs root"),
    pytest.mark.skipif(not shutil.which("bwrap"), reason="bubblewrap is not installed"),
]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Install all three together with Tare, separate from this environment."""
    folder = tmp_path_factory.mktemp("site")
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    target = ["--no-deps", "--target", str(folder)]
    sources = []
    for example in (PLATFORM, WORKLOAD, PROBE):
        # Copied, because a build leaves files next to its sources.
        sources.append(str(shutil.copytree(example, folder / "sources" / example.name)))
    subprocess.run([*pip, *target, *sources], check=True)
    return folder


def python(site: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *words],
        capture_output=True,
        text=True,
        cwd=site,
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(site), *filter(None, sys.path)]),
            "XDG_STATE_HOME": str(site / "state"),
        },
        check=False,
    )


def test_the_platform_passes_the_cases_with_its_own_test_file(site: Path) -> None:
    # Its own folder is the root: nothing of Tare's own settings of pytest counts there.
    tests = site / "sources" / PLATFORM.name
    done = python(
        site, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", str(tests),
        "-c", str(tests / "pyproject.toml"), str(tests),
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert "13 passed, 3 skipped" in done.stdout


def test_a_study_runs_with_all_three(site: Path) -> None:
    run = site / "run"
    command = "from tare.cli.main import main; raise SystemExit(main())"
    done = python(site, "-c", command, "run", str(EXAMPLES / "study.yaml"), "--out", str(run))
    assert done.returncode == 0, done.stdout + done.stderr
    records = (run / "events.jsonl").read_text().splitlines()
    events = [json.loads(record)["event"] for record in records]
    checked = {event["arm"]: event for event in events if event["type"] == "platform_checked"}
    assert checked["wrapped"]["platform"] == "bubblewrap"
    ended = [event for event in events if event["type"] == "cell_finished"]
    # Two arms, two commands of Redis, two blocks.
    assert len(ended) == 8
    assert all(event["status"] == "ok" and "/redis[" in event["cell"] for event in ended)
    assert all(set(event["facts"]["probes"]) == {"pressure"} for event in ended)
    assert (run / "report.html").is_file()
