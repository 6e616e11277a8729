"""Whether a run that is gone on with finds what it was begun with; else its cells compare badly."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from tare.errors import InputError
from tare.run.hosts.host_facts import COMPUTER
from tare.units import format_size

if TYPE_CHECKING:
    from pathlib import Path

    from tare.events import Fold, PlatformChecked
    from tare.platforms.contract import Prepared, Verdict
    from tare.run.lifecycle.setup import RunSetup
    from tare.study.model.study import Study
    from tare.study.planning.plan import Plan

ONLINE = "online"
WORDS = {
    "kernel": "the kernel",
    "machine": "the architecture",
    "cpu_model": "the processor",
    "cpus": "the number of CPUs",
    ONLINE: "the set of CPUs that may be used",
    "memory_bytes": "the memory",
    "os": "the operating system",
    COMPUTER: "the computer itself, by its machine id,",
}
BY_BOOT = frozenset({"kernel", "cpus", ONLINE, "memory_bytes"})
"""What differs with the hypervisor that a host happens to be booted with."""
MEMORY_SHARE = 0.02
"""A kernel's own share of the memory differs from boot to boot by less than this."""
NO_ABILITIES = frozenset({"notes", "missing_knobs"})
"""Words beside the capabilities."""


def hosts_now(setup: RunSetup) -> dict[str, Any]:
    """Return what identifies the host, with its CPUs; where there are several, of each by name."""
    facts = {
        name: {**run_host.facts, ONLINE: list(run_host.cpus.online)}
        for name, run_host in setup.run_hosts.items()
    }
    return facts.get("") or facts


def require_as_begun(found: Collection[str], folder: Path, *, accepted: bool) -> tuple[str, ...]:
    """Check that nothing has changed since a run began, or that the user accepts it.

    Args:
        found: What has changed, one phrase each.
        folder: The run's folder, for the advice.
        accepted: Whether the user accepts it.

    Returns:
        What has changed.

    Raises:
        InputError: Something has, and it is not accepted.
    """
    if found and not accepted:
        raise InputError(
            f"this is not as it was when the run was last under way: {'; '.join(found)}",
            "make it as it was, or start a new run; or accept it: "
            f"tare resume {folder} --accept (the unfinished block is measured anew, and the "
            "report tells of the break)",
        )
    return tuple(found)


def require_same_plan(fold: Fold, plan: Plan) -> None:
    """Check that no cell is silently dropped because the plan is another one now.

    Raises:
        InputError: It has more or fewer cells than the run was begun with.
    """
    cells = sum(len(batch.cells) for batch in plan.block(1))
    if fold.planned is not None and fold.planned.cells_per_block != cells:
        raise InputError(
            f"a block has {cells} cells on this host now, and had {fold.planned.cells_per_block} "
            "when the run was begun: the new blocks could not be compared with the old ones",
            "make the host as it was, or start a new run",
        )


def require_same_images(fold: Fold, prepared: Mapping[str, Prepared]) -> None:
    """Check that every arm boots what it booted when the run began.

    Raises:
        InputError: One would boot something else.
    """
    for arm, now in prepared.items():
        then = fold.first_digest(arm) or now.digest
        if then != now.digest:
            raise InputError(
                f"what arm {arm} boots has changed since the run began "
                f"({then[:12]} then, {now.digest[:12]} now), so its cells would not compare",
                "start a new run",
            )


def changed(
    fold: Fold,
    study: Study,
    setup: RunSetup,
    verdicts: Mapping[str, Verdict],
    versions: Mapping[str, str],
) -> list[str]:
    """Return what is not as the run recorded it last, one phrase each.

    Args:
        fold: The run's events so far.
        study: Its study.
        setup: The hosts as they are now.
        verdicts: What is found out now about every arm.
        versions: Of Tare and what it is made of, now.
    """
    menus = {name for name, spec in study.computers.items() if spec.boot is not None}
    return [
        *changed_hosts(fold.host, hosts_now(setup), menus),
        *changed_versions(fold.versions, versions),
        *changed_arms(fold.platforms, verdicts),
    ]


def changed_versions(then: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """Return what differs of the versions of Tare and what it is made of."""
    return [f"{name} {after}, and was {before}" for name, before, after in _differing(then, now)]


def changed_hosts(
    then: Mapping[str, Any], now: Mapping[str, Any], menus: Collection[str] = ()
) -> list[str]:
    """Return what differs of the hosts.

    What was not recorded then is not compared: runs of old recorded less.

    Args:
        then: As :func:`hosts_now` returned it when the run was last under way.
        now: As it returns it now.
        menus: The hosts that are booted as arms need them.
    """
    if all(isinstance(facts, Mapping) for facts in now.values()):
        return [
            f"{phrase} (host {name})"
            for name, facts in now.items()
            if isinstance(before := then.get(name), Mapping)
            for phrase in _changed_host(before, facts, by_boot=name in menus)
        ]
    return _changed_host(then, now, by_boot="" in menus)


def differing_hosts(one: Mapping[str, Any], other: Mapping[str, Any], name: str) -> list[str]:
    """Return what differs between two hosts that should be equal, one phrase each.

    Args:
        one: What identifies the host that the other is compared with.
        other: What identifies the other, of which the phrases are.
        name: The first one's name.
    """
    # No two computers have one machine id.
    compared = {key: value for key, value in other.items() if key != COMPUTER}
    return _changed_host(one, compared, by_boot=False, was=f"on {name}")


_LAB_WORDS = {
    "emulator": "the lab's emulator is QEMU",
    "workarounds": "what a lab with Xen works around is",
}


def _changed_lab(then: Mapping[str, Any], now: Mapping[str, Any], was: str) -> list[str]:
    """Return which of the lab's own files are others, by content, and which packages."""
    found = []
    for what, words in (("xen", "Xen"), ("kernel", "kernel"), ("qemu", "QEMU")):
        before, after = (each.get(what, {}).get("sha256") for each in (then, now))
        if before and after and before != after:
            found.append(f"the lab's {words} is {after[:12]}, and {was} {before[:12]}")
    for key, words in _LAB_WORDS.items():
        before, after = (str(each.get(key, "")) for each in (then, now))
        if before and after and before != after:
            found.append(f"{words} {after}, and {was} {before}")
    for release, made in then.get("releases", {}).items():
        differing = _differing(made, now.get("releases", {}).get(release, {}))
        found += [f"{name} of {release} is {b}, and {was} {a}" for name, a, b in differing]
    return found


def _changed_host(
    then: Mapping[str, Any], now: Mapping[str, Any], *, by_boot: bool, was: str = "was"
) -> list[str]:
    return [
        f"{WORDS[name]} is {_shown(name, after)}, and {was} {_shown(name, before)}"
        for name, before, after in _differing(then, now)
        if name in WORDS
        and not (by_boot and name in BY_BOOT)
        and not (name == "memory_bytes" and _as_much(before, after))
    ] + _changed_lab(then.get("lab", {}), now.get("lab", {}), was)


def changed_arms(then: Mapping[str, PlatformChecked], now: Mapping[str, Verdict]) -> list[str]:
    """Return what differs of the arms that a run began with: versions and capabilities.

    Args:
        then: The newest word on each arm in the run's events.
        now: What is found out now.
    """
    found: dict[str, list[str]] = {}
    for arm, event in then.items():
        if not event.usable or arm not in now:
            continue
        verdict = now[arm]
        able = {
            name: sorted(value) if isinstance(value, frozenset) else value
            for name, value in dataclasses.asdict(verdict.capabilities).items()
            if name not in NO_ABILITIES
        }
        phrases = [
            f"{n} {b}, and was {a}" for n, a, b in _differing(event.versions, verdict.versions)
        ]
        phrases += [
            f"its {name.replace('_', ' ')}: {_words(after)}, and was {_words(before)}"
            for name, before, after in _differing(event.capabilities, able)
        ]
        for phrase in phrases:
            found.setdefault(phrase, []).append(arm)
    return [f"{phrase} (arm {', '.join(arms)})" for phrase, arms in found.items()]


def _differing(then: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[tuple[str, Any, Any]]:
    """Yield what both know, and differs: its name, then, now."""
    for name, before in then.items():
        if name in now and before not in (None, "") and _plain(before) != _plain(now[name]):
            yield name, before, now[name]


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple | list) else value


def _as_much(before: Any, after: Any) -> bool:
    return abs(float(after) - float(before)) <= MEMORY_SHARE * float(before)


def _shown(name: str, value: Any) -> str:
    return format_size(value) if name == "memory_bytes" else _words(value)


def _words(value: Any) -> str:
    if isinstance(value, list | tuple):
        return ", ".join(map(str, value)) or "none"
    return (
        {True: "yes", False: "no"}.get(value, str(value)) if isinstance(value, bool) else str(value)
    )
