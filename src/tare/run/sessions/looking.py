"""What is up of a computer that is booted in turns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tare.errors import TareError
from tare.platforms.contract import Presence
from tare.registry import installed
from tare.run.lifecycle.session import inspection_setup
from tare.run.lifecycle.setup import RunSetup, platform_of
from tare.run.preflight.checking import check_arms
from tare.run.sessions.boots import told_as_before, words_of
from tare.study.model.sessions import part_of

if TYPE_CHECKING:
    from tare.platforms.contract import Verdict
    from tare.study.model.study import Study


@dataclass(frozen=True)
class Look:
    """What was found of one boot.

    Args:
        up: Whether the computer is booted so: whether any of its arms can be measured.
        why: Where it is not, why each arm cannot, in words.
        booted: What tells this boot of the computer from another; empty where that does not show.
    """

    up: bool
    why: str = ""
    booted: str = ""


async def look(study: Study, boot: str) -> Look:
    """Find out whether the computer is booted in one way.

    Nothing is held for it, and nothing that is found is remembered.

    Args:
        study: The study in sessions.
        boot: The name of the boot.
    """
    part = part_of(study, boot)
    try:
        async with inspection_setup(part) as setup:
            return await _looked(setup, part)
    except TareError as error:
        return Look(False, error.message)


async def _looked(setup: RunSetup, part: Study) -> Look:
    verdicts = await check_arms(setup, part, remembered=False)
    asked: dict[tuple[str, str], Presence] = {}
    there: list[Presence] = []
    absent: dict[str, list[str]] = {}
    for name, verdict in verdicts.items():
        found = await _presence(setup, part, name, verdict, asked)
        if found.absent:
            absent.setdefault(found.absent, []).append(name)
        else:
            there.append(found)
    if not there:
        return Look(False, "; ".join(f"{', '.join(of)}: {why}" for why, of in absent.items()))
    told = {*words_of(there), *_hosts_boots(setup, part)}
    return Look(True, booted=told_as_before(told))


async def _presence(
    setup: RunSetup,
    part: Study,
    arm: str,
    verdict: Verdict,
    asked: dict[tuple[str, str], Presence],
) -> Presence:
    """Return whether an arm's computer is there; arms that are the same are asked for once."""
    if not verdict.usable:
        return Presence(absent=verdict.reason)
    if verdict.mark:
        # It would run, but not on what the arm is about: as in dom0 instead of on the bare machine.
        return Presence(absent=f"it would run {verdict.mark}")
    spec, platform = part.arms[arm], platform_of(setup, part, arm)
    key = (spec.platform, spec.options.model_dump_json())
    if key not in asked:
        context = setup.run_hosts[part.host_of(arm)].context
        asked[key] = await platform.presence(context, spec.options)
    return asked[key]


def _hosts_boots(setup: RunSetup, part: Study) -> set[str]:
    """Return the boots of the hosts that carry machines; not of one that only speaks with them."""
    carrying = {
        part.host_of(name)
        for name, arm in part.arms.items()
        if not platform_of(setup, part, name).stated(arm.options).elsewhere
    }
    return {
        run_host.context.host.boot_id()
        for name, run_host in setup.run_hosts.items()
        if name in carrying or part.computers[name].ssh is not None
    }


def boots_by_itself(study: Study, boot: str) -> bool:
    """Return whether the computer boots for each batch of all arms of a boot, so nobody need."""
    platforms = installed().platforms
    arms = part_of(study, boot).arms.values()
    return all(platforms[arm.platform].stated(arm.options).boots_each for arm in arms)
