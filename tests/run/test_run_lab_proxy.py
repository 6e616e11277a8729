"""The load balancer in an emulated host: vhost, Open vSwitch's kernel path, and Xen's guests."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from run.run_driving import Event, assert_no_ledger_is_left, events, of_type, tare
from tare.workloads.network.proxy.account import MOST_OF_GIVEN

pytestmark = [
    pytest.mark.acceptance,
    pytest.mark.guest,
    pytest.mark.timeout(3600),
    pytest.mark.skipif(os.geteuid() != 0, reason="the bare machine's network needs root"),
]

LEAST_OWNED = {"kvm": 0.9, "xen": 0.9}
"""The least share of each cell's CPU time that must have an owner."""
STUDY = """
study: proxied-in-a-lab
host: lab
lab: {{cpus: 2, memory: 4GiB}}
baseline: {baseline}
blocks: {{least: 2, most: 2}}
shape: {{vcpus: 1, memory: 256MiB}}
kernel: generic
arms:
{arms}
scenarios:
  proxied: {{subject: {{cpus: pinned}}, link: 100Mbit}}
workloads:
  proxy:
    size: 1000B
    most-connections: 4
    step: 2s
    duration: {duration}
    warmup: 500ms
    offered: 2
    timeout: 60s
"""
KVM = """\
  kvm-vhost: {platform: qemu, accelerator: kvm, vhost: "on"}
  kvm-no-vhost: {platform: qemu, accelerator: kvm, vhost: "off"}
  kvm-openvswitch:
    {platform: qemu, accelerator: kvm, vhost: "on", switch: openvswitch, conntrack: true}
"""
XEN = """\
  xen-pv: {platform: xen, type: pv}
  xen-pv-openvswitch: {platform: xen, type: pv, switch: openvswitch}
  xen-pvh: {platform: xen, type: pvh}
  xen-hvm: {platform: xen, type: hvm}
  xen-hvm-e1000: {platform: xen, type: hvm, nic: e1000}
"""


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path


def run_study(
    home: Path, baseline: str, arms: str, duration: str = "10s"
) -> tuple[Path, dict[str, Event]]:
    """Run a study in the lab; return its folder, and each arm's cells that are whole."""
    folder, file = home / "run", home / "study.yaml"
    file.write_text(STUDY.format(baseline=baseline, arms=arms, duration=duration))
    outcome = tare("run", file, "--out", folder, limit_s=3400)
    assert outcome.returncode == 0, outcome.stdout + outcome.stderr
    assert not [e["reason"] for e in events(folder) if e["type"] == "skipped"]
    cells = {e["cell"]: e for e in of_type(folder, "cell_finished")}
    assert [cell["reason"] for cell in cells.values() if cell["status"] != "ok"] == []
    assert_no_ledger_is_left(home)
    return folder, cells


def owners(cell: Event) -> dict[str, float]:
    """Return who used the emulated host's CPUs, by share."""
    spent: list[dict[str, Any]] = cell["facts"]["proxy"]["account"]["spent"]
    return {each["who"]: each["share"] for each in spent if each["where"] == "host"}


def assert_owned(hypervisor: str, folder: Path, cells: dict[str, Event]) -> None:
    """Assert that enough CPU time has an owner in every cell; the shares are shown in any case."""
    shares = {
        e["cell"]: round(e["value"], 3)
        for e in of_type(folder, "observation")
        if e["metric"] == "owned-share"
    }
    print(f"owned-share under {hypervisor}: {shares}")
    assert shares.keys() >= cells.keys()
    assert min(shares[name] for name in cells) > LEAST_OWNED[hypervisor], shares


def of_arm(cells: dict[str, Event], arm: str) -> list[Event]:
    return [each for name, each in cells.items() if name.split("/")[1] == arm]


def test_vhost_carries_packets_where_kvm_has_it_and_open_vswitch_where_it_is_asked_for(
    home: Path,
) -> None:
    folder, cells = run_study(home, "kvm-no-vhost", KVM)
    used = {
        machine["machine"]: machine["placement"]["nic"]["vhost"]
        for machine in of_type(folder, "machine_ready")
    }
    arms = {each["machine"]: each["arm"] for each in of_type(folder, "machine_starting")}
    assert {(arms[name], vhost) for name, vhost in used.items()} == {
        ("kvm-vhost", True),
        ("kvm-no-vhost", False),
        ("kvm-openvswitch", True),
    }
    for cell in of_arm(cells, "kvm-vhost"):
        assert owners(cell)["vhost"] > 0
    for cell in of_arm(cells, "kvm-no-vhost"):
        assert "vhost" not in owners(cell)
        assert cell["facts"]["proxy"]["network"]["switch"] == "bridge"
    for cell in of_arm(cells, "kvm-openvswitch"):
        network = cell["facts"]["proxy"]["network"]
        assert (network["switch"], network["conntrack"]) == ("openvswitch", True)
        assert network["datapath"] == "the kernel's"
        assert network["openvswitch"][0].isdigit()
    assert len(cells) == 6
    for cell in cells.values():
        proxy = cell["facts"]["proxy"]
        assert proxy["network"]["link"]["bits_per_s"] == 1e8
        assert proxy["preparation"]["origin"]["ports"]["count"] > 60_000
        assert proxy["preparation"]["offloads"]["client"]["driver"] == "veth"
        # Where the machine's interrupts went, by its own kernel.
        assert any("virtio" in name for name in proxy["preparation"]["machine"]["interrupts"])
    assert_owned("kvm", folder, cells)


def test_netback_serves_each_kind_of_xen_guest_over_either_switch_and_an_emulated_card_does_not(
    home: Path,
) -> None:
    folder, cells = run_study(home, "xen-pv", XEN)
    assert len(cells) == 10
    assert_xens_account(folder, cells)


def assert_xens_account(folder: Path, cells: dict[str, Event]) -> None:
    """Assert that all of the computer is accounted for, and who carried a guest's packets."""
    values = {(e["cell"], e["metric"]): e["value"] for e in of_type(folder, "observation")}
    for name, cell in cells.items():
        proxy = cell["facts"]["proxy"]
        # The account has both CPUs of the computer; dom0's kernel sees one of them.
        assert proxy["account"]["cpus"] == 2
        assert proxy["below"]["host_on"] == [0]
        found = owners(cell)
        # Xen's account has steps of 0.1 s, about a fiftieth of the time.
        assert sum(found.values()) == pytest.approx(1, abs=0.02)
        # Dom0's own clock may differ a lot under a busy emulator; a warning says so then.
        assert proxy["account"]["threads_of_given"] > 0.5
        differs = any("in proportion" in warning for warning in cell["warnings"])
        assert differs == (proxy["account"]["threads_of_given"] > MOST_OF_GIVEN)
        assert not any(sum(kinds.values()) for kinds in proxy["errors"].values())
        rate = values.get((name, "requests"), values.get((name, "requests-at-least")))
        own = found["the machine’s vCPUs"] * proxy["account"]["cpus"] / rate
        assert own > 0
        # What dom0 does for the guest is a cost of the guest in addition to its own CPU time.
        carriers = [who for who in ("netback", "the machine’s devices") if who in found]
        added = sum(found[who] for who in carriers) * proxy["account"]["cpus"] / rate
        assert values[name, "cpu-per-request"] == pytest.approx(own + added)
        # By dom0's own count, also where its threads were too slow to be read in time.
        interrupts = proxy["preparation"]["host"]["interrupts"]
        emulated = name.split("/")[1] == "xen-hvm-e1000"
        assert any(" vif" in irq for irq in interrupts) != emulated
        assert ("the machine’s devices" in found) >= emulated
        # Its thread is there in any case, and may wake without a packet to carry.
        assert not emulated or found.get("netback", 0.0) < 0.001
    assert_owned("xen", folder, cells)
    assert any("netback" in owners(cell) for cell in cells.values())
    for arm, switch in (("xen-pvh", "bridge"), ("xen-pv-openvswitch", "openvswitch")):
        for cell in of_arm(cells, arm):
            assert cell["facts"]["proxy"]["network"]["switch"] == switch
    for cell in of_arm(cells, "xen-pv-openvswitch"):
        assert cell["facts"]["proxy"]["network"]["datapath"] == "the kernel's"
