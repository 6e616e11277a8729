"""The table of shipped studies on each platform, planned where the platform lacks nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tare.platforms.contract import ANY_BOOT
from tare.registry import installed
from tare.run.catalog import build_catalog
from tare.run.hosts.assumed import AssumedHost, best_case
from tare.run.lifecycle.setup import AssumedGrounds
from tare.run.preflight.checking import facts_of, plan_study
from tare.study.model.study import Study
from tare.study.planning.host_cpus import HostCpus
from tare.study.planning.plan import Plan
from tare.study.reading.hosts_file import KnownHosts
from tare.study.reading.load import load_study
from tare.study.reading.shipped import shipped_studies

SHOWN = ("realtime", "components", "interference", "load-balancer", "mapreduce")
"""The studies of the papers, which the table shows."""
TWO_SOCKETS = HostCpus(
    tuple(range(16)),
    siblings={cpu: (cpu % 8, cpu % 8 + 8) for cpu in range(16)},
    nodes={cpu: cpu % 8 // 4 for cpu in range(16)},
)
"""Two sockets of four cores with two threads each."""
RUNS, PARTLY, NO_ARM = "runs", "partly", "–"


def named_hypervisors(path: Path) -> KnownHosts:
    """Return a hosts file that names every vendor's hypervisor.

    Args:
        path: The file's name, for messages.
    """
    images = {"hyperv": r"D:\tare\live.iso", "proxmox": "local:iso/live.iso"}
    way: dict[str, dict[str, Any]] = {
        vendor: {
            "address": "server.example",
            "callback": "192.0.2.9:7710",
            "image": images.get(vendor, "live.iso"),
        }
        for vendor in ("hyperv", "xenserver", "ovirt", "proxmox")
    }
    way["proxmox"]["disks"] = "local-lvm"
    # Its socket is on the host itself.
    way["incus"] = {"callback": "192.0.2.9:7710", "image": "tare-live"}
    way["vsphere"] = {
        "address": "server.example",
        "callback": "192.0.2.9:7710",
        "datastore": "tare",
        "boot": "[tare] live.iso",
    }
    return KnownHosts(path, {}, way)


def best_plan(study: Study, cpus: HostCpus = TWO_SOCKETS) -> Plan:
    """Plan a study on hosts that lack nothing that its platforms state.

    Args:
        study: The study.
        cpus: The CPUs of each of its hosts.
    """
    parts = installed()
    hosts = {
        name: AssumedHost(name, parts.platforms, cpus, lambda *_: ANY_BOOT)
        for name in study.computers
    }
    grounds = AssumedGrounds(hosts, parts.workloads)
    # With KVM, although this computer may lack it.
    verdicts = {
        arm: replace(best_case(hosts[study.host_of(arm)], study, arm), emulated=False)
        for arm in study.arms
    }
    return plan_study(grounds, study, 1, facts_of(grounds, study, verdicts))


@dataclass
class PlatformCells:
    """One platform's arms in one study, and the parts of the study that they skip.

    Args:
        arms: Its arms.
        skipped: The skipped parts by reason, each as an arm and a scenario or workload.
    """

    arms: list[str] = field(default_factory=list)
    skipped: dict[str, list[tuple[str, str]]] = field(default_factory=dict)

    @property
    def word(self) -> str:
        """The word for these cells in the table."""
        return PARTLY if self.skipped else RUNS


def cells_by_platform(study: Study) -> dict[str, PlatformCells]:
    """Return the arms of each platform in a study, and what they skip, by platform name."""
    plan = best_plan(study)
    found: dict[str, PlatformCells] = {}
    for arm, spec in study.arms.items():
        cells = found.setdefault(spec.platform, PlatformCells())
        cells.arms.append(arm)
        for skip in plan.skipped:
            if skip.arm == arm:
                what = skip.scenario or skip.workload or "all"
                reason = skip.reason.removeprefix(f"{skip.workload} ")
                cells.skipped.setdefault(reason, []).append((arm, what))
    return found


def study_table() -> str:
    """Return the section on studies of the page of platforms, as Markdown."""
    catalog, hosts = build_catalog(), named_hypervisors(Path("hosts.yaml"))
    shipped = shipped_studies()
    columns = {
        name: cells_by_platform(load_study(shipped[name], catalog, hosts=hosts)) for name in SHOWN
    }
    lines = [
        _row(("platform", *(f"`{name}`" for name in SHOWN))),
        _row(["---"] * (len(SHOWN) + 1)),
    ]
    notes: list[str] = []
    for platform in installed().platforms:
        cells = [columns[name].get(platform) for name in SHOWN]
        if any(cells):
            words = (NO_ARM if each is None else each.word for each in cells)
            lines.append(_row((f"`{platform}`", *words)))
        for name, each in zip(SHOWN, cells, strict=True):
            if each is not None:
                notes += _notes(platform, name, each)
    return "".join([_INTRODUCTION, *lines, "\n" if notes else "", *notes])


def _notes(platform: str, study: str, cells: PlatformCells) -> list[str]:
    """Return one line for each reason for which something is skipped."""
    notes = []
    for reason, skipped in cells.skipped.items():
        arms = list(dict.fromkeys(arm for arm, _ in skipped))
        parts = ", ".join(dict.fromkeys(f"`{what}`" for _, what in skipped))
        of_arms = "" if arms == cells.arms else f" ({', '.join(f'`{arm}`' for arm in arms)})"
        notes.append(f"- `{platform}`{of_arms} skips in `{study}` {parts}: {reason}.\n")
    return notes


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |\n"


_INTRODUCTION = """\
## What each study runs on each platform

The studies of the papers, planned for a host that lacks nothing: two sockets with 16 CPUs, KVM
or the hypervisor itself. *Runs*: all arms of the platform have all cells. *Partly*: the list below
the table names what is skipped, and why. `–`: the study has no arm of the platform.

"""
