"""Ask every arm's platform what it can do here, and plan accordingly."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from tare.errors import InputError, TareError
from tare.events import ImageReady, PlatformChecked
from tare.images.cache import key_of
from tare.platforms.base import (
    Capabilities,
    Context,
    Prepared,
    Shape,
    ToolboxFiles,
    Verdict,
)
from tare.platforms.network import chosen_way, offered_network, with_network
from tare.run.bench import Bench
from tare.run.toolbox import lacking_memory, load_needs, study_needs, study_toolbox
from tare.study.plan import ArmFacts, Plan, make_plan
from tare.workloads.needs import needs_of

if TYPE_CHECKING:
    from tare.run.state import RunState
    from tare.study.model import Study
    from tare.workloads.base import Workload


BOOT_ESTIMATE_S = {"bare": 0.1, "oci": 0.4, "qemu": 2.5, "xen": 5.0}
EMULATED_BOOT_S = {"bare": 3.0, "qemu": 10.0, "xen": 12.0}
"""Seconds to start and stop a machine on a small computer; only for the plan's estimate."""
SLOWEST_BOOT_S = 30.0
EMULATED_SLOWDOWN = 2.0
"""How many times longer cells of ordinary length take in an emulated machine; for the estimate."""
PATIENCE_S = 1.5


def arm_shape(study: Study, arm: str) -> Shape:
    """Return the size of the arm's machines: its own, or the study's."""
    shape = study.shape_of(arm)
    return Shape(vcpus=shape.vcpus, memory=shape.memory, disk=shape.disk)


def arm_context(context: Context, study: Study, arm: str) -> Context:
    """Return the context with the kernel that the arm, or else the study, names."""
    return dataclasses.replace(context, kernel=study.kernel_of(arm))


def boot_of(bench: Bench, study: Study, arm: str) -> str:
    """Return how the host has to be booted for an arm."""
    wanted = study.arms[arm]
    return bench.station.boot_of(bench.platforms[wanted.platform], wanted.options)


async def check_arms(bench: Bench, study: Study) -> dict[str, Verdict]:
    """Ask every arm's platform whether it is usable, on the host as it is booted for that arm.

    An arm for which the host cannot be booted is not usable; the reason says why.
    """
    boots: dict[str, list[str]] = {}
    for name in study.arms:
        boots.setdefault(boot_of(bench, study, name), []).append(name)
    found: dict[str, Verdict] = {}
    for boot, names in boots.items():
        try:
            context = await bench.station.under(boot, 0)
        except TareError as error:
            nothing = Capabilities(pinning=False, max_vcpus=0, min_memory=0, neighbours=False)
            refused = Verdict(False, error.message, error.hint, False, {}, nothing)
            found |= dict.fromkeys(names, refused)
            continue
        found |= await _check_together(bench, study, names, context)
    emulated = bench.station.emulated
    return {
        name: dataclasses.replace(found[name], emulated=found[name].emulated or emulated)
        for name in study.arms
    }


async def _check_together(
    bench: Bench, study: Study, names: Sequence[str], where: Context
) -> dict[str, Verdict]:
    """Ask for some arms at once, twins and equals once."""
    asked: dict[tuple[str, str, str | None], asyncio.Task[Verdict]] = {}
    tasks: dict[str, asyncio.Task[Verdict]] = {}
    for name in names:
        arm = study.arms[name]
        context = arm_context(where, study, name)
        key = (arm.platform, arm.options.model_dump_json(), context.kernel)
        if key not in asked:
            check = bench.platforms[arm.platform].check(context, arm.options)
            asked[key] = asyncio.ensure_future(check)
        tasks[name] = asked[key]
    verdicts = {name: await task for name, task in tasks.items()}
    if "network" in study_needs(bench, study):
        for name in names:
            offered, reason = await offered_network(where, study.arms[name].platform)
            able = with_network(verdicts[name].capabilities, offered, reason)
            verdicts[name] = dataclasses.replace(verdicts[name], capabilities=able)
    return verdicts


def facts_of(bench: Bench, study: Study, verdicts: Mapping[str, Verdict]) -> dict[str, ArmFacts]:
    """Reduce verdicts to what planning needs."""
    estimates = EMULATED_BOOT_S if bench.station.emulated else BOOT_ESTIMATE_S
    return {
        name: ArmFacts(
            usable=verdict.usable,
            reason=verdict.reason,
            max_vcpus=verdict.capabilities.max_vcpus,
            min_memory=verdict.capabilities.min_memory,
            pinning=verdict.capabilities.pinning,
            devices=verdict.capabilities.devices,
            neighbours=verdict.capabilities.neighbours,
            emulated=verdict.emulated,
            knobs=verdict.capabilities.knobs,
            missing_knobs=verdict.capabilities.missing_knobs,
            lacks={
                **lacking_memory(bench, study, name),
                **lacking_disk(bench, study, name),
                **lacking_network(bench, study, name, verdict.capabilities.network),
            },
            loads_lack=lacking_loads(bench, study, name, verdict.capabilities.network),
            boot_s=estimates.get(study.arms[name].platform, SLOWEST_BOOT_S),
            slowdown=EMULATED_SLOWDOWN if verdict.emulated else 1.0,
            boot=boot_of(bench, study, name),
        )
        for name, verdict in verdicts.items()
    }


def plan_study(bench: Bench, study: Study, seed: int, facts: Mapping[str, ArmFacts]) -> Plan:
    """Plan ``study`` for this host."""
    station = bench.station
    return make_plan(study, seed, facts, station.cpus, bench.workloads, station.boot_s)


def is_realtime(bench: Bench, study: Study) -> bool:
    """Return whether any workload of the study wants a real-time kernel."""
    return any(bench.workloads[spec.workload].realtime for spec in study.workloads.values())


def lacking_disk(bench: Bench, study: Study, arm: str) -> dict[str, str]:
    """Return the workloads that need a disk, with the reason, where an arm's machines have none."""
    if study.shape_of(arm).disk:
        return {}
    names = {spec.workload for spec in study.workloads.values()}
    return {
        name: f"{name} needs a disk of the machine's own: write `shape: {{disk: 1GiB}}`"
        for name in names
        if "disk" in needs_of(bench.workloads[name])
    }


def lacking_network(
    bench: Bench, study: Study, arm: str, offered: frozenset[str]
) -> dict[str, str]:
    """Return the workloads that need a network, with the reason, where an arm has none."""
    needing = [kind.name for kind in _kinds(bench, study) if "network" in needs_of(kind)]
    if not needing:
        return {}
    try:
        chosen_way(study.arms[arm].options, offered)
    except InputError as error:
        return dict.fromkeys(needing, f"needs a network: {error.message}")
    return {}


def lacking_loads(bench: Bench, study: Study, arm: str, offered: frozenset[str]) -> dict[str, str]:
    """Return the scenarios whose neighbours' loads cannot run on an arm, with the reason."""
    lacking: dict[str, str] = {}
    for name in study.scenarios:
        needs = load_needs(bench, study, name)
        if "disk" in needs and not study.shape_of(arm).disk:
            lacking[name] = "its neighbours load their disks: write `shape: {disk: 1GiB}`"
        if "network" in needs:
            try:
                chosen_way(study.arms[arm].options, offered)
            except InputError as error:
                lacking[name] = f"its neighbours load a network: {error.message}"
    return lacking


def _kinds(bench: Bench, study: Study) -> list[Workload]:
    names = dict.fromkeys(spec.workload for spec in study.workloads.values())
    return [bench.workloads[name] for name in names]


async def prepare_arms(bench: Bench, study: Study, plan: Plan) -> dict[str, Prepared]:
    """Build or find what every arm of ``plan`` boots; say so when it takes a while.

    Raises:
        InputError: An arm asks for what cannot be built, such as a device without a driver.
    """
    patience = asyncio.get_running_loop().call_later(
        PATIENCE_S, bench.say, "building what the guests boot, which is kept for the next run"
    )
    try:
        toolbox = await study_toolbox(bench, study) if plan.arms else None
        return {name: await _prepare(bench, study, name, toolbox) for name in plan.arms}
    finally:
        patience.cancel()


async def _prepare(bench: Bench, study: Study, arm: str, toolbox: ToolboxFiles | None) -> Prepared:
    platform = bench.platforms[study.arms[arm].platform]
    context = dataclasses.replace(bench.context, needs=study_needs(bench, study))
    try:
        prepared = await platform.prepare(
            arm_context(context, study, arm),
            study.arms[arm].options,
            arm_shape(study, arm),
            is_realtime(bench, study),
        )
    except InputError as error:
        raise InputError(f"arm {arm}: {error.message}", error.hint) from error
    if toolbox is None:
        return prepared
    both = key_of({"boots": prepared.digest, "toolbox": toolbox.digest})
    return dataclasses.replace(prepared, toolbox=toolbox, digest=both)


def image_events(prepared: Mapping[str, Prepared]) -> list[ImageReady]:
    """Return one event for what each arm boots."""
    return [
        ImageReady(
            arm=name,
            kernel=image.kernel,
            digest=image.digest,
            cached=image.cached,
            took_s=image.took_s,
        )
        for name, image in prepared.items()
    ]


def checked_events(
    bench: Bench, study: Study, verdicts: Mapping[str, Verdict]
) -> list[PlatformChecked]:
    """Return one event for each arm's verdict."""
    return [
        PlatformChecked(
            arm=name,
            platform=arm.platform,
            options=arm.options.model_dump(mode="json"),
            usable=verdicts[name].usable,
            reason=verdicts[name].reason,
            hint=verdicts[name].hint,
            emulated=verdicts[name].emulated,
            versions=dict(verdicts[name].versions),
            capabilities={
                key: sorted(value) if isinstance(value, frozenset) else value
                for key, value in dataclasses.asdict(verdicts[name].capabilities).items()
            },
            description=bench.platforms[arm.platform].describe(arm.options),
        )
        for name, arm in study.arms.items()
    ]


def recorded_facts(
    bench: Bench, study: Study, state: RunState, now: Mapping[str, Verdict]
) -> dict[str, ArmFacts]:
    """Return the facts the run began with: the plan must not change under a resumed run."""
    facts = facts_of(bench, study, now)
    for name, event in state.platforms.items():
        if event.usable and not facts[name].usable:
            raise InputError(
                f"arm {name} was usable when the run began and is not now: {facts[name].reason}",
                now[name].hint or "make it usable again, or start a new run",
            )
        facts[name] = dataclasses.replace(
            facts[name],
            usable=event.usable,
            reason=event.reason,
            emulated=event.emulated,
            max_vcpus=event.capabilities["max_vcpus"],
            min_memory=event.capabilities["min_memory"],
            pinning=event.capabilities["pinning"],
            knobs=frozenset(event.capabilities.get("knobs", ())),
            missing_knobs=event.capabilities.get("missing_knobs", {}),
        )
    return facts
