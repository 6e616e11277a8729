"""A study in sessions: the boot that is up is measured, the next swap shown, resume continues."""

from __future__ import annotations

import operator
import os
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from run.run_driving import (
    Event,
    Running,
    assert_no_ledger_is_left,
    assert_no_process_is_left,
    of_type,
    tare,
)
from run.run_swapped import Computer

pytestmark = [
    pytest.mark.slow,
    pytest.mark.boots,
    pytest.mark.skipif(os.geteuid() != 0, reason="a boot is shown by a mount, which needs root"),
]
WAITING = 3
STUDY = """
study: swapped
baseline: on-a
blocks: {{least: 2}}
shape: {{vcpus: 1, memory: 64MiB}}
arms:
  on-a: {a}
  again-a: {{twin-of: on-a}}
  on-b: {b}
sessions:
  computer: rack-3
  blocks: 1
  boots:
    a: {{arms: [on-a], how: from disk A, takes: 1min}}
    b: {{arms: [on-b], how: from disk B, takes: 1min}}
workloads:
  numeric-sort: {{duration: 100ms}}
"""


@pytest.fixture
def computer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Computer]:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    (tmp_path / "computer").mkdir()
    computer = Computer(tmp_path / "computer")
    disks = computer.disks
    text = STUDY.format(a=disks["a"].arm, b=disks["b"].arm)
    (tmp_path / "study.yaml").write_text(text)
    try:
        yield computer
    finally:
        computer.shut_down()


def sessions(folder: Path) -> list[tuple[int, str, int]]:
    return [(e["session"], e["boot"], e["planned"]) for e in of_type(folder, "session_started")]


@pytest.mark.acceptance
def test_the_current_boot_is_measured_and_the_next_one_requested(
    computer: Computer, tmp_path: Path
) -> None:
    study, folder = tmp_path / "study.yaml", tmp_path / "run"
    planned = tare("plan", study).stdout
    assert "swap 1 of 3: boot rack-3 from disk B, then `tare resume DIR`" in planned
    assert "swap 2 of 3: boot rack-3 again, from disk B" in planned

    computer.boot("a")
    first = tare("run", study, "--out", folder)
    assert first.returncode == WAITING, first.stdout + first.stderr
    output = first.stdout.splitlines()
    assert output[-2] == "swap 1 of 3: boot rack-3 from disk B"
    assert output[-1] == f"waiting: then resume with: tare resume {folder}"
    assert not of_type(folder, "run_finished")

    computer.boot("b")
    second = tare("resume", folder)
    assert second.returncode == WAITING, second.stdout + second.stderr
    assert "swap 2 of 3: boot rack-3 again, from disk B" in second.stdout
    # Nothing is swapped back, and another disk than planned is in it: it is taken.
    computer.boot("a")
    third = tare("resume", folder)
    assert third.returncode == WAITING, third.stdout + third.stderr
    assert (
        "session 4 (a) is measured now, because that boot is up; session 3 (b) was" in third.stdout
    )
    computer.boot("b")
    last = tare("resume", folder)
    assert last.returncode == 0, last.stdout + last.stderr

    assert sessions(folder) == [(1, "a", 1), (2, "b", 2), (4, "a", 3), (3, "b", 3)]
    cells = [(e["cell"].rsplit("/", 3)[0:2], e["status"]) for e in of_type(folder, "cell_finished")]
    wanted = [[f"b00{block}", arm] for block in (1, 2) for arm in ("on-a", "again-a", "on-b")]
    assert sorted(cell for cell, _ in cells) == sorted(wanted)
    assert {status for _, status in cells} == {"ok"}
    assert of_type(folder, "run_finished")[-1]["status"] == "complete"
    assert_no_process_is_left(folder)
    assert_no_ledger_is_left(tmp_path)
    page = (folder / "report.html").read_text()
    for words in (
        "arm and session cannot be separated",
        "session 4 before session 3",
    ):
        assert words in page


def test_one_command_waits_for_each_swap(computer: Computer, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    with Running(folder, "run", tmp_path / "study.yaml", "--out", folder, "--wait") as running:
        running.wait_for(lambda event: event["type"] == "waiting")
        for number, disk in enumerate("abba", start=1):
            computer.boot(disk)
            running.wait_for(partial(operator.eq, session_end(number)), limit_s=400)
        status, output = running.end(400)
    assert status == 0, output
    assert "first, boot rack-3 from disk A; waiting for it" in output
    assert sessions(folder) == [(1, "a", 1), (2, "b", 2), (3, "b", 3), (4, "a", 4)]
    assert len({event["booted"] for event in of_type(folder, "session_started")}) == 4
    assert not of_type(folder, "run_resumed")
    page = (folder / "report.html").read_text()
    assert "rest on 2 rounds, not on 2 blocks" in page
    assert "rounds count as one" not in page


def session_end(number: int) -> Event:
    return {"type": "session_finished", "session": number}


def test_where_nothing_is_up_tare_says_what_to_boot(computer: Computer, tmp_path: Path) -> None:
    study, folder = tmp_path / "study.yaml", tmp_path / "run"
    nothing = tare("run", study, "--out", folder)
    assert nothing.returncode == WAITING, nothing.stdout + nothing.stderr
    assert nothing.stdout.splitlines()[-2] == "first, boot rack-3 from disk A"
    again = tare("resume", folder)
    assert again.returncode == WAITING, again.stdout + again.stderr
    assert not of_type(folder, "run_resumed")
