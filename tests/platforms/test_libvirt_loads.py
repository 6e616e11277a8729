"""A load balancer of the shipped study in domains of libvirt, by a daemon of the test's own."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from platforms.test_libvirt_remote import Daemon
from platforms.test_libvirt_remote import daemon as daemon
from platforms.vendor_served import tare_within
from run.run_driving import assert_no_ledger_is_left
from run.run_driving import events as events_in

RUN_S = 540.0
PROXY = {
    "size": "4KiB",
    "step": "500ms",
    "duration": "1s",
    "warmup": "200ms",
    # What an emulated processor serves within its time limit on a busy computer.
    "most-connections": "16",
}
pytestmark = [
    pytest.mark.slow,
    pytest.mark.acceptance,
    pytest.mark.guest,
    pytest.mark.skipif(os.geteuid() != 0, reason="libvirt's system driver needs root"),
]


@pytest.mark.timeout(600)
@pytest.mark.parametrize(("arm", "driver"), [("libvirt", "virtio_net"), ("libvirt-e1000", "e1000")])
async def test_a_load_balancer_in_a_domain_of_libvirt(
    arm: str, driver: str, tmp_path: Path, daemon: Daemon
) -> None:
    # This computer may have no KVM, and the arm is otherwise unchanged.
    changes = {
        "baseline": arm,
        f"arms.{arm}.uri": daemon.uri,
        f"arms.{arm}.accelerator": "tcg",
        **{f"workloads.proxy.{key}": value for key, value in PROXY.items()},
    }
    words = ["load-balancer", "--out", str(tmp_path / "out"), "--blocks", "1", "--arm", arm]
    words += ["--scenario", "proxied", "--workload", "proxy"]
    words += [word for key, value in changes.items() for word in ("--set", f"{key}={value}")]
    state = str(tmp_path / "state")
    status, output = await tare_within(RUN_S, "run", *words, XDG_STATE_HOME=state)
    assert status == 0, output
    assert not daemon.domains()
    assert_no_ledger_is_left(tmp_path)
    events = events_in(tmp_path / "out")
    (cell,) = (each for each in events if each["type"] == "cell_finished")
    assert cell["status"] == "ok", cell["reason"]
    values = {each["metric"]: each["value"] for each in events if each["type"] == "observation"}
    (requests,) = (values[each] for each in ("requests", "requests-at-least") if each in values)
    assert requests > 0 and values["direct"] > requests and values["failed-share"] == 0
    (ready,) = (each for each in events if each["type"] == "machine_ready")
    assert ready["proof"]["network"]["driver"] == driver
