"""What cyclictest prints is understood, and figures are held to it."""

from __future__ import annotations

import shutil
import subprocess

import pytest
import yaml

from benchmarks import wakeup_peers
from benchmarks._pairs import Pairs
from benchmarks._runs import Unmeasured
from tare.events import CellStarted, Event, Observed, Record
from tare.run.catalog import build_catalog
from tare.study.reading.load import parse_study

HISTOGRAM = """# /dev/cpu_dma_latency set to 0us
# Histogram
000000 000000
000003 000500
000004 000489
000017 000010
000900 000001
# Total: 000001000
# Min Latencies: 00003
# Avg Latencies: 00004
# Max Latencies: 00900
# Histogram Overflows: 00000
"""


@pytest.mark.skipif(not shutil.which("awk"), reason="awk is not installed")
def test_quantiles_are_the_middles_of_cyclictests_buckets() -> None:
    done = subprocess.run(
        ["awk", wakeup_peers.QUANTILES], input=HISTOGRAM, capture_output=True, text=True, check=True
    )
    assert dict(line.split() for line in done.stdout.splitlines()) == {
        "median": "3.5",
        "p99": "17.5",
        "p99.9": "17.5",
        "max": "900",
    }


def test_the_study_is_one() -> None:
    text = yaml.safe_dump(wakeup_peers.study(2, 1.5))
    study = parse_study(text.encode(), "wakeup.yaml", build_catalog())
    assert set(study.workloads) == {"wakeup", "cyclictest"}


def test_a_median_may_differ_by_a_microsecond_and_a_tail_by_a_fifth() -> None:
    near = wakeup_peers.goal("bare", "median", Pairs("a", "b", (3.9e-6,), (3e-6,)))
    assert near is not None
    assert near.met
    far = wakeup_peers.goal("bare", "median", Pairs("a", "b", (106e-6,), (100e-6,)))
    assert far is not None
    assert not far.met
    tail = wakeup_peers.goal("bare", "p99.9", Pairs("a", "b", (121e-6,), (100e-6,)))
    assert tail is not None
    assert not tail.met


def test_metrics_that_a_program_did_not_print_are_not_compared() -> None:
    def cell_of(workload: str, metric: str) -> list[Event]:
        started = CellStarted(
            cell=workload,
            block=1,
            arm="bare",
            scenario="pinned",
            workload=workload,
            parameters={},
            attempt=1,
            machines={},
        )
        observed = Observed(
            cell=workload,
            role="subject",
            metric=metric,
            unit="s",
            better="lower",
            kind="typical",
            headline=True,
            value=2.0,
        )
        return [started, observed]

    events = [*cell_of("wakeup", "latency-median"), *cell_of("cyclictest", "median")]
    records = [Record(seq=n, time=0.0, event=event) for n, event in enumerate(events)]
    found = wakeup_peers.values(records)
    assert found["bare", "wakeup", "latency-median"] == (2.0,)
    with pytest.raises(Unmeasured, match=r"bare"):
        wakeup_peers.result(found)
