"""A host for planning, from remembered and assumed facts, without contacting it."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from tare.platforms.contract import Verdict
from tare.platforms.linux.thread_cpus import lacking_cpus
from tare.registry import installed
from tare.run.hosts.booted import AS_IT_IS, booted_here, mark_of, marks
from tare.run.hosts.lab import (
    LAB_BOOT_S,
    lab_boot,
    lab_cpus,
    lab_crowding,
    lab_name,
    lab_platforms,
)
from tare.run.preflight.remembered_checks import RememberedHost, question, recall

if TYPE_CHECKING:
    from tare.platforms.contract import Platform
    from tare.run.hosts.contract import PlannedHost
    from tare.study.model.releases import Release
    from tare.study.model.study import Study
    from tare.study.planning.host_cpus import HostCpus
    from tare.study.reading.hosting import HostSpec, LabSpec

BootOf = Callable[["Platform[Any]", Any, "Release | None"], str]
NOW_S = 60.0
"""A check within this many seconds counts as current."""


@dataclass(frozen=True)
class AssumedHost:
    """A host that is not contacted; see :class:`tare.run.hosts.contract.PlannedHost`.

    Args:
        known: The results of earlier checks.
        assumed: The assumptions on the host itself, as a sentence; empty: none.
    """

    name: str
    platforms: Mapping[str, Platform[Any]]
    cpus: HostCpus
    boots: BootOf
    here: bool = True
    emulated: bool = False
    boot_s: float = 0.0
    hypervisor: str = ""
    crowding: str = ""
    known: RememberedHost | None = None
    assumed: str = ""

    def boot_of(self, platform: Platform[Any], options: Any, release: Release | None = None) -> str:
        """Return how the host has to be booted for a platform's machines."""
        return self.boots(platform, options, release)


def assumed_host(
    spec: HostSpec, lab: LabSpec, platforms: Mapping[str, Platform[Any]], here: HostCpus
) -> AssumedHost:
    """Return a host with the facts that are known without contacting it.

    Args:
        spec: The host.
        lab: The lab's properties, if the host is the lab.
        platforms: All platforms by name.
        here: The CPUs of this computer.
    """
    if spec.kind == "lab":
        name = lab_name(lab)
        return AssumedHost(
            name,
            lab_platforms(platforms, lab),
            lab_cpus(lab),
            lab_boot,
            emulated=True,
            boot_s=LAB_BOOT_S,
            crowding=lab_crowding(lab, here),
            known=recall(name),
        )
    if spec.kind == "local":
        hypervisor = booted_here(installed().hypervisors)
        known = recall(spec.kind)
        return AssumedHost(
            spec.kind, platforms, here, lambda *_: AS_IT_IS, hypervisor=hypervisor, known=known
        )
    return _remote(spec, platforms, here)


def _remote(spec: HostSpec, platforms: Mapping[str, Platform[Any]], here: HostCpus) -> AssumedHost:
    # Imported here, because a plan for this computer does not need it.
    from tare.run.hosts.ssh import REBOOT_S, remote_boot, ssh_options

    name = ssh_options(spec).name
    known = recall(name)
    hypervisor = known.hypervisor if known else ""
    return AssumedHost(
        name,
        platforms,
        known.cpus if known else here,
        lambda platform, options, _: remote_boot(platform, options, spec.boot),
        here=False,
        boot_s=REBOOT_S if spec.boot else 0.0,
        hypervisor=hypervisor,
        known=known,
        assumed=""
        if known
        else f"{name} was never checked: it is assumed to have the {len(here.online)} CPUs of this "
        "computer, and no hypervisor below its kernel",
    )


@dataclass(frozen=True)
class ExpectedVerdict:
    """The verdict on one arm that a plan uses.

    Args:
        verdict: The verdict.
        source: Its source, as a phrase.
    """

    verdict: Verdict
    source: str


def expected_verdict(host: AssumedHost, study: Study, arm: str, network: bool) -> ExpectedVerdict:
    """Return the last verdict on an arm or, without one, the best that its platform offers.

    CPUs that its options name are checked against the known CPUs of its host.

    Args:
        host: The arm's host.
        study: The study.
        arm: The name of the arm.
        network: Whether the study needs a network.
    """
    best = best_case(host, study, arm)
    # Under a hypervisor, or without a check, the real CPUs may differ from the known ones.
    if not (host.assumed or host.hypervisor) and (
        lacks := lacking_cpus(study.arms[arm].options.host_cpus, host.cpus.online)
    ):
        unusable = replace(best, usable=False, reason=lacks[0], hint=lacks[1])
        return ExpectedVerdict(unusable, "known without a check")
    found = host.known and host.known.arms.get(question(host, study, arm, network))
    if found:
        return ExpectedVerdict(found.verdict, f"as checked {time_text(found.at)}")
    return ExpectedVerdict(best, "assumed to work, was never checked")


def best_case(host: PlannedHost, study: Study, arm: str) -> Verdict:
    """Return the verdict on an arm if its host lacks nothing, as its platform states."""
    spec = study.arms[arm]
    platform = host.platforms[spec.platform]
    stated = platform.stated(spec.options)
    able = stated.capabilities
    capabilities = replace(
        able,
        max_vcpus=able.max_vcpus or len(host.cpus.machines),
        network=stated.network.rooted | stated.network.unprivileged,
    )
    boot = host.boot_of(platform, spec.options, study.release_of(arm))
    return Verdict(
        usable=True,
        reason="assumed",
        hint="",
        emulated=stated.emulated or host.emulated,
        versions={},
        capabilities=capabilities,
        mark=marks(
            mark_of(platform, spec.options, boot, host.hypervisor, host.platforms.values()),
            host.crowding,
        ),
    )


def time_text(at: float) -> str:
    """Return a time for readers: ``now``, or the day and the minute."""
    if abs(time.time() - at) < NOW_S:
        return "now"
    return time.strftime("on %Y-%m-%d at %H:%M", time.localtime(at))
