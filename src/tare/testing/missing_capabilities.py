"""Plan a study that uses all capabilities that a platform may lack."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tare.platforms.contract import Capabilities, Context, Platform, PlatformOptions, Shape, Verdict
from tare.registry import installed
from tare.run.hosts.contract import LocalRunHost
from tare.run.lifecycle.setup import Decision, RunSetup
from tare.run.preflight.checking import facts_of, plan_study
from tare.study.model.study import Catalog
from tare.study.reading.load import restore_study

if TYPE_CHECKING:
    from tare.study.planning.plan import Plan

FITS, CROWDED = "fits", "crowded"
"""The arms: one that the platform supports, and one with more vCPUs than it supports."""
ALONE, PINNED, CROWD = "alone", "pinned", "beside"
"""The scenarios: without requirements, pinned to CPUs, and with a neighbour."""
WORK = {"disk": "filebench", "network": "request-response", "toolbox": "program"}
"""A workload that needs each capability that a platform may lack."""


def demanding_plan(
    platform: Platform[Any],
    options: PlatformOptions,
    context: Context,
    shape: Shape,
    verdict: Verdict,
) -> Plan:
    """Plan a study that uses every capability, as ``tare plan`` would.

    Args:
        platform: The platform under test.
        options: The platform's options.
        context: The context in which the platform was checked.
        shape: A size that the platform supports.
        verdict: The result of the platform's check, networks included.
    """
    workloads = installed().workloads
    catalog = Catalog(
        platforms={platform.name: platform.options},
        workloads={name: kind.parameters for name, kind in workloads.items()},
    )
    arm = {"platform": platform.name, "options": options.model_dump(mode="json")}
    size = {"vcpus": shape.vcpus, "memory": shape.memory, "disk": 64 << 20}
    more = {**size, "vcpus": verdict.capabilities.max_vcpus + 1}
    study = restore_study(
        {
            "study": "demanding",
            "baseline": FITS,
            "shape": size,
            "arms": {FITS: arm, CROWDED: {**arm, "shape": more}},
            "scenarios": {
                ALONE: {},
                PINNED: {"subject": {"cpus": "pinned"}},
                CROWD: {"neighbours": [{"load": "cpu-load"}]},
            },
            "workloads": {
                "numeric-sort": {"workload": "numeric-sort"},
                **{name: {"workload": name} for name in WORK.values() if name != "program"},
                "program": {"workload": "program", "argv": ["true"]},
            },
        },
        catalog,
    )
    setup = RunSetup(
        {"": LocalRunHost(context, {platform.name: platform}, {})},
        workloads,
        decide=lambda *_: Decision(False, "nothing is measured"),
        preflight=_nothing,
    )
    return plan_study(
        setup, study, 1, facts_of(setup, study, dict.fromkeys((FITS, CROWDED), verdict))
    )


async def _nothing() -> tuple[()]:
    return ()


def lacking(capabilities: Capabilities) -> set[tuple[str | None, str | None]]:
    """Return the scenarios and workloads of the demanding study that the plan must refuse."""
    refused: set[tuple[str | None, str | None]] = set()
    if not capabilities.pinning:
        refused.add((PINNED, None))
    if not capabilities.neighbours:
        refused.add((CROWD, None))
    offers = {
        "disk": capabilities.disk,
        "network": capabilities.network,
        "toolbox": capabilities.toolbox,
    }
    return refused | {(None, WORK[need]) for need, ways in offers.items() if not ways}
