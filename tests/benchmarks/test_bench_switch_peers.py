"""The peers of `switch`: their words are understood, and those that are not here are named."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from benchmarks import switch_peers
from benchmarks._pairs import Pairs
from benchmarks._runs import Unmeasured
from benchmarks.switch_peers import Bench, Peer, average_us, goal, peers, per_operation_us

PERF = """# Running 'sched/pipe' benchmark:
# Executed 50000 pipe operations between two threads

     Total time: 0.110 [sec]

       2.195980 usecs/op
         455377 ops/sec
"""


def test_perfs_words_are_understood_or_refused() -> None:
    assert per_operation_us(PERF) == 2.19598
    with pytest.raises(Unmeasured, match="reported no time"):
        per_operation_us("Total time: much")


def test_the_receivers_average_counts_and_of_several_threads_the_least() -> None:
    pair = {"sender": {"samples": 9}, "receiver": {"min": 0, "avg": 1.17, "max": 53}}
    assert average_us({"thread": {"0": pair}}, "pmqtest") == 1.17
    both = {"0": {"avg": 4.07}, "1": {"avg": 1442.65}}
    assert average_us({"thread": both}, "signaltest") == 4.07
    with pytest.raises(Unmeasured, match="signaltest reported no average"):
        average_us({"thread": {"0": {"avg": 0.0}}}, "signaltest")


@pytest.mark.parametrize(
    ("ratio", "found", "met"), [(0.5, 2.0, True), (0.1, 10.0, False), (4, 4, True)]
)
def test_a_factor_counts_to_either_side(ratio: float, found: float, met: bool) -> None:
    judged = goal(Peer("other", lambda: 1.0), Pairs("switch", "other", (ratio,), (1.0,)))
    assert judged.found == pytest.approx(found)
    assert judged.met is met


def test_missing_peers_are_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, agent_program: Path
) -> None:
    monkeypatch.setattr(shutil, "which", lambda _: None)
    monkeypatch.setattr(switch_peers, "RING", tmp_path / "missing.rs")
    found, lacking = peers(Bench(agent_program, 0, tmp_path))
    assert found == []
    assert any("linux-perf" in line for line in lacking)
    assert sum("rt-tests" in line for line in lacking) == len(switch_peers.RT_TESTS)
    assert any("lmbench" in line for line in lacking)


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("rustc") is None, reason="rustc is not installed")
def test_a_token_goes_round_among_threads_and_among_processes(
    tmp_path: Path, agent_program: Path
) -> None:
    program = Bench(agent_program, 0, tmp_path).ring_program()
    for kind, count in (("threads", 2), ("processes", 3)):
        done = subprocess.run(
            [program, kind, str(count), "3000"], capture_output=True, text=True, check=True
        )
        found = json.loads(done.stdout)
        assert found["hop"] > 0
        assert found["overhead"] > 0
    assert [each for each in Path("/proc").glob("[0-9]*/exe") if runs(each, program)] == []


def runs(exe: Path, program: Path) -> bool:
    try:
        return exe.readlink() == program
    except OSError:
        return False
