"""The page about your own VM leads to a first report: rights, a whole study, commands."""

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

PAGE = (Path(__file__).parents[1] / "docs" / "how-to" / "owning.md").read_text(encoding="utf-8")
SECTIONS = {
    "libvirt": "Guests of Tare's own on a libvirt host",
    "qemu": "QEMU and KVM of your own",
    "xen": "A plain Xen of your own",
    "proxmox": "A Proxmox VE of your own",
    "xenserver": "A XenServer or XCP-ng of your own",
    "ovirt": "An oVirt or RHV of your own",
    "hyperv": "A Hyper-V of your own",
    "vsphere": "Guests of Tare's own on ESXi or vCenter",
    "incus": "An Incus or LXD of your own",
}
FENCED = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
RIGHTS = re.compile(r"\brights?\b|\baccount\b|\broot\b|\brole\b", re.IGNORECASE)
CPUS = 4


def section(platform: str) -> str:
    title = SECTIONS[platform]
    (found,) = re.findall(
        rf"^## {re.escape(title)}\n(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL
    )
    return str(found)


def study_of(platform: str) -> Study:
    shown = FENCED.findall(section(platform))
    (text,) = (text for kind, text in shown if kind == "yaml" and "study: " in text)
    return parse_study(text.encode(), "owning.md", build_catalog(), hosts=KnownHosts(Path("h")))


def planned(study: Study) -> Plan:
    """Plan it for a host of four CPUs that lacks nothing."""
    facts = {arm: replace(assumed(study, arm, CPUS), usable=True) for arm in study.arms}
    hosts = {"": HostFacts(HostCpus(tuple(range(CPUS))), 0.0)}
    return make_plan(study, 1, facts, hosts, WORKLOADS)


@pytest.mark.parametrize("platform", SECTIONS)
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


@pytest.mark.parametrize("platform", SECTIONS)
def test_a_hypervisors_section_has_the_rights_and_the_two_commands(platform: str) -> None:
    text, name = section(platform), study_of(platform).study
    before, found, after = text.partition(f"```yaml\nstudy: {name}\n")
    assert found and RIGHTS.search(before), "the rights come before the study"
    commands = [text for kind, text in FENCED.findall(found + after) if kind == "sh"]
    words = [line.split("#")[0].split() for command in commands for line in command.splitlines()]
    assert ["tare", "plan", f"{name}.yaml", "--probe"] in words
    assert ["tare", "run", f"{name}.yaml"] in words
