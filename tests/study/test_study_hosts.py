"""The hosts that a study names, and the order that they give its blocks."""

from __future__ import annotations

from dataclasses import replace
from itertools import groupby
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from study.study_catalog import ABLE, CATALOG, KINDS
from tare.study.model.study import Study
from tare.study.planning.host_cpus import HostCpus
from tare.study.planning.plan import ArmFacts, HostFacts, Plan, make_plan
from tare.study.reading.hosting import HostSpec
from tare.study.reading.hosts_file import KnownHosts
from tare.study.reading.load import parse_study, restore_study
from tare.study.reading.yamltext import StudyError

ARMS = """
baseline: base
arms:
  base: {platform: bare}
  base-again: {twin-of: base}
  k1: {platform: qemu}
  k2: {platform: qemu, devices: emulated}
  x1: {platform: qemu, cpu-model: a}
scenarios: {one: , two: {subject: {cpus: pinned}}}
workloads: {tick: {samples: [1, 2]}}
"""
BOOTS = {"base": "none", "base-again": "none", "k1": "kvm", "k2": "kvm", "x1": "xen"}


def parsed(host: str) -> Study:
    return parse_study(f"study: x\n{host}{ARMS}".encode(), "s.yaml", CATALOG)


def problem(host: str) -> str:
    with pytest.raises(StudyError) as caught:
        parsed(host)
    message: str = caught.value.message
    return message


def plan_of(study: Study, seed: int, booted: bool) -> Plan:
    facts = {arm: replace(ABLE, boot=BOOTS[arm] if booted else "") for arm in study.arms}
    hosts = {"": HostFacts(HostCpus(online=(0, 1)), 20.0 if booted else 0.0)}
    return make_plan(study, seed, facts, hosts, KINDS)


def test_a_study_is_carried_out_here_unless_it_says_otherwise() -> None:
    assert parsed("").host == parsed("host: local\n").host == HostSpec.model_validate({})
    assert parsed("").host.kind == "local"


def test_words_stand_for_what_they_mean() -> None:
    study = parsed("host: lab\nlab: deterministic\n")
    assert study.host.kind == "lab"
    assert study.lab.deterministic
    assert study.lab.cpus == 1  # counted time holds on one CPU only
    large = parsed("host: lab\nlab: large\n").lab
    assert (large.cpus, large.memory, large.deterministic) == (4, 8 << 30, False)
    own = parsed("host: lab\nlab: {cpus: 4, memory: 2GiB}\n").lab
    assert (own.cpus, own.memory, own.deterministic) == (4, 2 << 30, False)


def test_a_host_over_ssh_with_a_boot_menu() -> None:
    host = parsed(
        "host: {ssh: x.example, user: me, known-hosts: k, password-env: PW,\n"
        "       boot: {kvm: {entry: Debian}, xen-credit: {entry: 'Advanced>Xen'},\n"
        "              xen-rtds: {entry: RT}, others: {acrn-part: {entry: ACRN}}}}\n"
    ).host
    assert (host.kind, host.ssh, host.user, host.password_env) == ("ssh", "x.example", "me", "PW")
    assert host.boot is not None
    assert host.boot.entry_of("none") == host.boot.entry_of("kvm") == "Debian"
    assert host.boot.entry_of("xen") == host.boot.entry_of("xen:credit") == "Advanced>Xen"
    assert host.boot.entry_of("xen:rtds") == "RT"
    assert host.boot.entry_of("acrn:part") == "ACRN"
    assert host.boot.boots == ("none", "kvm", "xen", "xen:credit", "xen:rtds", "acrn:part")


@pytest.mark.parametrize(
    "host",
    [
        "",
        "host: lab\nlab: deterministic\n",
        "host: lab\nlab: {xen: rtds, qemu: /bin/sh}\n",
        "host: lab\nlab: {nodes: 2, packages: [lvm2, g++]}\n",
        "host: {ssh: a, boot: {xen: {entry: X}, others: {acrn: {entry: Y}}}}\n",
    ],
)
def test_a_stored_study_knows_its_host(host: str) -> None:
    study = parsed(host)
    assert restore_study(study.model_dump(mode="json"), CATALOG) == study


@pytest.mark.parametrize(
    ("host", "message"),
    [
        ("host: labs\n", "s.yaml:2:7: host: there is no host 'labs'; did you mean 'lab'?"),
        ("host: {shh: a}\n", "did you mean 'ssh'?"),
        ("host: {user: me}\n", "name the host, as in {ssh: NAME}"),
        ("host: {ssh: a, port: 99999}\n", "s.yaml:2:22: host.port: must be at most 65535"),
        ("host: {ssh: a, password-env: A, password-file: b}\n", "not both"),
        ("host: {ssh: a, boot: {kvm: {}}}\n", "host.boot.kvm.entry: is missing"),
        ("host: {ssh: a, boot: {esxi: {entry: X}}}\n", "host.boot.esxi: unknown key"),
        ("host: {ssh: a, boot: {others: {acrn: X}}}\n", "host.boot.others.acrn: must be keys"),
        (
            "host: {ssh: a, boot: {others: {A_b: {entry: X}}}}\n",
            "host.boot.others.A-b: must be a hypervisor's word, or",
        ),
        ("host: lab\nlab: fast\n", "lab: must be `deterministic`, `large` or keys with values"),
        ("host: lab\nlab: {memory: 1MiB}\n", "too little for a hypervisor"),
        ("host: lab\nlab: {xen: /none/xen}\n", "s.yaml:3:12: lab.xen: there is no file /none/xen"),
        ("host: lab\nlab: {kernel: generic}\n", "lab.kernel: there is no file generic"),
        ("host: lab\nlab: {qemu: /etc/passwd}\n", "lab.qemu: /etc/passwd is not executable"),
        ("host: lab\nlab: {cpus: 4, nodes: 3}\n", "evenly over 3 NUMA nodes; give it 6 CPUs"),
        ("host: lab\nlab: {nodes: 0}\n", "lab.nodes: must be at least 1"),
        ("host: lab\nlab: {dom0-cpus: 3}\n", "dom0 cannot have 3 of 2 CPUs"),
        ("host: lab\nlab: {packages: [lvm2, LVM]}\n", "lab.packages[1]: must be a package's name"),
        ("host: 7\n", "host: must be"),
    ],
)
def test_fault_of_a_host_is_reported_with_its_place(host: str, message: str) -> None:
    assert message in problem(host)


def test_a_lab_that_is_not_used_is_warned_of() -> None:
    assert any("`lab`" in warning for warning in parsed("lab: {cpus: 3}\n").warnings)
    assert not any("`lab`" in warning for warning in parsed("host: lab\n").warnings)


@given(st.integers(0, 2**63 - 1), st.integers(1, 999))
def test_visits_of_one_boot_come_together_and_nothing_is_lost(seed: int, block: int) -> None:
    study = parsed("host: lab\n")
    batches = plan_of(study, seed, booted=True).block(block)
    boots = [boot for boot, _ in groupby(batch.boot for batch in batches)]
    assert sorted(boots) == ["kvm", "none", "xen"]
    assert all(BOOTS[batch.arm] == batch.boot for batch in batches)
    plain = plan_of(study, seed, booted=False).block(block)
    assert {cell.id for batch in batches for cell in batch.cells} == {
        cell.id for batch in plain for cell in batch.cells
    }


@given(st.integers(0, 2**63 - 1), st.integers(1, 999))
def test_a_host_of_one_boot_keeps_the_order_it_always_had(seed: int, block: int) -> None:
    study = parsed("")
    plain = plan_of(study, seed, booted=False)
    facts = {arm: replace(ABLE, boot="xen") for arm in study.arms}
    same = make_plan(study, seed, facts, {"": HostFacts(HostCpus(online=(0, 1)))}, KINDS)
    order = [(batch.arm, batch.scenario) for batch in plain.block(block)]
    assert order == [(batch.arm, batch.scenario) for batch in same.block(block)]


def test_boots_and_visits_within_a_boot_are_balanced() -> None:
    plan = plan_of(parsed("host: lab\n"), 1, booted=True)
    boots, within = set(), set()
    for number in range(1, 61):
        batches = plan.block(number)
        boots.add(tuple(boot for boot, _ in groupby(batch.boot for batch in batches)))
        within.add(tuple(batch.arm for batch in batches if batch.boot == "kvm"))
    assert len(boots) == 6
    # Two arms, scenario after scenario: either may be first in each.
    assert len(within) == 4


def test_the_estimate_counts_the_hosts_boots() -> None:
    study = parsed("host: lab\n")
    booted, plain = (plan_of(study, 1, booted=b) for b in (True, False))
    assert booted.block_s == pytest.approx(plain.block_s + 3 * 20.0)


KNOWN = KnownHosts(Path("/home/me/hosts.yaml"), {"xen1": {"ssh": "x.example", "known-hosts": "k"}})
TWO = "hosts: {k: {ssh: k.example, user: me}, x: xen1}\n"


def on(host: str, **arms: str) -> Study:
    text = f"study: x\n{host}{ARMS}"
    for arm, name in arms.items():
        text = text.replace(f"  {arm}: {{", f"  {arm}: {{on: {name}, ")
    return parse_study(text.encode(), "s.yaml", CATALOG, hosts=KNOWN)


def refused(host: str, **arms: str) -> str:
    with pytest.raises(StudyError) as caught:
        on(host, **arms)
    message: str = caught.value.message
    return message


def test_a_host_may_be_named_from_the_hosts_file() -> None:
    study = on("host: xen1\n")
    assert (study.host.ssh, study.host.known_hosts) == ("x.example", "k")
    assert study.hosts == {}
    assert study.computers == {"": study.host}


@pytest.mark.parametrize(
    "host", ["hosts: {k: {ssh: k.example}}\n", "host: k\nhosts: {k: {ssh: k.example}, x: xen1}\n"]
)
def test_a_study_on_one_of_the_hosts_that_it_names_is_a_study_of_one_host(host: str) -> None:
    study = on(host)
    assert study.host.ssh == "k.example"
    assert study.computers == {"": study.host}
    assert all(arm.on is None for arm in study.arms.values())


def test_every_arm_of_several_hosts_says_which_is_its_own() -> None:
    study = on(TWO, x1="x", k2="local")
    assert list(study.computers) == ["k", "local", "x"]
    assert study.computers["x"].known_hosts == "k"
    assert study.computers["k"].user == "me"
    hosts = {arm: study.host_of(arm) for arm in study.arms if "@" not in arm}
    assert hosts == {"base": "k", "base-again": "k", "k1": "k", "k2": "local", "x1": "x"}
    assert restore_study(study.model_dump(mode="json"), CATALOG) == study


def test_hosts_may_be_a_list_of_known_names() -> None:
    assert list(on("hosts: [xen1, lab]\n", k1="lab").computers) == ["xen1", "lab"]


def test_an_arm_may_name_a_known_host_without_more() -> None:
    assert set(on("", x1="xen1").computers) == {"local", "xen1"}


@pytest.mark.parametrize(
    ("host", "arms", "message"),
    [
        (
            TWO,
            {"k1": "z"},
            "arms.k1.on: there is no host 'z'; known: k, lab, local, x, xen1. To add",
        ),
        ("host: xen2\n", {}, "there is no host 'xen2'; did you mean 'xen1'? To add one"),
        ("host: xen2\n", {}, "To add one, write `xen2: {ssh: ADDRESS}` in /home/me/hosts.yaml"),
        ("hosts: [xen1, yen]\n", {}, "s.yaml:2:15: hosts[1]: there is no host 'yen'"),
        ("hosts: {k: {shh: a}}\n", {}, "s.yaml:2:13: hosts.k.shh: unknown key; did you mean 'ssh'"),
        ("hosts: 7\n", {}, "s.yaml:2:8: hosts: must be names of hosts"),
        (
            "host: {ssh: a}\n",
            {"x1": "xen1"},
            "host: arms run on other hosts too, so this one needs",
        ),
    ],
)
def test_fault_of_hosts_is_reported_with_its_place(
    host: str, arms: dict[str, str], message: str
) -> None:
    assert message in refused(host, **arms)


def test_the_baseline_is_run_on_each_host_that_has_arms() -> None:
    study = on(TWO, x1="x", k2="local")
    assert list(study.arms)[-4:] == ["base@local", "base@x", "base-again@local", "base-again@x"]
    assert study.arms["base@x"].model_dump() == {**study.arms["base"].model_dump(), "on": "x"}
    assert study.own_baselines == {
        "k2": "base@local",
        "x1": "base@x",
        "base@local": "base@local",
        "base@x": "base@x",
        "base-again@local": "base@local",
        "base-again@x": "base@x",
    }
    assert study.aa == ("base", "base-again")
    # Its twin too, so that identical arms show how much they differ on each host.
    again = study.arms["base-again@x"]
    assert again.model_dump() == {**study.arms["base@x"].model_dump(), "twin_of": "base@x"}


def test_run_begun_without_twins_on_other_hosts_resumes_without() -> None:
    study = on(TWO, x1="x", k2="local")
    stored = study.model_dump(mode="json")
    assert restore_study(stored, CATALOG) == study
    stored["arms"] = {name: arm for name, arm in stored["arms"].items() if "again@" not in name}
    assert list(restore_study(stored, CATALOG).arms) == list(stored["arms"])


def test_an_arm_that_is_the_baseline_on_another_host_is_that_hosts_baseline() -> None:
    text = f"study: x\n{TWO}{ARMS}".replace(
        "  x1: {", "  base-x: {platform: bare, on: x}\n  x1: {on: x, "
    )
    study = parse_study(text.encode(), "s.yaml", CATALOG, hosts=KNOWN)
    assert [name for name in study.arms if "@" in name] == ["base-again@x"]
    assert study.arms["base-again@x"].twin_of == "base-x"
    assert study.own_baselines == {"base-x": "base-x", "x1": "base-x", "base-again@x": "base-x"}


def test_a_study_of_one_host_has_no_more_baselines() -> None:
    study = on("")
    assert list(study.arms) == ["base", "base-again", "k1", "k2", "x1"]
    assert study.own_baselines == {}


SEVERAL = {"k": HostFacts(HostCpus((0, 1)), 20.0), "x": HostFacts(HostCpus((0, 1, 2, 3)), 5.0)}


def plan_on(study: Study, seed: int = 1, unusable: str = "") -> Plan:
    able = {arm: replace(ABLE, boot=BOOTS.get(arm, "none")) for arm in study.arms}
    lacking = {
        arm: ArmFacts(usable=False, reason="no room")
        for arm in able
        if unusable in (arm, study.arms[arm].twin_of)
    }
    return make_plan(study, seed, {**able, **lacking}, SEVERAL, KINDS)


def test_machines_are_placed_on_the_cpus_of_their_own_host() -> None:
    plan = plan_on(on(TWO, x1="x"))
    pinned = {
        batch.arm: batch.placement.subject for batch in plan.batches if batch.scenario == "two"
    }
    assert pinned["base"] == pinned["k1"] == (1,)
    assert pinned["base@x"] == pinned["x1"] == (3,)
    assert plan.boots == {"k": ("none", "kvm"), "x": ("xen", "none")}
    assert plan.block_s == 2 * 20.0 + 2 * 5.0 + sum(batch.expected_s for batch in plan.batches)


@given(st.integers(0, 2**63 - 1), st.integers(1, 999))
def test_visits_of_one_boot_come_together_on_each_of_several_hosts(seed: int, block: int) -> None:
    plan = plan_on(on(TWO, x1="x"), seed)
    batches = plan.block(block)
    for host, boots in plan.boots.items():
        there = [boot for boot, _ in groupby(v.boot for v in batches if v.host == host)]
        assert sorted(there) == sorted(boots)
    assert {(v.arm, v.scenario) for v in batches} == {(v.arm, v.scenario) for v in plan.batches}
    assert len(batches) == len(plan.batches)


def test_arm_on_a_host_without_the_baseline_is_noted() -> None:
    plan = plan_on(on(TWO, x1="x"), unusable="base@x")
    assert plan.notes[0] == (
        "x1 on x: arm and host cannot be separated, because the baseline cannot run there; the "
        "ratios are to base on k"
    )
    assert not any("be separated" in note for note in plan_on(on(TWO, x1="x")).notes)
