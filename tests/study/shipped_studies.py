"""The studies that come with Tare, planned for a host that is assumed."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from tare.platforms.contract import KVM_BOOT
from tare.registry import installed
from tare.run.catalog import build_catalog
from tare.run.hosts.lab import LAB_BOOT_S
from tare.run.preflight.checking import EMULATED_SLOWDOWN, arranged_cpus
from tare.study.model.study import Study
from tare.study.planning.host_cpus import HostCpus
from tare.study.planning.plan import ArmFacts, HostFacts, Plan, make_plan
from tare.study.reading.load import load_study
from tare.workloads import WORKLOADS

FOLDER = Path(__file__).parents[2] / "studies"
NAMES = tuple(sorted(path.stem for path in FOLDER.glob("*.yaml")))


@cache
def shipped(name: str) -> Study:
    return load_study(FOLDER / f"{name}.yaml", build_catalog())


def shipped_plan(name: str, on: int | HostCpus = 2) -> Plan:
    """Plan a study for a host of so many CPUs with an emulator, and without KVM or Xen."""
    study = shipped(name)
    whole = HostCpus(tuple(range(on))) if isinstance(on, int) else on
    cpus = len(whole.online)
    facts = {arm: assumed(study, arm, cpus) for arm in study.arms}
    # Each host that a study names is one of these.
    hosts = {
        name: HostFacts(
            arranged_cpus(study, name, whole), LAB_BOOT_S if host.kind == "lab" else 0.0
        )
        for name, host in study.computers.items()
    }
    return make_plan(study, 1, facts, hosts, WORKLOADS)


def assumed(study: Study, arm: str, cpus: int) -> ArmFacts:
    wanted = study.arms[arm]
    stated = installed().platforms[wanted.platform].stated(wanted.options)
    emulated = stated.emulated or study.host.kind == "lab"
    release = study.release_of(arm)
    boot = f"{stated.host_boot}@{release}" if release else stated.host_boot
    hypervisor = stated.host_boot == KVM_BOOT or stated.host_boot.startswith("xen")
    return ArmFacts(
        usable=not hypervisor or study.host.kind == "lab",
        max_vcpus=cpus,
        pinning=True,
        knobs=stated.capabilities.knobs,
        emulated=emulated,
        boot_s=stated.emulated_boot_s if study.host.kind == "lab" else stated.boot_s,
        slowdown=EMULATED_SLOWDOWN if emulated else 1.0,
        boot=boot if study.host.kind == "lab" else "",
    )
