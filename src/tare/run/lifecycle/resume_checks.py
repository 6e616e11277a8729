"""Checks before a run is resumed: hosts, versions, images and plan have to be the same as before.

Otherwise new cells are not comparable with the run's former cells.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from tare.errors import InputError
from tare.run.hosts.host_facts import COMPUTER
from tare.run.lifecycle.versions import run_versions
from tare.run.preflight.arm_facts import require_still_usable
from tare.units import format_size

if TYPE_CHECKING:
    from pathlib import Path

    from tare.events import Fold, HostJoined, PlatformChecked
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
"""Facts that depend on the hypervisor that a host is booted with."""
MEMORY_SHARE = 0.02
"""The kernel's share of the memory varies between boots by less than this."""
NO_ABILITIES = frozenset({"notes", "missing_knobs"})
"""Fields of the capabilities that only hold text."""

REJOIN_HINT = "restore it and run `tare resume DIR --cluster …`, or start a new run"


def hosts_now(setup: RunSetup) -> dict[str, Any]:
    """Return the facts that identify the host, with its CPUs; for several hosts, by their names."""
    facts = {
        name: {**run_host.facts, ONLINE: list(run_host.cpus.online)}
        for name, run_host in setup.run_hosts.items()
    }
    return facts.get("") or facts


def require_as_begun(found: Collection[str], folder: Path, *, accepted: bool) -> tuple[str, ...]:
    """Check that nothing has changed since a run began, or that the user accepts it.

    Args:
        found: The changes, one phrase each.
        folder: The run's folder, for the advice.
        accepted: Whether the user accepts them.

    Returns:
        The changes.

    Raises:
        InputError: There are changes that are not accepted.
    """
    if found and not accepted:
        raise InputError(
            f"this has changed since the run was last active: {'; '.join(found)}",
            "restore it, or start a new run; or accept it: "
            f"tare resume {folder} --accept (the unfinished block is measured again, and the "
            "report shows the change)",
        )
    return tuple(found)


def require_same_plan(fold: Fold, plan: Plan) -> None:
    """Check that the plan has as many cells as before, so that none is silently dropped.

    Raises:
        InputError: It has more or fewer cells than at the start of the run.
    """
    cells = sum(len(batch.cells) for batch in plan.block(1))
    if fold.planned is not None and fold.planned.cells_per_block != cells:
        raise InputError(
            f"a block has {cells} cells on this host now, and had {fold.planned.cells_per_block} "
            "when the run started: new and old blocks would not be comparable",
            "restore the host, or start a new run",
        )


def require_same_images(fold: Fold, prepared: Mapping[str, Prepared]) -> None:
    """Check that every arm boots the same image as when the run began.

    Raises:
        InputError: An image differs.
    """
    for arm, now in prepared.items():
        then = fold.first_digest(arm) or now.digest
        if then != now.digest:
            raise InputError(
                f"what arm {arm} boots has changed since the run began "
                f"({then[:12]} then, {now.digest[:12]} now): its cells would not be comparable",
                "start a new run",
            )


def changed(
    fold: Fold,
    study: Study,
    setup: RunSetup,
    verdicts: Mapping[str, Verdict],
    versions: Mapping[str, str],
) -> list[str]:
    """Return the changes since the run last recorded its hosts, versions and arms, one phrase each.

    Args:
        fold: The run's events so far.
        study: Its study.
        setup: The current hosts.
        verdicts: The current result of the check of each arm.
        versions: The current versions of Tare and its libraries.
    """
    menus = {name for name, spec in study.computers.items() if spec.boot is not None}
    return [
        *changed_hosts(fold.host, hosts_now(setup), menus),
        *changed_versions(fold.versions, versions),
        *changed_arms(fold.platforms, verdicts),
    ]


def changed_versions(then: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """Return the differences between versions of Tare and its libraries."""
    return [f"{name} {after}, and was {before}" for name, before, after in _differing(then, now)]


def changed_hosts(
    then: Mapping[str, Any], now: Mapping[str, Any], menus: Collection[str] = ()
) -> list[str]:
    """Return the differences between hosts.

    Only recorded facts are compared: runs of older versions recorded fewer.

    Args:
        then: The result of :func:`hosts_now` when the run was last active.
        now: Its current result.
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
    """Return the differences between two hosts that should be equal, one phrase each.

    Args:
        one: The facts of the reference host.
        other: The facts of the host that the phrases describe.
        name: The reference host's name.
    """
    # Machine ids of two computers always differ.
    compared = {key: value for key, value in other.items() if key != COMPUTER}
    return _changed_host(one, compared, by_boot=False, was=f"on {name}")


_LAB_WORDS = {
    "emulator": "the lab's emulator is QEMU",
    "workarounds": "the list of workarounds of a lab with Xen is",
}


def _changed_lab(then: Mapping[str, Any], now: Mapping[str, Any], was: str) -> list[str]:
    """Return which of the lab's own files differ by content, and which packages by version."""
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
    """Return the differences of a run's arms: versions and capabilities.

    Args:
        then: The newest check of each arm in the run's events.
        now: The current check of each arm.
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
    """Yield each fact that both have with different values: its name, the old and the new value."""
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


class HostChanged(InputError):
    """A host has changed since it joined: trying again does not help."""


def require_same_host(
    before: HostJoined, study: Study, setup: RunSetup, verdicts: Mapping[str, Verdict]
) -> None:
    """Check that a host that rejoins a shared run has not changed, nor its versions and arms.

    Args:
        before: Its event when it last joined.
        study: Its part of the study.
        setup: The current host.
        verdicts: The current check of each arm.

    Raises:
        HostChanged: Something has changed; the message lists all changes.
    """
    then = {event.arm: event for event in before.checked}
    menus = {name for name, spec in study.computers.items() if spec.boot is not None}
    try:
        require_still_usable(then, verdicts)
    except InputError as error:
        raise HostChanged(error.message, error.hint) from error
    found = [
        *changed_hosts(before.facts, hosts_now(setup), menus),
        *changed_versions(before.versions, run_versions()),
        *changed_arms(then, verdicts),
    ]
    if found:
        raise HostChanged(
            f"it has changed since it joined the run: {'; '.join(found)}", REJOIN_HINT
        )


def require_same_work(before: HostJoined, plan: Plan, prepared: Mapping[str, Prepared]) -> None:
    """Check that a host that rejoins has as many cells as before, and the same images.

    Args:
        before: Its event when it last joined.
        plan: Its current plan.
        prepared: The current images of its arms.

    Raises:
        HostChanged: The number of cells, or an image, differs.
    """
    cells = sum(len(batch.cells) for batch in plan.block(1))
    if cells != before.cells_per_block:
        raise HostChanged(
            f"a block would have {cells} cells there, and had {before.cells_per_block}", REJOIN_HINT
        )
    for arm, now in prepared.items():
        then = before.images.get(arm, now.digest)
        if then != now.digest:
            raise HostChanged(
                f"what arm {arm} boots has changed there ({then[:12]} then, {now.digest[:12]} "
                "now): its cells would not be comparable",
                REJOIN_HINT,
            )
