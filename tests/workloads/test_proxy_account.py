"""Where the time of a proxied load went, and what limited it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tare.run.lifecycle.session import agent_path
from tare.workloads import WORKLOADS
from tare.workloads.network.proxy import kernel_text as kernel
from tare.workloads.network.proxy.account import (
    HOST,
    INSIDE,
    CpuAccount,
    account_of,
    shares,
)
from tare.workloads.network.proxy.owners import (
    CLIENT,
    DEVICES,
    HYPERVISOR,
    IDLE,
    NETBACK,
    STEAL,
    UNOWNED,
    VCPUS,
    VHOST,
    VSWITCHD,
    Owners,
    Task,
    used,
    with_strangers,
)
from tare.workloads.network.proxy.summary import summed
from workloads.proxy_accounts import account, stat, task, under_xen
from workloads.proxy_accounts import proxied_result as result
from workloads.workloads_results import changed, places

WORKLOAD = WORKLOADS["proxy"]


def test_all_cpu_time_has_an_owner_split_into_user_and_kernel() -> None:
    found = account_of(result())
    on_host = shares(found, HOST)
    assert on_host == pytest.approx(
        {
            "haproxy kernel": 0.15,
            "haproxy user": 0.05,
            CLIENT: 0.1,
            "origin": 0.05,
            "process editor": 0.15,
            IDLE: 0.5,
        }
    )
    assert found.owned == pytest.approx(1.0)
    # 4 s of HAProxy for 100 requests/s over 10 s.
    assert found.machine_s == pytest.approx(0.004)
    inside = shares(found, INSIDE)
    assert inside == pytest.approx({"user": 0.1, "system": 0.25, "softirq": 0.05, IDLE: 0.6})
    each = {spent.who: spent.per_request_s for spent in found.spent if spent.where == HOST}
    assert each["haproxy kernel"] == pytest.approx(0.003)


def test_a_machine_on_another_computer_has_its_own_account_and_none_of_this_host() -> None:
    reported = result(outside={"client": [3], "origin": [2]}, own_kernel=["client", "origin"])
    machine = reported["accounts"]["machine"]
    far = {"machine": machine, "client": reported["accounts"]["host"], "origin": machine}
    found = summed({**reported, "accounts": far, "owners": {"machine": []}, "shared": False})
    assert {each["where"] for each in found["account"]["spent"]} == {INSIDE}
    assert not {"owned", "softirq", "hardirq"} & found["account"].keys()
    assert "another computer" in found["account"]["no_cycles"]
    # Its platform reports the cost: 4 s in 10 s, for 100 requests/s.
    assert found["account"]["machine_s"] == pytest.approx(0.004)
    assert found["host_cost"] == {"cpu_s": pytest.approx(4.0), "wall_s": 10.0}
    assert "owned-share" not in WORKLOAD.observe(WORKLOAD.parameters(), found)


PLANTED = """
import os, sys, threading, time
share, until = float(sys.argv[1]), time.monotonic() + float(sys.argv[2])
open("/proc/self/comm", "w").write("planted")
try:
    os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
except PermissionError:
    pass
print("ready", flush=True)
began = time.monotonic()
while time.monotonic() < until:
    while time.process_time() < share * (time.monotonic() - began):
        pass
    time.sleep(0.002)
"""


def account_with_planted_load(share: float) -> CpuAccount:
    """Return who used this computer's CPUs while processes took this share of all time."""
    wanted = share * (os.cpu_count() or 1)
    several = -(-wanted // 0.9)
    argv = [sys.executable, "-c", PLANTED, str(wanted / several), "20"]
    begun = [subprocess.Popen(argv, stdout=subprocess.PIPE) for _ in range(int(several))]
    try:
        for process in begun:
            assert process.stdout is not None
            assert process.stdout.readline() == b"ready\n"
        asked = {"after_s": 0.3, "seconds": 4.0, "files": [kernel.STAT], "cycles": True}
        done = subprocess.run(
            [str(agent_path()), "run", "account", json.dumps(asked)],
            capture_output=True,
            timeout=60,
            check=True,
        )
    finally:
        for process in begun:
            process.kill()
            process.communicate()
    account = result(owners={}, shared=True, cpus=[])
    account["accounts"]["host"] = json.loads(done.stdout)["value"]
    return account_of(account)


@pytest.mark.skipif(os.geteuid() != 0, reason="only in real time its share is sure")
def test_a_planted_consumer_is_found_within_two_points_and_all_time_has_an_owner() -> None:
    found = []
    # Other tests of this moment come and go by the hundred, which can keep it from its share.
    for _ in range(4):
        account = account_with_planted_load(0.3)
        assert account.owned is not None
        assert (account.cycles_per_s is None) == bool(account.no_cycles)
        found.append((shares(account, HOST)["process planted"], account.owned))
        if abs(found[-1][0] - 0.3) <= 0.02 and found[-1][1] >= 0.95:
            return
    pytest.fail(f"planted 0.3 of all time; found, and with an owner: {found}")


def test_cycles_for_each_request_are_reported_or_the_reason_for_none() -> None:
    accounts = result()
    # 10 s of busy CPUs, 3 GHz.
    accounts["accounts"]["host"]["cycles"] = {"cpus": {"0": 24e9, "1": 6e9}}
    found = account_of(accounts)
    assert found.cycles_per_s == pytest.approx(3e9)
    cycles = {spent.who: spent.cycles for spent in found.spent if spent.where == HOST}
    assert cycles["haproxy kernel"] == pytest.approx(0.003 * 3e9)
    assert cycles[IDLE] is None
    inside = {spent.who: spent.cycles for spent in found.spent if spent.where == INSIDE}
    # 0.5 s of software interrupts for 100 requests/s over 10 s.
    assert inside["softirq"] == pytest.approx(0.0005 * 3e9)
    assert inside[IDLE] is None
    kept = summed(accounts)["account"]
    assert kept["cycles_per_s"] == pytest.approx(3e9)
    accounts["accounts"]["host"]["cycles"] = {"absent": "No such file or directory"}
    kept = summed(accounts)["account"]
    assert kept["no_cycles"] == "No such file or directory"
    assert not any("cycles" in each for each in kept["spent"])


def test_agents_that_stand_for_a_role_are_that_role_and_all_others_are_tare_itself() -> None:
    accounts = result()
    accounts["owners"] |= {"tare": [10, 20, 30, 70]}
    host = accounts["accounts"]["host"]
    # A keeper of sessions, and what it began.
    host["tasks"] += [task(70, "exe", 1.0), task(71, "sh", 0.5)]
    host["parents"] += [[71, 70]]
    assert shares(account_of(accounts), HOST) == pytest.approx(
        {**shares(account_of(result()), HOST), "Tare itself": 0.075}
    )


def test_neighbours_count_neither_as_tare_nor_as_the_machine() -> None:
    accounts = result()
    accounts["owners"] |= {"neighbours": [50, 51]}
    host = accounts["accounts"]["host"]
    host["tasks"][3] = task(50, "qemu-system-x86", 3.0, tid=51)
    host["parents"] += [[50, 5]]
    found = account_of(accounts)
    assert shares(found, HOST)["neighbours"] == pytest.approx(0.15)
    assert "Tare itself" not in shares(found, HOST)
    assert found.machine_s == account_of(result()).machine_s


def test_time_without_an_owner_is_reported_as_unowned() -> None:
    accounts = result()
    accounts["accounts"]["host"]["tasks"] = accounts["accounts"]["host"]["tasks"][:3]
    found = account_of(accounts)
    assert shares(found, HOST)[UNOWNED] == pytest.approx(0.15)
    assert found.owned == pytest.approx(0.85)
    (warning,) = summed(accounts)["warnings"]
    assert warning.startswith("15 % of the host's CPU time has no owner")
    assert summed(result())["warnings"] == []


def test_time_that_the_hypervisor_below_took_is_stolen_and_not_unowned() -> None:
    accounts = result()
    host = accounts["accounts"]["host"]
    host["tasks"] = host["tasks"][:3]
    first = {"user": 100, "system": 300, "idle": 400, "steal": 200}
    host["after"]["/proc/stat"] = stat(first, {"user": 100, "system": 300, "idle": 600})
    found = account_of(accounts)
    assert shares(found, HOST)[STEAL] == pytest.approx(0.1)
    assert shares(found, HOST)[UNOWNED] == pytest.approx(0.05)
    assert found.owned == pytest.approx(0.95)
    # A kernel that leaves what was stolen in the time of its threads counts it once.
    host["tasks"] = result()["accounts"]["host"]["tasks"]
    twice = shares(account_of(accounts), HOST)
    assert STEAL not in twice and UNOWNED not in twice
    assert sum(twice.values()) == pytest.approx(1.0)


def test_a_guests_threads_are_its_vcpus_its_hypervisor_and_its_devices() -> None:
    owners = Owners(machine=frozenset({40, 41, 42, 43}), vcpus=frozenset({41}))
    tasks = [
        Task(40, 41, "qemu", "CPU 0/KVM", 60, 40, 60, 10.0),
        Task(40, 40, "qemu", "qemu", 0, 100, 0, 3.0),
        Task(40, 43, "qemu", "vhost-40", 0, 100, 0, 2.0),
        Task(2, 90, "vhost-40", "vhost-40", 0, 100, 0, 1.0),
        Task(2, 95, "vhost-77", "vhost-77", 0, 100, 0, 9.0),
        Task(2, 91, "vif3.0-q0-guest-rx", "vif3.0-q0-guest-rx", 0, 1, 0, 4.0),
        Task(2, 92, "ovs-vswitchd", "ovs-vswitchd", 0, 1, 0, 5.0),
    ]
    owned, strangers = used(tasks, owners, {})
    assert owned == pytest.approx(
        {VCPUS: 6.0, HYPERVISOR: 4.0, DEVICES: 3.0, VHOST: 3.0, NETBACK: 4.0, VSWITCHD: 5.0}
    )
    # Another machine's.
    assert strangers == {"vhost-77": 9.0}


def test_a_switch_that_tare_started_is_the_switch_in_all_its_threads_and_not_tare_itself() -> None:
    named = (("ovs-vswitchd", 4.0), ("handler7", 1.0), ("revalidator8", 0.5), ("urcu2", 0.25))
    tasks = [
        Task(70, 70 + number, "ovs-vswitchd", name, 0, 1, 0, seconds)
        for number, (name, seconds) in enumerate(named)
    ]
    tasks.append(Task(80, 80, "ovsdb-server", "ovsdb-server", 0, 1, 0, 0.125))
    owned, strangers = used(tasks, Owners(tare=frozenset({5})), {70: 5, 80: 5})
    assert owned == pytest.approx({VSWITCHD: 5.75, "Tare itself": 0.125})
    assert strangers == {}


def test_under_xen_all_cpus_of_the_computer_have_an_owner_and_not_dom0s_alone() -> None:
    found = account_of(under_xen())
    # 40 s in total. Interrupts of dom0's that no thread had are left: 13 s less 12 s.
    assert shares(found, HOST) == pytest.approx(
        {
            IDLE: 0.5,
            NETBACK: 0.15,
            VCPUS: 0.125,
            CLIENT: 0.05,
            "machine neighbour-1": 0.05,
            DEVICES: 0.05,
            "origin": 0.025,
            # Another machine's.
            "process vif9.0-q0-guest": 0.025,
            UNOWNED: 0.025,
        }
    )
    assert found.owned == pytest.approx(0.975)
    assert found.cpus == 4


def test_netback_and_emulator_count_for_a_xen_guest_like_vhost_for_kvm() -> None:
    # The guest's 5 s, netback's 6 s and the emulated devices' 2 s, for 100 requests/s over 10 s.
    assert account_of(under_xen()).machine_s == pytest.approx(0.013)
    summary = summed(under_xen(host_on=[0, 1]))
    assert summary["below"]["host_on"] == [0, 1]
    values = WORKLOAD.observe(WORKLOAD.parameters(), summary)
    assert values["cpu-per-request"] == pytest.approx(0.013)


def test_threads_of_dom0_ran_for_no_longer_than_xen_gave_it() -> None:
    accounts = under_xen()
    whole = account_of(accounts)
    assert whole.threads_of_given == pytest.approx(12 / 13)
    # Its threads report 12 s; Xen gave 10 s.
    accounts["below"]["host"] = 1.0
    accounts["below"]["machine"] += 0.3
    found = account_of(accounts)
    assert found.threads_of_given == pytest.approx(1.2)
    assert shares(found, HOST)[NETBACK] == pytest.approx(shares(whole, HOST)[NETBACK] / 1.2)
    assert sum(shares(found, HOST).values()) == pytest.approx(1.0)
    (warning,) = (text for text in summed(accounts)["warnings"] if "120 %" in text)
    assert "in proportion" in warning
    assert not any("in proportion" in text for text in summed(under_xen())["warnings"])


@pytest.mark.parametrize("lost", ["domain", "cpus", "machine", "host", "others"])
def test_figures_that_xen_left_out_are_named(lost: str) -> None:
    accounts = under_xen()
    del accounts["below"][lost]
    with pytest.raises(KeyError, match=lost):
        account_of(accounts)


def test_a_machine_with_its_own_kernel_is_accounted_by_that_kernel() -> None:
    accounts = result(shared=False)
    machine = accounts["accounts"]["machine"]
    machine["after"]["/proc/stat"] = stat({"user": 200, "irq": 100, "steal": 50, "idle": 650})
    inside = shares(account_of(accounts), INSIDE)
    assert inside == pytest.approx({"user": 0.2, "hardirq": 0.1, "steal": 0.05, IDLE: 0.65})


def test_a_cost_that_no_thread_shows_is_the_platforms_own() -> None:
    accounts = result()
    accounts["owners"] = {}
    assert account_of(accounts).machine_s == pytest.approx(0.4 / 100)


def test_packets_are_those_of_the_machines_own_interface() -> None:
    values = WORKLOAD.observe(WORKLOAD.parameters(), summed(result()))
    assert values["packets-in"] == 100.0
    assert (values["packets-out"], values["packet-out"]) == (50.0, 60.0)
    with pytest.raises(KeyError, match="tare-9b"):
        summed(result(interface="tare-9b"))


@given(
    st.lists(
        st.tuples(st.text(min_size=1, max_size=12), st.floats(0, 100, allow_nan=False)), max_size=40
    ),
    st.floats(100, 1000),
)
def test_strangers_are_never_lost(spent: list[tuple[str, float]], total: float) -> None:
    strangers = dict(spent)
    found = with_strangers({"client": 1.0}, strangers, total)
    assert sum(found.values()) == pytest.approx(1.0 + sum(strangers.values()))
    assert "other" not in found


@pytest.mark.fuzz
@given(st.text(max_size=300), st.text(max_size=300))
def test_no_text_of_a_kernel_breaks_the_readers(before: str, after: str) -> None:
    for path in kernel.FILES:
        kernel.counted({path: before}, {path: after}, path)
    for each in kernel.cpu_seconds({kernel.STAT: before}, {kernel.STAT: after}, 100).values():
        assert all(seconds >= 0 for seconds in each.values())
    with pytest.raises((KeyError, ValueError)):
        kernel.device(before, "no such interface")


def test_counters_are_read_by_their_names() -> None:
    text = "TcpExt: SyncookiesSent ListenOverflows\nTcpExt: 3 {}\nIpExt: A\nIpExt: 1 2\n"
    path = kernel.NETSTAT
    grew = kernel.counted({path: text.format(4)}, {path: text.format(9)}, path)
    assert grew == {"TcpExt:SyncookiesSent": 0, "TcpExt:ListenOverflows": 5}


@pytest.mark.parametrize("row", [[1], "haproxy!", [1, 2, "a", "b", "x", 0, 0, 0]])
def test_a_damaged_account_is_refused(row: Any) -> None:
    accounts = result()
    accounts["accounts"]["host"] = account(1.0, stat({}), stat({"idle": 100}), [row])
    with pytest.raises((ValueError, KeyError, TypeError)):
        account_of(accounts)


ANYTHING = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5)


@pytest.mark.fuzz
@given(data=st.data())
def test_anything_in_what_the_agents_tell_is_read_or_refused(data: st.DataObject) -> None:
    accounts: Any = data.draw(st.sampled_from([result, under_xen]))()
    for _ in range(data.draw(st.integers(1, 3))):
        accounts = changed(
            accounts, data.draw(st.sampled_from(places(accounts))), data.draw(ANYTHING)
        )
    try:
        summed(accounts)
    except (KeyError, ValueError, TypeError) as refused:
        assert str(refused)
