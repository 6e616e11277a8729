"""Where a study says that it is carried out, and the order that this gives its blocks."""

from __future__ import annotations

from dataclasses import replace
from itertools import groupby

import pytest
from hypothesis import given
from hypothesis import strategies as st

from study.study_catalog import ABLE, CATALOG, KINDS
from tare.scenarios.placement import HostCpus
from tare.study.hosting import HostSpec
from tare.study.load import parse_study, restore_study
from tare.study.model import Study
from tare.study.plan import Plan, make_plan
from tare.study.yamltext import StudyError

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
    return make_plan(study, seed, facts, HostCpus(online=(0, 1)), KINDS, 20.0 if booted else 0.0)


def test_a_study_is_carried_out_here_unless_it_says_otherwise() -> None:
    assert parsed("").host == parsed("host: local\n").host == HostSpec.model_validate({})
    assert parsed("").host.kind == "local"


def test_words_stand_for_what_they_mean() -> None:
    study = parsed("host: lab\nlab: deterministic\n")
    assert study.host.kind == "lab"
    assert study.lab.deterministic
    assert study.lab.cpus == 1  # counted time holds on one CPU only
    own = parsed("host: lab\nlab: {cpus: 4, memory: 2GiB}\n").lab
    assert (own.cpus, own.memory, own.deterministic) == (4, 2 << 30, False)


def test_a_host_over_ssh_with_a_boot_menu() -> None:
    host = parsed(
        "host: {ssh: x.example, user: me, known-hosts: k, password-env: PW,\n"
        "       boot: {kvm: {entry: Debian}, xen-credit: {entry: 'Advanced>Xen'}}}\n"
    ).host
    assert (host.kind, host.ssh, host.user, host.password_env) == ("ssh", "x.example", "me", "PW")
    assert host.boot is not None
    assert host.boot.entry_of("none") == host.boot.entry_of("kvm") == "Debian"
    assert host.boot.entry_of("xen") == host.boot.entry_of("xen:credit") == "Advanced>Xen"


@pytest.mark.parametrize(
    "host",
    ["", "host: lab\nlab: deterministic\n", "host: {ssh: a, boot: {xen: {entry: X}}}\n"],
)
def test_a_stored_study_knows_its_host(host: str) -> None:
    study = parsed(host)
    assert restore_study(study.model_dump(mode="json"), CATALOG) == study


@pytest.mark.parametrize(
    ("host", "said"),
    [
        ("host: labs\n", "s.yaml:2:7: host: must be `local`, `lab` or {ssh: NAME}, not 'labs'"),
        ("host: {shh: a}\n", "did you mean 'ssh'?"),
        ("host: {user: me}\n", "name the host, as in {ssh: NAME}"),
        ("host: {ssh: a, port: 99999}\n", "s.yaml:2:22: host.port: must be at most 65535"),
        ("host: {ssh: a, password-env: A, password-file: b}\n", "not both"),
        ("host: {ssh: a, boot: {kvm: {}}}\n", "host.boot.kvm.entry: is missing"),
        ("host: {ssh: a, boot: {esxi: {entry: X}}}\n", "host.boot.esxi: unknown key"),
        ("host: lab\nlab: fast\n", "lab: must be `deterministic` or keys with values"),
        ("host: lab\nlab: {memory: 1MiB}\n", "too little for a hypervisor"),
        ("host: 7\n", "host: must be"),
    ],
)
def test_what_is_wrong_with_a_host_is_told_where_it_stands(host: str, said: str) -> None:
    assert said in problem(host)


def test_a_lab_that_is_not_used_is_warned_of() -> None:
    assert any("`lab`" in warning for warning in parsed("lab: {cpus: 3}\n").warnings)
    assert not any("`lab`" in warning for warning in parsed("host: lab\n").warnings)


@given(st.integers(0, 2**63 - 1), st.integers(1, 999))
def test_visits_of_one_boot_come_together_and_nothing_is_lost(seed: int, block: int) -> None:
    study = parsed("host: lab\n")
    visits = plan_of(study, seed, booted=True).block(block)
    boots = [boot for boot, _ in groupby(visit.boot for visit in visits)]
    assert sorted(boots) == ["kvm", "none", "xen"]
    assert all(BOOTS[visit.arm] == visit.boot for visit in visits)
    plain = plan_of(study, seed, booted=False).block(block)
    assert {cell.id for visit in visits for cell in visit.cells} == {
        cell.id for visit in plain for cell in visit.cells
    }


@given(st.integers(0, 2**63 - 1), st.integers(1, 999))
def test_a_host_of_one_boot_keeps_the_order_it_always_had(seed: int, block: int) -> None:
    study = parsed("")
    plain = plan_of(study, seed, booted=False)
    facts = {arm: replace(ABLE, boot="xen") for arm in study.arms}
    same = make_plan(study, seed, facts, HostCpus(online=(0, 1)), KINDS)
    order = [(visit.arm, visit.scenario) for visit in plain.block(block)]
    assert order == [(visit.arm, visit.scenario) for visit in same.block(block)]


def test_all_orders_of_boots_and_of_visits_within_a_boot_come_up() -> None:
    plan = plan_of(parsed("host: lab\n"), 1, booted=True)
    boots, within = set(), set()
    for number in range(1, 200):
        visits = plan.block(number)
        boots.add(tuple(boot for boot, _ in groupby(visit.boot for visit in visits)))
        within.add(tuple(visit.arm for visit in visits if visit.boot == "kvm"))
    assert len(boots) == 6
    assert len(within) == 6


def test_the_estimate_counts_the_hosts_boots() -> None:
    study = parsed("host: lab\n")
    booted, plain = (plan_of(study, 1, booted=b) for b in (True, False))
    assert booted.block_s == pytest.approx(plain.block_s + 3 * 20.0)
