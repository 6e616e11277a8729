"""Labs of two releases of Debian side by side: a PV guest on the Xen of either is measured."""

from __future__ import annotations

from pathlib import Path

import pytest

from run.run_driving import assert_no_ledger_is_left, events, tare

pytestmark = [pytest.mark.slow, pytest.mark.guest, pytest.mark.acceptance]

STUDY = """
study: upgraded
host: lab
lab: {memory: 3GiB}
baseline: xen-12
blocks: {least: 2, most: 2}
shape: {vcpus: 1, memory: 192MiB}
kernel: generic
arms:
  xen-12: {platform: xen, type: pv, scheduler: credit, release: bookworm}
  xen-13: {platform: xen, type: pv, scheduler: credit, release: trixie}
scenarios: {pinned: {subject: {cpus: pinned}}}
workloads: {tick: {duration: 2s}}
"""
MADE_OF = {"bookworm": ("6.1.", "4.17", "7.2"), "trixie": ("6.12.", "4.20", "10.0")}
OF = {"xen-12": "bookworm", "xen-13": "trixie"}


@pytest.mark.timeout(3600)
def test_old_and_new_are_measured_side_by_side(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    study, folder = tmp_path / "upgraded.yaml", tmp_path / "run"
    study.write_text(STUDY)
    outcome = tare("run", study, "--out", folder, limit_s=3500)
    assert outcome.returncode == 0, outcome.stdout + outcome.stderr
    recorded = events(folder)
    cells = {e["cell"]: e for e in recorded if e["type"] == "cell_finished"}.values()
    # On a busy computer an emulated clock may drift so far that a cell is withheld.
    assert [cell["reason"] for cell in cells if cell["status"] == "failed"] == []
    assert len(cells) == 2 * len(OF)
    checked = {e["arm"]: e for e in recorded if e["type"] == "platform_checked"}
    assert {arm: event["description"].rpartition("(")[2] for arm, event in checked.items()} == {
        arm: f"{release})" for arm, release in OF.items()
    }
    for arm in ("xen-12", "xen-13"):
        assert checked[arm]["versions"]["xen"].startswith(MADE_OF[OF[arm]][1])
    arms = {e["machine"]: e["arm"] for e in recorded if e["type"] == "machine_starting"}
    for event in recorded:
        if event["type"] == "machine_ready":
            release = OF[arms[event["machine"]]]
            assert event["proof"]["kernel"]["release"].startswith(MADE_OF[release][0])
    made = next(e for e in recorded if e["type"] == "run_started")["host"]["lab"]["releases"]
    for release, (linux, xen, qemu) in MADE_OF.items():
        assert made[release]["kernel"].startswith(linux)
        assert any(name.startswith(f"xen-hypervisor-{xen}") for name in made[release])
        assert made[release]["qemu-system-x86"].startswith(f"1:{qemu}")
    assert "xen-13 of Debian 13" in (folder / "report.html").read_text()
    assert_no_ledger_is_left(tmp_path)
