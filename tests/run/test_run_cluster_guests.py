"""Hadoop on emulated machines: a master and a slave under QEMU, at the least size there is."""

from __future__ import annotations

from pathlib import Path

import pytest

from run.run_clusters import NEEDS
from run.run_driving import assert_no_ledger_is_left, assert_no_process_is_left, of_type, tare

pytestmark = [*NEEDS, pytest.mark.acceptance, pytest.mark.guest]
LIMIT_S = 12_000
"""The limit of two boots; each may take 75 min to be up and an hour to count.

On an otherwise idle computer they took 6 min and 15."""
STUDY = """
study: guests
baseline: tcg
blocks: {least: 2, most: 2}
shape: {vcpus: 1, memory: 1GiB, disk: 1GiB}
arms:
  tcg: {platform: qemu, accelerator: tcg}
scenarios:
  two: {cluster: {slaves: 1, tasks: 1}}
workloads:
  wordcount: {copies: 1, deadline: 1h}
"""


@pytest.mark.timeout(LIMIT_S + 100)
def test_words_are_counted_on_two_emulated_machines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    study, folder = tmp_path / "guests.yaml", tmp_path / "run"
    study.write_text(STUDY)
    done = tare("run", study, "--out", folder, limit_s=LIMIT_S)
    assert done.returncode == 0, done.stdout + done.stderr
    ended = of_type(folder, "cell_finished")
    assert [cell["status"] for cell in ended] == ["ok"] * 2, ended
    for cell in ended:
        facts = cell["facts"]["job"]
        assert facts["replication"] == 1
        count = facts["steps"]["count"]["job"]
        assert (count["maps"], count["reduces"], count["state"]) == (1, 1, "SUCCEEDED")
        # A guest's own page cache is dropped, and then what its host keeps of its disk.
        caches = facts["steps"]["count"]["caches"]
        assert [each["guest"] for each in caches] == ["dropped"] * 2, caches
        assert all(each["dropped"] == "the disk's file" for each in caches), caches
    machines = of_type(folder, "cell_started")[0]["machines"]
    # Wherever machines have a network there is a peer, which is idle here.
    assert set(machines) == {"subject", "slave-1", "peer"}
    assert_no_ledger_is_left(tmp_path)
    assert_no_process_is_left(folder)
