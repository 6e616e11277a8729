"""A machine that is compared with itself is recognized; clones, containers and twins are not it."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import pytest

from analysis.analysis_runs import run
from study.study_catalog import CATALOG
from tare.analysis import compare_runs
from tare.hosts.contract import Completed, Host
from tare.hosts.same_machine import running_machine
from tare.platforms.contract import Capabilities, Verdict
from tare.run.preflight.checking import with_same_machines
from tare.study.model.notes import ITSELF
from tare.study.reading.load import parse_study

BOOT, OTHER_BOOT = "6f9c3c4e-1", "0b1d2a3f-2"


@dataclass(frozen=True)
class Fake:
    """The signs that identify a host."""

    boot: str = BOOT
    machine_id: str | None = "a" * 32
    namespace: str = "pid:[4026531836]"

    def boot_id(self) -> str:
        return self.boot

    async def read(self, path: str | Path) -> bytes:
        if self.machine_id is None:
            raise FileNotFoundError(path)
        return f"{self.machine_id}\n".encode()

    async def run(self, argv: list[str], **_: Any) -> Completed:
        return Completed(0, f"{self.namespace}\n".encode(), b"")


def of(fake: Fake) -> str:
    return asyncio.run(running_machine(cast("Host", fake)))


@pytest.mark.parametrize(
    ("other", "same"),
    [
        (Fake(), True),
        (Fake(boot=OTHER_BOOT), False),  # a clone, which has the machine id of its template
        (Fake(machine_id="b" * 32), False),  # a container on the host
        (Fake(machine_id=None), False),
    ],
)
def test_the_machine_is_known_by_boot_and_machine_id(other: Fake, same: bool) -> None:
    assert (of(Fake()) == of(other)) is same


def test_process_namespace_distinguishes_containers_without_machine_id() -> None:
    here = Fake(machine_id=None)
    assert of(here) == of(Fake(machine_id=""))
    assert of(here) != of(replace(here, namespace="pid:[4026532999]"))


def test_unknown_identities_are_not_the_same_machine() -> None:
    assert of(Fake(boot="")) == of(Fake(machine_id="", namespace="")) == ""


NOTHING = Capabilities(pinning=False, max_vcpus=1, min_memory=0, neighbours=False)


def verdict(machine: str = "", mark: str = "") -> Verdict:
    return Verdict(True, "", "", False, {}, NOTHING, machine=machine, mark=mark)


def test_two_arms_that_are_one_machine_are_marked_and_twins_are_not() -> None:
    study = parse_study(
        b"""
study: x
baseline: one
arms:
  one: {platform: bare}
  one-again: {twin-of: one}
  other: {platform: qemu}
  third: {platform: qemu, devices: emulated}
workloads: {tick: }
""",
        "s.yaml",
        CATALOG,
    )
    given = {arm: verdict("m1") for arm in study.arms} | {"third": verdict("m2")}
    found = with_same_machines(study, given)
    marked = {arm for arm, each in found.items() if each.mark}
    assert marked == {"other"}
    assert found["other"].mark.startswith(f"{ITSELF}: it is the machine of one")
    unknown = dict.fromkeys(study.arms, verdict())
    assert with_same_machines(study, unknown) == unknown


def test_the_report_says_first_that_a_machine_was_compared_with_itself() -> None:
    (one,) = run(1).runs
    mark = f"{ITSELF}: vm.example is the host itself (same boot id, same machine id)"
    platforms = tuple(replace(p, mark=mark) if p.arm == "vm" else p for p in one.platforms)
    found = compare_runs(replace(one, platforms=platforms))
    assert found.notes[0] == (
        f"vm ran {mark}: it was compared with itself, so its results show nothing about "
        "virtualization."
    )
    assert sum(mark in note for note in found.notes) == 1
