"""Notes of a plan on machines whose page cache can be larger than a guest's."""

from __future__ import annotations

from dataclasses import replace

import pytest

from study.study_catalog import ABLE, KINDS, FixedKind, Tick
from study.test_study_plan import small
from tare.study.model.notes import BEYOND_MEMORY
from tare.study.planning.host_cpus import HostCpus
from tare.study.planning.plan import HostFacts, make_plan

WHY = "the memory controller is away"
STUDY = """
study: x
baseline: b
shape: {memory: 64MiB, disk: 64MiB}
arms:
  b: {platform: bare}
  again: {twin-of: b}
  q: {platform: qemu}
workloads: {tick: {}}
"""


@pytest.mark.parametrize("disk", [True, False])
def test_arms_without_memory_limit_are_noted_if_a_disk_is_used(disk: bool) -> None:
    study, kind = small(STUDY), FixedKind(Tick)
    kind.needs = frozenset({"disk"} if disk else ())
    unkept = replace(ABLE, no_own_cache=WHY)
    facts = {"b": unkept, "again": unkept, "q": ABLE}
    hosts = {"": HostFacts(HostCpus((0, 1)))}
    plan = make_plan(study, 1, facts, hosts, {**KINDS, "tick": kind})
    notes = [note for note in plan.notes if note.startswith(BEYOND_MEMORY)]
    assert len(notes) == disk
    assert all(f"to 64 MiB on b, again ({WHY})" in note for note in notes)
