"""The long view: fifty million samples in the memory of a short one."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

FIFTY_MILLION = 50_000_000
LOG = 1000


def run_study(agent: Path, samples: int) -> tuple[dict[str, Any], str, int]:
    """Return the result, the messages on the way, and the most memory it took, in KiB."""
    # A threshold below the counter's own scatter: the log of gaps is full at once.
    asked = {
        "samples": samples,
        "loop_ns": 0,
        "threshold_ns": 1,
        "log_capacity": LOG,
        "allow_untrusted_tsc": True,
    }
    command = [str(agent), "run", "tick", json.dumps(asked)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        out, output = process.stdout.read(), process.stderr.read().decode()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = status
    assert status == 0, output
    return json.loads(out), output, usage.ru_maxrss


@pytest.mark.slow
@pytest.mark.boots
def test_the_seeds_fifty_million_samples_need_no_more_memory_than_a_few(
    agent_program: Path,
) -> None:
    few, output, memory = run_study(agent_program, 200_000)
    assert output == "", "short runs speak of no progress"
    many, _, memory_of_many = run_study(agent_program, FIFTY_MILLION)
    value = many["value"]
    assert value["samples"] + value["tsc_backwards"] == FIFTY_MILLION
    assert value["gaps"] == value["gaps_not_logged"] + min(value["gaps"], LOG)
    rows = {series["name"]: series["rows"] for series in many["series"]}
    assert rows["gaps"] <= LOG
    assert rows["scatter"] <= 1000
    assert {"scatter", "gaps", "histogram"} <= {series["name"] for series in few["series"]}
    assert memory_of_many <= memory + 1024
