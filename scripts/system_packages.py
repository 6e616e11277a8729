"""Provide the programs that a make target needs, and change nothing else on the computer.

What is missing is printed with its use before anything is installed. With ``NO_INSTALL`` in the
environment, and where there is no apt, it is only printed. Parts that cannot be installed without
changing an installed package are left out, each with the reason.

usage: python3 -m scripts.system_packages quick|test|bench [--have NAME]... [--list]
           [--part needed|optional]
       python3 -m scripts.system_packages only PACKAGE --for PURPOSE

Exit status: 1 if a part is missing without which the target cannot continue. The script uses only
the standard library, because it runs before anything is installed.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from scripts.apt_install import CHANGES, Apt, Choice, Unavailable
from scripts.target_needs import Need, needs_of, required_package
from tare import programs


def say(words: str) -> None:
    """Print a line as set-up does."""
    print(f"\033[1mtare setup:\033[0m {words}", flush=True)


@dataclass
class Outcome:
    """The packages to install for each need, and the needs that are left out.

    Args:
        chosen: Each need with the packages that are installed for it.
        new: All packages that apt adds.
        left: Each need that is left out, with the reason.
    """

    chosen: list[tuple[Need, Choice]] = field(default_factory=list)
    new: tuple[str, ...] = ()
    left: list[tuple[Need, str]] = field(default_factory=list)


def choose(apt: Apt, missing: Sequence[Need]) -> Outcome:
    """Choose packages for each need that can be installed without changing an installed package."""
    options = [(need, need.choices(apt)) for need in missing]
    if (together := _all_at_once(apt, options)) is not None:
        return together
    outcome = Outcome()
    asked: list[str] = []
    for need, choices in options:
        choice, reason = _chosen(apt, need, choices, asked)
        if choice is None:
            outcome.left.append((need, reason))
            continue
        outcome.chosen.append((need, choice))
        asked += [package for package in choice.packages if package not in asked]
    outcome.new = apt.plan(asked).new if asked else ()
    return outcome


def _all_at_once(apt: Apt, options: Sequence[tuple[Need, Sequence[Choice]]]) -> Outcome | None:
    """Return the outcome if the preferred packages of all needs can be added together."""
    outcome = Outcome()
    for need, choices in options:
        wanted = choices[0].packages if choices else ()
        packages = tuple(package for package in wanted if not apt.is_installed(package))
        if not packages or apt.existing_units(choices[0].units):
            return None
        outcome.chosen.append((need, Choice(packages, choices[0].units)))
    asked = dict.fromkeys(package for _, choice in outcome.chosen for package in choice.packages)
    plan = apt.plan(tuple(asked))
    outcome.new = plan.new
    return None if plan.harm else outcome


def _chosen(
    apt: Apt, need: Need, choices: Sequence[Choice], along: Sequence[str]
) -> tuple[Choice | None, str]:
    """Return packages for a need that can be added along with others, or None and the reason."""
    reasons = []
    for choice in choices:
        wanted = [package for package in choice.packages if not apt.is_installed(package)]
        if not wanted:
            packages = " ".join(choice.packages)
            reasons.append(
                f"{packages} is installed, but {need.name} is not there or does not suffice"
            )
            continue
        if running := apt.existing_units(choice.units):
            reasons.append(f"{' '.join(wanted)}: this computer has {', '.join(running)} already")
            continue
        if asked := apt.harmless(wanted, along):
            return Choice(asked, choice.units), ""
        reasons.append(f"{' '.join(wanted)}: {apt.plan((*along, *wanted)).harm}")
    return None, "; ".join(reasons) or "this distribution has no package that suffices"


def provide(apt: Apt, needs: Sequence[Need], *, only_list: bool) -> int:
    """Install missing programs, or only list them; see the module.

    Returns:
        The exit status.
    """
    missing = [need for need in needs if not need.is_there()]
    if not missing:
        if only_list:
            say("nothing is missing here")
        return 0
    if only_list or not apt.works_here():
        _list(apt, missing, only_list=only_list)
        return _status(missing)
    try:
        _require_ready(apt)
    except Unavailable as problem:
        say(f"nothing is installed: {problem}")
        _list(apt, missing, only_list=False)
        return _status(missing)
    if not apt.lists_are_fresh():
        _read_lists(apt)
    outcome = choose(apt, missing)
    _announce(outcome)
    if not outcome.chosen:
        return _status(missing)
    failed = apt.install([choice for _, choice in outcome.chosen])
    if failed:
        say(f"apt could not install this: {failed}")
    still = [need for need in missing if not _is_there_now(need, outcome, failed)]
    for need in still:
        if need not in [left for left, _ in outcome.left]:
            say(f"left out: {need.name}; {need.without}")
    return _status(still)


def _is_there_now(need: Need, outcome: Outcome, failed: str) -> bool:
    was_chosen = any(need is each for each, _ in outcome.chosen)
    return need.is_there() or (was_chosen and not failed)


def _require_ready(apt: Apt) -> None:
    """Raise Unavailable if this computer or user cannot install anything now."""
    if unfinished := apt.unfinished():
        raise Unavailable(unfinished)
    if os.geteuid() != 0 and sys.stdin.isatty():
        say("root installs packages: sudo may ask for your password (NO_INSTALL=1 leaves it out)")
    apt.rooted()


def _read_lists(apt: Apt) -> None:
    say("reading the package lists")
    if problem := apt.read_lists():
        say(f"the package lists could not be read in full, so older ones are used: {problem}")


def _announce(outcome: Outcome) -> None:
    if outcome.chosen:
        say("installing:")
    for need, choice in outcome.chosen:
        print(f"    {' '.join(choice.packages)}: for {need.name}, {need.purpose}")
    named = {package.split("/")[0] for _, each in outcome.chosen for package in each.packages}
    if more := [package for package in outcome.new if package not in named]:
        print(f"    and what these need: {' '.join(more)}")
    for _, choice in outcome.chosen:
        if choice.units and shutil.which("systemctl"):
            units = " ".join(choice.units)
            print(f"    {choice.packages[0]} stays off; to use it: systemctl unmask {units}")
    for need, reason in outcome.left:
        print(f"    left out: {need.name} ({reason}); {need.without}")
    for line in _own_decision(outcome.left):
        print(f"    {line}")
    sys.stdout.flush()


def _list(apt: Apt, missing: Sequence[Need], *, only_list: bool) -> None:
    """Print what is missing, and the command that installs it on this distribution."""
    say("missing here (nothing is installed, as NO_INSTALL is set):" if only_list else "missing:")
    for need in missing:
        kind = "needed" if need.required else "optional"
        print(f"    {need.name} ({kind}), for {need.purpose}; without it: {need.without}")
    for line in _commands(apt, missing):
        print(f"    {line}")
    sys.stdout.flush()


def _commands(apt: Apt, missing: Sequence[Need]) -> list[str]:
    hints = [need.hint for need in missing if need.hint]
    if apt.works_here() and not apt.unfinished():
        outcome = choose(apt, missing)
        packages = [package for _, choice in outcome.chosen for package in choice.packages]
        lines = [f"{need.name} cannot be installed harmlessly: {why}" for need, why in outcome.left]
        lines += _own_decision(outcome.left)
        if packages:
            command = programs.INSTALLERS["apt"]
            lines.insert(0, f"to install: {command} {' '.join(dict.fromkeys(packages))}")
        return list(dict.fromkeys([*lines, *hints]))
    wanted = [need.program for need in missing if need.program is not None]
    text = _text(Path("/etc/os-release"))
    return [f"to install: {programs.install_command(text, wanted)}", *hints] if wanted else hints


def _own_decision(left: Sequence[tuple[Need, str]]) -> list[str]:
    """Return commands for the user that install parts which set-up must not install."""
    able = [need for need, reason in left if need.required and CHANGES in reason]
    needed = [need.program for need in able if need.program]
    packages = [program.packages["apt"] for program in needed]
    if not packages:
        return []
    command = f"{programs.INSTALLERS['apt']} {' '.join(packages)}"
    hints = [need.hint for need in able if need.hint]
    return [
        f"this is needed; if you accept the change, type as root: {command}",
        *hints,
    ]


def _text(file: Path) -> str:
    try:
        return file.read_text(errors="replace")
    except OSError:
        return ""


def _status(missing: Sequence[Need]) -> int:
    return int(any(need.required for need in missing))


def refresh_kernels(apt: Apt) -> None:
    """Read the package lists if they name no kernel: guests boot the distribution's kernels."""
    if apt.names("^linux-image-"):
        return
    try:
        apt.rooted()
    except Unavailable as problem:
        say(f"apt's lists name no kernel for guests: run `apt-get update` as root ({problem})")
        return
    _read_lists(apt)


def main(words: Sequence[str] | None = None) -> int:
    """Run the command; return its exit status."""
    parser = argparse.ArgumentParser(description="Provide the programs of a make target.")
    parser.add_argument("goal", choices=("quick", "test", "bench", "only"))
    parser.add_argument("package", nargs="?", help="with only: the package of one program")
    parser.add_argument("--for", dest="purpose", default="")
    parser.add_argument("--have", action="append", default=[], metavar="NAME")
    parser.add_argument("--part", choices=("needed", "optional"), help="these alone")
    parser.add_argument("--list", action="store_true")
    asked = parser.parse_args(words)
    apt = Apt()
    only_list = asked.list or bool(os.environ.get("NO_INSTALL"))
    if asked.goal == "only":
        name = asked.package or parser.error("name a package")
        need = required_package(name, asked.purpose)
        return provide(apt, [need], only_list=only_list)
    needs = [need for need in needs_of(asked.goal) if need.name not in asked.have]
    if asked.part:
        needs = [need for need in needs if need.required is (asked.part == "needed")]
    status = provide(apt, needs, only_list=only_list)
    if apt.works_here() and not only_list and asked.part != "needed":
        refresh_kernels(apt)
    return status


if __name__ == "__main__":
    sys.exit(main())
