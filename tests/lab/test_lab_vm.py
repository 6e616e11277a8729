"""A virtual machine that exists, measured over SSH together with its host: a lab is one."""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
import yaml

from lab.lab_inside import Inside, inside
from run.run_driving import Event, assert_no_ledger_is_left, events, of_type, tare
from tare.analysis import load_run
from tare.analysis.topics.spike_cells import spike_cells
from tare.lab.options import GIB, LabOptions

pytestmark = [
    pytest.mark.guest,
    pytest.mark.slow,
    pytest.mark.boots,
    pytest.mark.acceptance,
    pytest.mark.timeout(1500),
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.skipif(os.geteuid() != 0, reason="the host's side is seen by root alone"),
]

RUN_S = 1200
USER = "me"
# A lab runs no package's scripts: what an installation makes of sudo is made here.
PEOPLE = f"""
echo {USER}:x:1000:1000::/home/{USER}:/bin/bash >>/etc/passwd
echo {USER}:x:1000: >>/etc/group
echo '{USER}:*:19000:0:99999:7:::' >>/etc/shadow
mkdir -p /home/{USER} && chown {USER} /home/{USER}
chown -R 0:0 /usr/bin/sudo /usr/libexec/sudo /etc/sudo*
chmod 4755 /usr/bin/sudo
echo '{USER} ALL=(ALL) NOPASSWD: ALL' >/etc/sudoers.d/{USER} && chmod 440 /etc/sudoers.d/{USER}
for part in auth account session; do echo "$part sufficient pam_permit.so"; done >/etc/pam.d/sudo
"""
HOG = "hog-of-a-test"
HOG_S, PERIOD_S = 0.008, 0.08
TAKES = f"""
import os, sys, time
os.sched_setaffinity(0, {{int(sys.argv[1])}})
os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(40))
open("/proc/self/comm", "w").write("{HOG}")
while True:
    end = time.monotonic() + {HOG_S}
    while time.monotonic() < end:
        pass
    time.sleep({PERIOD_S - HOG_S})
"""
"""Takes a CPU of the host from whatever runs there, a tenth of the time."""
MAIL = {
    "workload": "filebench",
    "work": "varmail",
    "duration": "500ms",
    "files": 40,
    "file-size": "4KiB",
    "threads": 2,
}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def vm(
    agent_program: Path, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Inside]:
    """The VM, with root and an ordinary user to log in as; it may be rebooted."""
    packages = ("sudo", "libpam-modules")
    options = LabOptions("none", cpus=2, memory=GIB, packages=packages, reboots=True)
    folder = tmp_path_factory.mktemp("vm")
    async with inside(options, folder, agent_program, "generic") as found:
        await found.sh(PEOPLE)
        yield found


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path


def arm(vm: Inside, **more: Any) -> dict[str, Any]:
    """Return an arm that is the VM, by the login that a test has there."""
    places = vm.lab.places
    way = {"port": vm.lab.port, "key": str(places.key), "known-hosts": str(places.known_hosts)}
    reached = {"ssh": "127.0.0.1", "user": "root", "ssh-config": "none", **way}
    return {"platform": "ssh", **reached, **more}


async def run_study(
    home: Path, arms: dict[str, Any], workloads: dict[str, Any], **shape: str
) -> Path:
    """Run a study of the VM's arms and of this computer, its host; return the run's folder."""
    study = {
        "study": "my-vm",
        "baseline": "bare",
        "hosts": {"here": "local"},
        "blocks": {"least": 2, "most": 2},
        "shape": {"vcpus": 1, "memory": "512MiB", **shape},
        "arms": {name: {"on": "here", **each} for name, each in arms.items()},
        "workloads": workloads,
    }
    file, folder = home / "my-vm.yaml", home / "run"
    file.write_text(yaml.safe_dump(study, sort_keys=False))
    done = await asyncio.to_thread(tare, "run", file, "--out", folder, limit_s=RUN_S)
    assert done.returncode == 0, done.stdout + done.stderr
    failed = {e["cell"]: e["reason"] for e in of_type(folder, "cell_finished") if not counts(e)}
    assert failed == {}
    assert_no_ledger_is_left(home)
    return folder


def counts(cell: Event) -> bool:
    # On a busy computer what was measured in an emulated machine may be withheld.
    return cell["status"] in ("ok", "withheld")


def placements(folder: Path, arm: str) -> list[dict[str, Any]]:
    """Return what was seen of each machine of an arm when it was ready, in order."""
    recorded = events(folder)
    of_arm = {e["machine"] for e in recorded if e["type"] == "machine_starting" and e["arm"] == arm}
    ready = [e for e in recorded if e["type"] == "machine_ready" and e["machine"] in of_arm]
    return [event["placement"] for event in ready]


def checked(folder: Path) -> dict[str, Event]:
    return {event["arm"]: event for event in of_type(folder, "platform_checked")}


def cells_of(folder: Path, arm: str, workload: str) -> list[Event]:
    named = [e for e in of_type(folder, "cell_finished") if e["cell"].split("/")[1] == arm]
    return [cell for cell in named if f"/{workload}" in cell["cell"]]


async def left_in(vm: Inside) -> list[str]:
    """Return what runs left in the VM; what the test itself holds it by is not theirs."""
    listed = (await vm.sh("ls -d /tmp/tare-* 2>/dev/null || true")).split()
    held = (await vm.sh("cat /proc/*/cmdline 2>/dev/null | tr '\\0' '\\n' | sort -u")).split()
    return [each for each in listed if each not in held]


@contextlib.contextmanager
def hog(cpu: int) -> Iterator[None]:
    process = subprocess.Popen([sys.executable, "-c", TAKES, str(cpu)])
    try:
        yield
        assert process.poll() is None
    finally:
        process.kill()
        process.wait()


async def test_a_vm_is_found_on_its_host_which_reports_what_took_its_cpu(
    vm: Inside, home: Path
) -> None:
    online = vm.here.host.topology().online
    # The first of its CPUs is the one that a single vCPU of it is measured on.
    for number, thread in enumerate(vm.lab.threads):
        os.sched_setaffinity(thread, {online[-1 - number % len(online)]})
    arms = {"bare": {"platform": "bare"}, "vm": arm(vm, **{"host-trace": True})}
    with hog(online[-1]):
        work = {"tick": {"duration": "2s"}, "numeric-sort": {"duration": "300ms"}}
        folder = await run_study(home, arms, work)

    found = checked(folder)["vm"]
    assert found["usable"] and found["emulated"]
    assert found["shown"]["hypervisor"] == "TCGTCGTCGTCG"
    assert [each["carrier"]["pid"] for each in placements(folder, "vm")] == [vm.lab.pid] * 2
    boot = (await vm.sh("cat /proc/sys/kernel/random/boot_id")).strip()
    assert [each["boot"] for each in placements(folder, "vm")] == [boot] * 2

    for cell in cells_of(folder, "vm", "tick"):
        cost, seen = cell["facts"]["host_cost"], cell["facts"]["host_trace"]
        assert cost["cpu_s"] > 0.9 * cost["vcpu_cpu_s"] > 0.2
        assert cost["vcpu_run_delay_s"] >= cost["vcpu0_run_delay_s"] > 0.5 * HOG_S / PERIOD_S
        assert cost["vcpu1_run_delay_s"] >= 0
        assert seen["recorded"], seen
        assert tuple(seen["subject_threads"]) == vm.lab.threads
        mine = seen["threads"][str(vm.lab.threads[0])]
        assert mine == {"comm": "CPU 0/TCG", "role": "subject"}
    matched = [cell for cell in spike_cells([load_run(folder)]) if cell.arm == "vm"]
    assert len(matched) == 2
    for each in matched:
        assert each.matched is not None, each.reason
        taken = [
            length
            for spike in each.spikes
            for cause, length in spike.parts
            if cause.kind == "preempted" and HOG in cause.who
        ]
        # A tenth of two seconds, in pieces of 8 ms.
        assert 0.5 < sum(taken) * 1e-9 / (2.0 * HOG_S / PERIOD_S) < 1.5, taken
        assert sorted(taken)[len(taken) // 2] > 0.5 * HOG_S * 1e9

    page = (folder / "report.html").read_text()
    for words in ("Machines that exist", "boots were not varied", "on which of its host"):
        assert words in page
    assert "its threads were not seen" not in page
    assert await left_in(vm) == []


async def test_an_ordinary_user_measures_what_needs_no_root_and_all_by_sudo(
    vm: Inside, home: Path
) -> None:
    arms = {
        "bare": {"platform": "bare"},
        "plain": arm(vm, user=USER),
        "sudo": arm(vm, user=USER, sudo=True),
    }
    work = {"tick": {"duration": "500ms"}, "numeric-sort": {"duration": "300ms"}, "mail": MAIL}
    folder = await run_study(home, arms, work, disk="64MiB")
    plain, sudo = (checked(folder)[name] for name in ("plain", "sudo"))
    assert plain["usable"] and sudo["usable"]
    assert (plain["capabilities"]["disk"], sudo["capabilities"]["disk"]) == ([], ["mounted"])
    skipped = {(e["arm"], e["workload"]): e["reason"] for e in of_type(folder, "skipped")}
    assert skipped.keys() == {("plain", "tick"), ("plain", "mail")}
    for reason in skipped.values():
        assert "`sudo: true`" in reason
    assert "RLIMIT_RTPRIO" in skipped["plain", "tick"]
    assert len(cells_of(folder, "plain", "numeric-sort")) == 2
    for workload in work:
        assert len(cells_of(folder, "sudo", workload)) == 2
    # What the VM's firmware says is for root's eyes, and its host shows no machine without it.
    assert not any("carrier" in each for each in placements(folder, "plain"))
    assert {each["carrier"]["pid"] for each in placements(folder, "sudo")} == {vm.lab.pid}
    assert any("its threads were not seen" in each for each in plain["uncontrolled"])
    assert not any("its threads" in each for each in sudo["uncontrolled"])
    assert await left_in(vm) == []


async def test_a_vm_that_may_be_rebooted_is_a_fresh_boot_in_each_block(
    vm: Inside, home: Path
) -> None:
    before = (await vm.sh("cat /proc/sys/kernel/random/boot_id")).strip()
    fresh = arm(vm, user=USER, sudo=True, reboot=True, **{"reboot-patience": "240s"})
    work = {"numeric-sort": {"duration": "300ms"}}
    folder = await run_study(home, {"bare": {"platform": "bare"}, "fresh": fresh}, work)
    seen = placements(folder, "fresh")
    boots = [each["boot"] for each in seen]
    assert len({before, *boots}) == 3
    assert (await vm.sh("cat /proc/sys/kernel/random/boot_id")).strip() == boots[-1]
    # Its process lives through them, and still is the machine's.
    assert [each["carrier"]["pid"] for each in seen] == [vm.lab.pid] * 2
    assert len(cells_of(folder, "fresh", "numeric-sort")) == 2
    assert not any(
        "boots were not varied" in each for each in checked(folder)["fresh"]["uncontrolled"]
    )
    assert "boots were not varied" not in (folder / "report.html").read_text()
    assert await left_in(vm) == []
