"""Each hypervisor's guide leads to a first report: rights, a whole study, commands."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from study.shipped_studies import assumed
from tare.run.catalog import build_catalog
from tare.study.model.study import Study
from tare.study.planning.host_cpus import HostCpus
from tare.study.planning.plan import HostFacts, Plan, make_plan
from tare.study.reading.hosts_file import KnownHosts
from tare.study.reading.load import parse_study
from tare.workloads import WORKLOADS

GUIDES = Path(__file__).parents[1] / "docs" / "how-to"
GUIDE_OF = {
    "libvirt": "libvirt",
    "qemu": "qemu-kvm",
    "xen": "xen-host",
    "proxmox": "proxmox",
    "xenserver": "xcp-ng",
    "ovirt": "ovirt",
    "hyperv": "hyper-v",
    "vsphere": "vsphere",
    "incus": "incus",
}
"""Each platform's guide."""
FENCED = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
RIGHTS = re.compile(r"\brights?\b|\baccount\b|\broot\b|\brole\b", re.IGNORECASE)
CPUS = 4


def guide(platform: str) -> str:
    return (GUIDES / f"{GUIDE_OF[platform]}.md").read_text(encoding="utf-8")


def study_of(platform: str) -> Study:
    shown = FENCED.findall(guide(platform))
    (text,) = (text for kind, text in shown if kind == "yaml" and "study: " in text)
    return parse_study(text.encode(), "guide", build_catalog(), hosts=KnownHosts(Path("h")))


def planned(study: Study) -> Plan:
    """Plan it for a host of four CPUs that lacks nothing."""
    facts = {arm: replace(assumed(study, arm, CPUS), usable=True) for arm in study.arms}
    hosts = {"": HostFacts(HostCpus(tuple(range(CPUS))), 0.0)}
    return make_plan(study, 1, facts, hosts, WORKLOADS)


@pytest.mark.parametrize("platform", GUIDE_OF)
def test_a_hypervisors_study_is_whole_and_can_be_planned(platform: str) -> None:
    study = study_of(platform)
    arms = [name for name, arm in study.arms.items() if arm.platform == platform]
    # Its own baseline, or the bare machine below it.
    assert len(arms) >= 2 and study.baseline in {*arms, "bare"}
    assert study.blocks.least >= 6 and study.shape.memory
    plan = planned(study)
    assert plan.skipped == ()
    assert {batch.arm for batch in plan.batches} == set(study.arms)
    assert all(len(batch.cells) >= 3 for batch in plan.batches)


@pytest.mark.parametrize("platform", GUIDE_OF)
def test_a_hypervisors_guide_has_the_rights_and_the_two_commands(platform: str) -> None:
    text, name = guide(platform), study_of(platform).study
    before, found, after = text.partition(f"```yaml\nstudy: {name}\n")
    assert found and RIGHTS.search(before), "the rights come before the study"
    commands = [text for kind, text in FENCED.findall(found + after) if kind == "sh"]
    words = [line.split("#")[0].split() for command in commands for line in command.splitlines()]
    assert ["tare", "plan", f"{name}.yaml", "--probe"] in words
    assert ["tare", "run", f"{name}.yaml"] in words
