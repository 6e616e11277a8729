"""Studies of two arms that are up at once, and their plans."""

from __future__ import annotations

from study.study_catalog import ABLE, CATALOG, KINDS
from tare.study.model.study import Study
from tare.study.planning.host_cpus import HostCpus
from tare.study.planning.plan import ArmFacts, HostFacts, Plan, make_plan
from tare.study.reading.load import parse_study

TWO = HostCpus(online=(0, 1))


def two_arms(way: str) -> str:
    """Return a study of two arms, with the key of `blocks` that has both up at once."""
    return f"""\
study: two
baseline: bare
blocks: {{least: 8, most: 8, {way}: true}}
arms:
  bare: {{platform: bare}}
  kvm: {{platform: qemu, accelerator: kvm}}
scenarios:
  pinned: {{subject: {{cpus: pinned}}}}
workloads:
  tick: {{samples: [10, 20, 30], repeats: 2}}
"""


def study_of(text: str) -> Study:
    return parse_study(text.encode(), "s.yaml", CATALOG)


def plan_of(study: Study, cpus: HostCpus = TWO, seed: int = 1, **facts: ArmFacts) -> Plan:
    """Return the plan on a host with these CPUs; arms can do all except what ``facts`` says."""
    every = {arm: facts.get(arm, ABLE) for arm in study.arms}
    return make_plan(study, seed, every, {"": HostFacts(cpus)}, KINDS)
