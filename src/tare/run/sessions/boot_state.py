"""The state of a boot of the computer: whether it is up, and the text that identifies it.

A boot is identified by ids or by the time at which the computer started, as words of one text. The
time varies by seconds between readings: clocks are set, and some products derive it from the
uptime. So a time close to an earlier one is replaced by the earlier one.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tare.errors import TareError
from tare.platforms.contract import Presence
from tare.registry import installed
from tare.run.lifecycle.session import inspection_setup
from tare.run.lifecycle.setup import RunSetup, platform_of
from tare.run.preflight.checking import check_arms
from tare.study.model.sessions import part_of

if TYPE_CHECKING:
    from tare.platforms.contract import Verdict
    from tare.study.model.study import Study

SINCE = "since:"
SAME_S = 60.0
"""Start times that differ by at most this many seconds are of the same boot: measuring a session
and booting the computer again takes longer."""


@dataclass(frozen=True)
class BootCheck:
    """The result of a check of one boot.

    Args:
        up: Whether it is up: whether any of its arms can be measured.
        why: If it is not up, the reason why each arm cannot be measured.
        booted: The text that identifies this boot; empty if nothing identifies it.
    """

    up: bool
    why: str = ""
    booted: str = ""


async def look(study: Study, boot: str) -> BootCheck:
    """Check whether a boot is up.

    This locks no host, and stores none of the results of its checks.

    Args:
        study: The study in sessions.
        boot: The name of the boot.
    """
    part = part_of(study, boot)
    try:
        async with inspection_setup(part) as setup:
            return await _looked(setup, part)
    except TareError as error:
        return BootCheck(False, error.message)


async def _looked(setup: RunSetup, part: Study) -> BootCheck:
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
        return BootCheck(False, "; ".join(f"{', '.join(of)}: {why}" for why, of in absent.items()))
    words = {*boot_words(there), *_hosts_boots(setup, part)}
    return BootCheck(True, booted=canonical_boot(words))


async def _presence(
    setup: RunSetup,
    part: Study,
    arm: str,
    verdict: Verdict,
    asked: dict[tuple[str, str], Presence],
) -> Presence:
    """Return whether an arm's computer is present; equal arms are checked once."""
    if not verdict.usable:
        return Presence(absent=verdict.reason)
    if verdict.mark:
        # It would run, but not where the arm belongs: in dom0 instead of on the bare machine.
        return Presence(absent=f"it would run {verdict.mark}")
    spec, platform = part.arms[arm], platform_of(setup, part, arm)
    key = (spec.platform, spec.options.model_dump_json())
    if key not in asked:
        context = setup.run_hosts[part.host_of(arm)].context
        asked[key] = await platform.presence(context, spec.options)
    return asked[key]


def _hosts_boots(setup: RunSetup, part: Study) -> set[str]:
    """Return the boot ids of the hosts that run machines, not of hosts that only control them."""
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
    """Return whether all arms of a boot reboot the computer for each batch by themselves."""
    platforms = installed().platforms
    arms = part_of(study, boot).arms.values()
    return all(platforms[arm.platform].stated(arm.options).boots_each for arm in arms)


def boot_words(presences: Iterable[Presence]) -> tuple[str, ...]:
    """Return the words that identify the boots of present computers, each once."""
    found: dict[str, None] = {}
    for each in presences:
        if each.boot:
            found[each.boot] = None
        elif each.since is not None:
            found[f"{SINCE}{each.since:.0f}"] = None
    return tuple(found)


def canonical_boot(words: Iterable[str], before: Iterable[str] = ()) -> str:
    """Return words as one text, with each time as an earlier boot has it.

    Args:
        words: The words that identify the current boot.
        before: The texts that identify earlier boots.
    """
    times = [word for text in before for word in text.split() if word.startswith(SINCE)]
    found = set()
    # The order is fixed, so that the same one of two close times always names both.
    for word in sorted(words):
        known = _nearest(word, times) if word.startswith(SINCE) else word
        times += [known] if known.startswith(SINCE) else []
        found.add(known)
    return " ".join(sorted(found))


def _nearest(word: str, times: Iterable[str]) -> str:
    """Return the closest known time; the time itself if none is close."""
    away = {each: abs(_seconds(each) - _seconds(word)) for each in times}
    near = [each for each, seconds in away.items() if seconds <= SAME_S]
    return min(near, key=lambda each: away[each], default=word)


def _seconds(word: str) -> float:
    return float(word.removeprefix(SINCE))
