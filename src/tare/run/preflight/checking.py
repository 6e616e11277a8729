"""Checks of every arm's platform on its host, and the plan and the images that follow."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from tare.errors import HostFroze, InputError, MachineFault, NotAvailable, TareError
from tare.events import ImageReady, PlatformChecked
from tare.hosts.same_machine import SAME
from tare.images.bundle.installed import import_installed
from tare.images.cache import key_of, while_waiting
from tare.images.kernels import missing_kernels
from tare.platforms.contract import (
    NOTHING_AT_ALL,
    Carrier,
    Context,
    Prepared,
    Shape,
    Statement,
    ToolboxFiles,
    Verdict,
)
from tare.platforms.linux.network import lacking_switch, offered_network, with_network
from tare.platforms.vendors.offer import LIVE, keeps_general
from tare.run.hosts.booted import mark_of, marks
from tare.run.lifecycle.setup import Grounds, RunSetup, platform_of
from tare.run.preflight.arm_facts import recorded
from tare.run.preflight.remembered_checks import keep, question
from tare.run.preflight.toolbox import study_additions, study_needs, study_toolbox
from tare.run.preflight.unmet_needs import lacking, lacking_loads, own_ends
from tare.study.model.notes import ITSELF
from tare.study.model.platform_options import GIVEN, Switching
from tare.study.model.releases import release_words
from tare.study.planning.baselines import give_own_shape
from tare.study.planning.cpu_choice import arranged
from tare.study.planning.guest_kernels import HOST, REALTIME, GuestKernels
from tare.study.planning.memory_held import held_at_once
from tare.study.planning.plan import ArmFacts, HostFacts, Plan, make_plan, shape_lacks
from tare.workloads.additions import live_toolbox, merge_additions

if TYPE_CHECKING:
    from tare.run.hosts.contract import RunHost
    from tare.study.model.study import Study
    from tare.study.planning.host_cpus import HostCpus


EMULATED_SLOWDOWN = 2.0
"""Factor by which fixed work takes longer in an emulated machine; for the estimate."""
PATIENCE_S = 1.5


def arm_shape(study: Study, arm: str) -> Shape:
    """Return the size of an arm's machines: the arm's own, or the study's."""
    shape = study.shape_of(arm)
    return Shape(vcpus=shape.vcpus, memory=shape.memory, disk=shape.disk)


def arm_context(context: Context, named: Study | Plan, arm: str) -> Context:
    """Return the context with the arm's kernel and release from the study or the plan."""
    release = named.release_of(arm)
    return dataclasses.replace(context, kernel=named.kernel_of(arm), release=release)


def described(setup: Grounds, study: Study, arm: str) -> str:
    """Return an arm as a phrase: its platform with its options, and its release."""
    platform = platform_of(setup, study, arm)
    release = study.release_of(arm)
    words = platform.describe(study.arms[arm].options)
    return f"{words}, {release_words(release)}" if release else words


def boot_of(setup: Grounds, study: Study, arm: str) -> str:
    """Return how the host has to be booted for an arm."""
    run_host = setup.run_hosts[study.host_of(arm)]
    platform = platform_of(setup, study, arm)
    return run_host.boot_of(platform, study.arms[arm].options, study.release_of(arm))


async def check_arms(
    setup: RunSetup, study: Study, *, remembered: bool = True
) -> dict[str, Verdict]:
    """Check whether every arm's platform is usable on its host, booted for that arm.

    An arm for which the host cannot be booted is not usable; the verdict has the reason.

    Args:
        setup: The hosts.
        study: The study, or its part.
        remembered: Whether to store the results for plans.
    """
    context = setup.context
    await import_installed(context.builder, context.cache, setup.say)
    found: dict[str, Verdict] = {}
    for host in setup.run_hosts:
        found |= await _check_on(setup, study, host, remembered=remembered)
    return with_same_machines(study, {name: found[name] for name in study.arms})


def with_same_machines(study: Study, found: Mapping[str, Verdict]) -> dict[str, Verdict]:
    """Mark each arm whose machine is also that of its baseline; twins are not marked.

    Args:
        study: The study.
        found: The verdict on each of its arms.
    """
    marked = dict(found)
    for arm, verdict in found.items():
        base = study.own_baselines.get(arm, study.baseline)
        twin = study.arms[arm].twin_of == base
        if arm == base or twin or base not in found or not verdict.machine:
            continue
        if verdict.machine == found[base].machine and not verdict.mark.startswith(ITSELF):
            mark = marks(f"{ITSELF}: it is the machine of {base} ({SAME})", verdict.mark)
            marked[arm] = dataclasses.replace(verdict, mark=mark)
    return marked


async def _check_on(
    setup: RunSetup, study: Study, host: str, *, remembered: bool
) -> dict[str, Verdict]:
    """Check all arms of one host, boot by boot, and store the results."""
    run_host = setup.run_hosts[host]
    boots: dict[str, list[str]] = {}
    for name in study.arms:
        if study.host_of(name) == host:
            boots.setdefault(boot_of(setup, study, name), []).append(name)
    found: dict[str, Verdict] = {}
    for boot, names in boots.items():
        found |= await _check_booted(setup, study, run_host, boot, names)
    network = "network" in study_needs(setup, study)
    answers = {
        question(run_host, study, name, network): verdict
        for name, verdict in found.items()
        if verdict.lasting
    }
    if remembered:
        keep(run_host, answers)
    return found


async def _check_booted(
    setup: RunSetup, study: Study, run_host: RunHost, boot: str, names: Sequence[str]
) -> dict[str, Verdict]:
    """Check the arms that need the same boot of their host; again if an emulated host froze."""
    found = await _answers(setup, study, run_host, boot, names)
    refused = any(not verdict.usable for verdict in found.values())
    if refused and await run_host.froze() is not None:
        found = await _answers(setup, study, run_host, boot, names)
    return {
        name: dataclasses.replace(
            verdict,
            emulated=verdict.emulated or run_host.emulated,
            mark=marks(
                verdict.mark,
                mark_of(
                    platform_of(setup, study, name),
                    study.arms[name].options,
                    boot,
                    run_host.hypervisor,
                    run_host.platforms.values(),
                ),
                run_host.crowding,
            ),
        )
        for name, verdict in found.items()
    }


async def _answers(
    setup: RunSetup, study: Study, run_host: RunHost, boot: str, names: Sequence[str]
) -> dict[str, Verdict]:
    """Boot the host and check some arms; if it does not come up, none is usable."""
    fault: TareError
    try:
        context = await run_host.under(boot, 0)
    except TareError as error:
        fault = error
    else:
        try:
            return await _check_together(setup, study, names, context)
        except HostFroze as error:
            fault = error
    passing = isinstance(fault, MachineFault)
    refused = Verdict(False, fault.message, fault.hint, False, {}, NOTHING_AT_ALL, not passing)
    return dict.fromkeys(names, dataclasses.replace(refused, emulated=run_host.emulated))


async def _check_together(
    setup: RunSetup, study: Study, names: Sequence[str], where: Context
) -> dict[str, Verdict]:
    """Check some arms concurrently, equal ones only once."""
    checks: dict[tuple[object, ...], asyncio.Task[Verdict]] = {}
    keys: dict[str, tuple[object, ...]] = {}
    tasks: dict[str, asyncio.Task[Verdict]] = {}
    for name in names:
        arm = study.arms[name]
        memories = held_at_once(study, name)
        context = dataclasses.replace(arm_context(where, study, name), memories=memories)
        options_json = arm.options.model_dump_json()
        key: tuple[object, ...]
        key = (arm.platform, options_json, context.kernel, context.release, memories)
        keys[name] = key
        if key not in checks:
            check = platform_of(setup, study, name).check(context, arm.options)
            checks[key] = asyncio.ensure_future(check)
        tasks[name] = checks[key]
    verdicts = {name: await task for name, task in tasks.items()}
    known: dict[tuple[object, ...], Verdict] = {}
    packaged: dict[str | None, GuestKernels] = {}
    for name, key in keys.items():
        if key not in known:
            known[key] = await _with_kernels(setup, study, name, where, verdicts[name], packaged)
        verdicts[name] = known[key]
    if "network" in study_needs(setup, study):
        for name in names:
            options = study.arms[name].options
            ways = platform_of(setup, study, name).stated(options).network
            offered, reason = await offered_network(where, ways)
            able = with_network(verdicts[name].capabilities, offered, reason)
            verdicts[name] = dataclasses.replace(verdicts[name], capabilities=able)
            verdicts[name] = await _switched(where, options.wanted_switch, verdicts[name])
    return verdicts


async def _with_kernels(
    setup: RunSetup,
    study: Study,
    arm: str,
    where: Context,
    verdict: Verdict,
    packaged: dict[str | None, GuestKernels],
) -> Verdict:
    """Return the verdict with the kernels that an arm's machines can boot.

    Args:
        setup: The hosts.
        study: The study.
        arm: The arm.
        where: The context of the arm's host, booted for it.
        verdict: The result of its check.
        packaged: The known kernels of each release's packages; new results are added.
    """
    named = study.kernel_of(arm)
    boots_image = _stated(setup, study, arm).boots_image
    if not (verdict.usable and boots_image and named in (None, HOST)):
        return verdict
    context = dataclasses.replace(
        arm_context(where, study, arm), needs=study_needs(setup, study), kernel=None
    )
    lacks = GuestKernels()
    if named is None:
        if context.release not in packaged:
            found = await missing_kernels(context.builder, context.cache, context.release)
            packaged[context.release] = found
        lacks = packaged[context.release]
        if is_realtime(setup, study) and REALTIME not in lacks.missing:
            return dataclasses.replace(verdict, kernels=lacks)
    try:
        platform = platform_of(setup, study, arm)
        kernels = await platform.guest_kernels(context, study.arms[arm].options)
    except TareError as error:
        kernels = GuestKernels(no_own=error.message, todo=error.hint)
    kernels = dataclasses.replace(kernels, missing=lacks.missing, remedy=lacks.remedy)
    verdict = dataclasses.replace(verdict, kernels=kernels)
    if named == HOST and kernels.no_own:
        reason = f"`kernel: host` cannot be booted: {kernels.no_own}"
        return dataclasses.replace(verdict, usable=False, reason=reason, hint=kernels.todo)
    return verdict


async def _switched(where: Context, wanted: Switching, verdict: Verdict) -> Verdict:
    """Return the verdict; not usable if the host lacks something for the arm's switch."""
    if not verdict.usable:
        return verdict
    try:
        lacks = await lacking_switch(where.host, wanted)
    except TareError as error:
        return dataclasses.replace(
            verdict, usable=False, reason=error.message, hint=error.hint, lasting=False
        )
    if lacks is None:
        return verdict
    return dataclasses.replace(verdict, usable=False, reason=lacks[0], hint=lacks[1])


def facts_of(setup: Grounds, study: Study, verdicts: Mapping[str, Verdict]) -> dict[str, ArmFacts]:
    """Reduce verdicts to the facts that planning needs."""
    ends = {
        name: own_ends(setup.workloads, study, name, verdict.capabilities)
        for name, verdict in verdicts.items()
    }
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
            lacks=lacking(
                setup.workloads, study, name, verdict.capabilities, emulated=verdict.emulated
            ),
            loads_lack=lacking_loads(setup.workloads, study, name, verdict.capabilities),
            own_ends=ends[name][0],
            loads_ends=ends[name][1],
            boot_s=_boot_s(setup, study, name),
            slowdown=EMULATED_SLOWDOWN if verdict.emulated else 1.0,
            boot=boot_of(setup, study, name),
            boots_image=_stated(setup, study, name).boots_image,
            plain_kernel=_keeps_general(setup, study, name) and is_realtime(setup, study),
            no_own_cache=verdict.capabilities.no_own_cache,
            host_addresses=verdict.capabilities.reaches_out,
            kernels=verdict.kernels,
            general_kernel=_keeps_general(setup, study, name),
            boots_live=_stated(setup, study, name).capabilities.toolbox == {LIVE},
            live_toolbox=_live_toolbox(setup, study, name),
            carrier=_arranged_carrier(study, name, verdict.carrier),
        )
        for name, verdict in verdicts.items()
    }


def _live_toolbox(setup: Grounds, study: Study, arm: str) -> str:
    """Return the toolbox that the live image of an arm's machines needs; empty: none."""
    needs = study_needs(setup, study)
    if "toolbox" not in needs or _stated(setup, study, arm).capabilities.toolbox != {LIVE}:
        return ""
    added = [additions for _, additions in study_additions(setup, study)]
    return live_toolbox(needs, merge_additions(added))


def _arranged_carrier(study: Study, arm: str, carrier: Carrier | None) -> Carrier | None:
    """Return the carrier of an arm's machines, with the study's choice of CPUs if it is a host."""
    if carrier is None or not carrier.is_host:
        return carrier
    return dataclasses.replace(carrier, cpus=arranged_cpus(study, study.host_of(arm), carrier.cpus))


def _stated(setup: Grounds, study: Study, arm: str) -> Statement:
    return platform_of(setup, study, arm).stated(study.arms[arm].options)


def _keeps_general(setup: Grounds, study: Study, arm: str) -> bool:
    return study.kernel_of(arm) is None and keeps_general(_stated(setup, study, arm))


def _boot_s(setup: Grounds, study: Study, arm: str) -> float:
    stated = _stated(setup, study, arm)
    emulated = setup.run_hosts[study.host_of(arm)].emulated
    return stated.emulated_boot_s if emulated else stated.boot_s


def plan_study(setup: Grounds, study: Study, seed: int, facts: Mapping[str, ArmFacts]) -> Plan:
    """Plan ``study`` for its hosts."""
    hosts = {
        name: HostFacts(arranged_cpus(study, name, each.cpus), each.boot_s)
        for name, each in setup.run_hosts.items()
    }
    return make_plan(study, seed, facts, hosts, setup.workloads)


def with_possible_baseline(setup: Grounds, study: Study, verdicts: Mapping[str, Verdict]) -> Study:
    """Return a study whose baseline has its own shape, if it cannot run in another arm's shape.

    The other arm is then skipped with a reason, or compared with a baseline of another shape, which
    the plan states. It does not end the study.

    Args:
        setup: The hosts.
        study: The study.
        verdicts: The verdict on each arm.
    """
    name = study.baseline
    if name not in verdicts or not verdicts[name].usable:
        return study
    host = study.host_of(name)
    facts = facts_of(setup, study, {name: verdicts[name]})[name]
    cpus = facts.cpus_of(arranged_cpus(study, host, setup.run_hosts[host].cpus))
    return give_own_shape(study) if shape_lacks(study, name, facts, cpus) else study


def arranged_cpus(study: Study, host: str, cpus: HostCpus) -> HostCpus:
    """Return the CPUs of a study's host with the choice of CPUs for machines.

    Raises:
        InputError: The host lacks CPUs that the study requests.
    """
    return arranged(cpus, study.choice_of(host), study.vcpus_on(host), host)


def arranging_of(study: Study, host: str) -> Callable[[HostCpus], HostCpus]:
    """Return a function that chooses a host's CPUs, or leaves them unchanged if some are missing.

    After another boot a host's kernel may see fewer CPUs, as under Xen.
    """

    def arrange(cpus: HostCpus) -> HostCpus:
        try:
            return arranged_cpus(study, host, cpus)
        except InputError:
            return cpus

    return arrange


def is_realtime(setup: Grounds, study: Study) -> bool:
    """Return whether any workload of the study wants a real-time kernel."""
    return any(setup.workloads[spec.workload].realtime for spec in study.workloads.values())


class Unprepared(InputError):
    """The images of some arms are not available on this computer.

    Args:
        arms: The reason for each arm.
    """

    def __init__(self, arms: Mapping[str, NotAvailable]) -> None:
        name, first = next(iter(arms.items()))
        super().__init__(f"arm {name}: {first.message}", first.hint)
        self.arms = arms


def left_out(verdicts: Mapping[str, Verdict], error: Unprepared) -> dict[str, Verdict]:
    """Return the verdicts with unprepared arms marked as not usable, with the reason.

    Args:
        verdicts: The verdicts on all arms.
        error: The arms that cannot be prepared.
    """
    changed = {
        name: dataclasses.replace(
            verdicts[name], usable=False, reason=why.message, hint=why.hint, lasting=False
        )
        for name, why in error.arms.items()
    }
    return {**verdicts, **changed}


async def prepare_arms(setup: RunSetup, study: Study, plan: Plan) -> dict[str, Prepared]:
    """Build or find the image of every arm of ``plan``; report a build that takes a while.

    Raises:
        Unprepared: The images of some arms are not available here.
        InputError: An image cannot be built, for example for a device without a driver.
    """
    note = _BuildNote(setup.say)
    try:
        with while_waiting(note.paused):
            return await _prepare_all(setup, study, plan)
    finally:
        note.end()


class _BuildNote:
    """Reports a build that takes a while, except while another process builds.

    Args:
        say: Shows the user a sentence.
    """

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._begin()

    def _begin(self) -> None:
        sentence = "building the image that the guests boot; it is kept for the next run"
        self._timer = asyncio.get_running_loop().call_later(PATIENCE_S, self._say, sentence)

    def end(self) -> None:
        """Cancel the report."""
        self._timer.cancel()

    @asynccontextmanager
    async def paused(self, _: Path) -> AsyncIterator[None]:
        """Suspend the report meanwhile."""
        self.end()
        yield
        self._begin()


async def _prepare_all(setup: RunSetup, study: Study, plan: Plan) -> dict[str, Prepared]:
    # A live image includes the toolbox, but peers of such machines boot another image.
    need = {
        name
        for name in plan.arms
        if not _brings_toolbox(setup, study, name)
        or study.arms[name].options.wanted_network == GIVEN
    }
    toolbox = await study_toolbox(setup, study) if need else None
    prepared: dict[str, Prepared] = {}
    lacking: dict[str, NotAvailable] = {}
    for name in plan.arms:
        try:
            given = toolbox if name in need else None
            prepared[name] = await _prepare(setup, plan, name, given)
        except NotAvailable as error:
            lacking[name] = error
    if lacking:
        raise Unprepared(lacking)
    return prepared


def _brings_toolbox(setup: RunSetup, study: Study, arm: str) -> bool:
    stated = platform_of(setup, study, arm).stated(study.arms[arm].options)
    return stated.capabilities.toolbox == {LIVE}


async def _prepare(setup: RunSetup, plan: Plan, arm: str, toolbox: ToolboxFiles | None) -> Prepared:
    study = plan.study
    where = setup.run_hosts[study.host_of(arm)].context
    context = dataclasses.replace(where, needs=study_needs(setup, study))
    try:
        prepared = await platform_of(setup, study, arm).prepare(
            arm_context(context, plan, arm),
            study.arms[arm].options,
            arm_shape(study, arm),
            is_realtime(setup, study),
        )
    except NotAvailable:
        raise
    except InputError as error:
        raise InputError(f"arm {arm}: {error.message}", error.hint) from error
    if toolbox is None:
        return prepared
    if _brings_toolbox(setup, study, arm):
        return dataclasses.replace(prepared, toolbox=toolbox)
    both = key_of({"boots": prepared.digest, "toolbox": toolbox.digest})
    return dataclasses.replace(prepared, toolbox=toolbox, digest=both)


def image_events(prepared: Mapping[str, Prepared]) -> list[ImageReady]:
    """Return one event for each arm's image."""
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
    setup: RunSetup,
    study: Study,
    verdicts: Mapping[str, Verdict],
    facts: Mapping[str, ArmFacts],
) -> list[PlatformChecked]:
    """Return one event for each arm's verdict, with the facts for planning."""
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
            description=described(setup, study, name),
            facts=recorded(facts[name]),
            mark=verdicts[name].mark,
            shown=dict(verdicts[name].shown),
            uncontrolled=verdicts[name].uncontrolled,
            lasting=verdicts[name].lasting,
        )
        for name, arm in study.arms.items()
    ]
