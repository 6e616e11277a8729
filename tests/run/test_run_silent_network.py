"""A machine whose network falls silent costs the cell that found it so, and no other."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from run.run_driving import Running, assert_no_ledger_is_left, of_type

pytestmark = [
    pytest.mark.slow,
    pytest.mark.acceptance,
    pytest.mark.container,
    pytest.mark.skipif(os.geteuid() != 0, reason="bridges and namespaces need root"),
    pytest.mark.skipif(not shutil.which("ip"), reason="iproute2 is not installed"),
    pytest.mark.skipif(not shutil.which("runc"), reason="runc is not installed"),
]
STUDY = """
study: silent
baseline: bare
blocks: {least: 2, most: 2}
arms:
  bare: {platform: bare}
  box: {platform: oci, runtime: runc}
workloads:
  request-response: {duration: 1500ms, repeats: 3, deadline: 6s}
"""


def links(home: Path) -> list[str]:
    """Return the interfaces that the run's ledger lists and that are there."""
    names = []
    for ledger in (home / "state" / "tare" / "ledgers").glob("*.jsonl"):
        for line in ledger.read_text().splitlines():
            entry = json.loads(line)
            if entry.get("kind") == "link":
                names.append(entry["details"]["name"])
    return [name for name in names if Path(f"/sys/class/net/{name}").exists()]


def test_a_silent_network_costs_one_cell_and_the_rest_is_tried_on_a_fresh_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    study, folder = tmp_path / "silent.yaml", tmp_path / "run"
    study.write_text(STUDY)
    with Running(folder, "run", study, "--out", folder) as running:
        running.wait_for(lambda e: e["type"] == "cell_started" and e["arm"] == "box")
        taken = links(tmp_path)
        assert taken
        for name in taken:
            subprocess.run(["ip", "link", "set", name, "down"], check=False)
        status, output = running.end()
    assert status == 1, output
    cells = of_type(folder, "cell_finished")
    box = [cell for cell in cells if "/box/" in cell["cell"]]
    noticed = [cell for cell in box if "its network has fallen silent" in cell["reason"]]
    assert len(noticed) == 1, [cell["reason"] for cell in box]
    assert noticed[0]["transient"]
    last = {cell["cell"]: cell["status"] for cell in cells}
    assert len(last) == 2 * 2 * 3
    assert sorted(last.values()).count("failed") == 1, last
    again = [e for e in of_type(folder, "cell_started") if e["cell"] == noticed[0]["cell"]]
    assert [event["attempt"] for event in again] == [1, 2]
    assert again[0]["machines"]["subject"] != again[1]["machines"]["subject"]
    assert_no_ledger_is_left(tmp_path)
