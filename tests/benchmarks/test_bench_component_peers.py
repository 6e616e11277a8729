"""The peers of the component kernels: their words are understood, and numbers are held to them."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks import bytemark_peers, http_generator, memory_peers, tool_numbers
from benchmarks._http import pausing_server
from benchmarks._http_generators import Generator, Reached, Target
from benchmarks._results import Result
from benchmarks._runs import CarriedOut, Unmeasured
from benchmarks.http_generator import Compared, endurance_goal, expected_s, goals_of
from tare.events import CellFinished, Event, Observed, Record

STREAM = """stress-ng: info:  [77] stream: memory rate: 9000.00 MB read/sec, \
6000.00 MB write/sec, 500.00 double precision Mflop/sec (instance 0)
"""


def test_stress_ngs_stream_is_understood_or_refused() -> None:
    assert memory_peers.stream_rate(STREAM) == 15e9
    with pytest.raises(Unmeasured, match="no memory rate"):
        memory_peers.stream_rate("stress-ng: info: successful run")


def test_four_loops_together_weigh_by_what_they_move() -> None:
    alike = dict.fromkeys(memory_peers.ARRAYS_MOVED, 7.0)
    assert memory_peers.together(alike) == pytest.approx(7.0)
    # Twice the time for 3 of 10 arrays.
    slow = {"copy": 2.0, "scale": 2.0, "add": 2.0, "triad": 1.0}
    assert memory_peers.together(slow) == pytest.approx(10 / (7 / 2 + 3))


@pytest.mark.skipif(not shutil.which("gcc"), reason="gcc is not installed")
def test_the_loops_in_c_tell_bandwidths(tmp_path: Path) -> None:
    program = tmp_path / "loops"
    build = ["gcc", "-O2", "-Wall", "-Wextra", "-Werror", "-std=gnu11", "-o", str(program)]
    subprocess.run([*build, str(memory_peers.LOOPS)], check=True)
    done = subprocess.run([program, "65536", "0.01"], check=True, capture_output=True, text=True)
    found = json.loads(done.stdout)
    assert all(
        found[name]["best"] >= found[name]["median"] > 0 for name in found if name != "check"
    )
    assert subprocess.run([program, "0", "1"], capture_output=True, check=False).returncode == 1


def test_variation_growth_and_range() -> None:
    assert bytemark_peers.variation([98.0, 100.0, 102.0]) == pytest.approx(0.02)
    assert bytemark_peers.growth(lambda threads: 10.0 * threads, 4, 3) == 4.0
    assert bytemark_peers.outside(1.9, [1.8, 2.0]) == 0.0
    assert bytemark_peers.outside(2.2, [1.8, 2.0]) == pytest.approx(0.1)
    assert bytemark_peers.outside(0.9, [1.8, 2.0]) == pytest.approx(1.0)


def ran(cell: str, path: str, **values: float) -> CarriedOut:
    events: list[Event] = [
        *(
            Observed(cell=cell, metric=name.replace("_", "-"), unit="1", better="higher", value=v)
            for name, v in values.items()
        ),
        CellFinished(cell=cell, status="ok", logs=("machines/m", path)),
    ]
    records = tuple(Record(seq=n, time=float(n), event=e) for n, e in enumerate(events))
    return CarriedOut(0.0, 1.0, records)


IPERF: dict[str, Any] = {
    "end": {
        "sum_received": {"bits_per_second": 8e9},
        "sum_sent": {"retransmits": 3},
        "cpu_utilization_percent": {"remote_total": 50.0},
    }
}


def test_numbers_are_held_to_what_the_program_wrote() -> None:
    cell, path = "b001/bare/alone/net-stream[duration=2]", "outputs/one.txt"
    outputs = {path: json.dumps(IPERF)}
    same = ran(cell, path, bandwidth=1e9, retransmits=3.0, machine_cpu=0.5)
    assert max(tool_numbers.compared(same, outputs)["net-stream"]) == 0.0
    other = ran(cell, path, bandwidth=1.01e9, retransmits=3.0, machine_cpu=0.5)
    assert max(tool_numbers.compared(other, outputs)["net-stream"]) == pytest.approx(0.01, rel=0.02)
    with pytest.raises(Unmeasured, match="has no machine-cpu"):
        tool_numbers.compared(ran(cell, path, bandwidth=1e9, retransmits=3.0), outputs)
    with pytest.raises(Unmeasured, match="no output"):
        tool_numbers.compared(same, {})


def test_bonnies_fields_are_where_its_manual_says() -> None:
    fields = ["1.98"] + [""] * 49
    fields[11], fields[19] = "1000", "+++++"
    assert dict(tool_numbers.numbers_of_bonnie(",".join(fields))) == {"put-block": 1024_000.0}


def test_the_expected_stall_follows_from_the_schedule() -> None:
    # A quarter of four seconds is the pause: the upper quarter of times is even from 0 to 1 s.
    assert expected_s(0.75) == 0.0
    assert expected_s(0.9) == pytest.approx(0.6)
    assert expected_s(1.0) == 1.0


def test_a_server_that_pauses_ends_at_once() -> None:
    with pausing_server(0.0, 0.0) as port:
        assert port > 0


def test_ten_minutes_show_something_only_where_ports_were_needed_more_than_once() -> None:
    value = {"completed": 30_000, "failed": 0, "connections_per_s": 50.0, "errors": {}}
    assert endurance_goal(600, value, 28_232).met
    few = endurance_goal(600, value, 64_512)
    assert not few.met
    assert "none of the 64,512 ports twice" in few.detail
    value |= {"failed": 2, "errors": {"unreachable": 2, "reset": 0}}
    failed = endurance_goal(600, value, 28_232)
    assert (failed.met, failed.found) == (False, 2)
    assert failed.detail.endswith("; 2 unreachable")


def test_a_peer_that_is_not_here_misses_the_goal(monkeypatch: pytest.MonkeyPatch) -> None:
    lacking = ["/somewhere/oha is missing: run scripts/setup bench"]
    kept: list[Result] = []

    def keep(result: Result, machine: object) -> int:
        kept.append(result)
        return int(not all(goal.met for goal in result.goals))

    monkeypatch.setattr(http_generator, "peers", lambda: ([], lacking))
    monkeypatch.setattr(http_generator, "stall_goals", lambda: ((), ()))
    monkeypatch.setattr(http_generator, "finish", keep)
    assert http_generator.main(["--endurance", "0"]) == 1
    (goal,) = kept[0].goals
    assert (goal.peer, goal.found) == ("oha", None)
    assert http_generator.main(["--endurance", "0", "--rounds", "0"]) == 0


def test_tare_is_held_to_the_peer_that_makes_the_most_connections_at_a_size() -> None:
    def reached(*rates: float) -> list[Reached]:
        return [Reached(rate, 1 / rate, 0.2 / rate) for rate in rates]

    rounds = {"tare": reached(300, 330, 270), "wrk": reached(200, 220, 180), "ab": reached(9, 9, 9)}
    compared = Compared(1024, rounds)
    many, cheap = goals_of(
        Generator("tare", "1", lambda *_: (0.0, 0.0)), {"wrk": "4", "ab": "2"}, compared
    )
    assert many.found == pytest.approx(1.5)
    assert many.met
    assert cheap.found == pytest.approx(1 / 1.5)
    assert cheap.met
    assert "300/s against 200/s" in many.detail
    assert "3333.3 µs (666.7 µs of it softirq)" in cheap.detail
    assert many.peer.startswith("wrk (4)")


def test_each_goal_is_against_the_peer_that_is_best_in_it() -> None:
    rounds = {
        "tare": [Reached(300.0, 0.004, None)] * 3,
        "wrk": [Reached(200.0, 0.005, None)] * 3,
        # Slow, although it needs little CPU time.
        "ab": [Reached(100.0, 0.001, None)] * 3,
    }
    own = Generator("tare", "1", lambda *_: (0.0, 0.0))
    many, cheap = goals_of(own, {"wrk": "4", "ab": "2"}, Compared(1024, rounds))
    assert many.met
    assert many.found == pytest.approx(1.5)
    assert many.peer.startswith("wrk ")
    assert cheap.found == pytest.approx(4.0)
    assert cheap.peer.startswith("ab ")
    assert not cheap.met


def test_the_cost_of_a_connection_includes_the_programs_run_for_it() -> None:
    def measure(*_: Any) -> tuple[float, float]:
        busy = "import time\nwhile time.process_time() < 0.2: pass"
        subprocess.run([sys.executable, "-c", busy], check=True)
        return 10.0, 5.0

    found = Generator("busy", "1", measure).reach(Target(80, "/0"), 1, 0.5, None)
    assert (found.per_s, found.softirq_s) == (10.0, None)
    assert 0.04 <= found.cpu_s < 1.0
