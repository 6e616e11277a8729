"""What a study's own text hands to a host: shown in the plan, and allowed on the command line.

A study from elsewhere is read like a script, but only if it shows what it does. So a plan lists
every program, file and raw argument that a study names. Whatever may act on a host outside of what
Tare itself makes there, unconfined, also needs ``--allow-host-access``: no study can say that.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tare.registry import installed
from tare.study.model.study import Study
from tare.study.reading.load import wrong_in_study
from tare.study.reading.shipped import FOLDER
from tare.study.reading.yamltext import Path as Keys

ALLOWING = "--allow-host-access"
_PROGRAM_OF_LAB = "is run on this computer, as the lab's emulator"


@dataclass(frozen=True)
class Handed:
    """One thing that a study hands to a host.

    Args:
        keys: Where it is in the study.
        value: What the study says there.
        effect: What it does, or may do, on the host.
        asks: Whether the command line must allow it.
    """

    keys: Keys
    value: str
    effect: str
    asks: bool

    @property
    def words(self) -> str:
        """It in one line."""
        return f"{'.'.join(map(str, self.keys))}: `{self.value}` {self.effect}"


def handed_to_hosts(study: Study) -> tuple[Handed, ...]:
    """Return all that a study's own text hands to its hosts, in the order of the study."""
    found = (*_of_lab(study), *_of_arms(study), *_of_workloads(study))
    return tuple({each.words: each for each in found}.values())


def require_allowed(study: Study, path: Path, *, allowed: bool) -> None:
    """See that the command line allows what the study asks of its hosts.

    Args:
        study: The study.
        path: Its file, for the message's line.
        allowed: Whether the command line says :data:`ALLOWING`.

    Raises:
        InputError: It does not; the message names every place in the study.
    """
    asking = () if allowed else tuple(each for each in handed_to_hosts(study) if each.asks)
    if asking:
        found = [(each.keys, f"`{each.value}` {each.effect}") for each in asking]
        hint = f"remove it; or, if you trust this study with the host, add {ALLOWING}"
        raise wrong_in_study(path, found, hint)


def lines_for_plan(study: Study, path: Path) -> tuple[str, ...]:
    """Return what a plan shows of it; nothing for the studies that come with Tare, unchanged.

    Args:
        study: The study, with what the command line changes of it.
        path: Its file.
    """
    handed = handed_to_hosts(study)
    if path.resolve().parent == FOLDER.resolve():
        handed = tuple(each for each in handed if each.asks)
    return tuple(
        f"{each.words}{f' (a run needs {ALLOWING})' if each.asks else ''}" for each in handed
    )


def _of_lab(study: Study) -> Iterator[Handed]:
    if study.lab.qemu is not None:
        yield Handed(("lab", "qemu"), study.lab.qemu, _PROGRAM_OF_LAB, asks=True)
    for key, file in (("xen", study.lab.xen), ("kernel", study.lab.kernel)):
        if file is not None:
            yield Handed(("lab", key), file, "is booted by the lab", asks=False)


def _of_arms(study: Study) -> Iterator[Handed]:
    platforms = installed().platforms
    for name, arm in study.arms.items():
        if arm.twin_of is not None or arm.platform not in platforms:
            continue
        for each in platforms[arm.platform].host_access(arm.options):
            yield Handed(("arms", name, each.option), each.value, each.effect, asks=True)


def _of_workloads(study: Study) -> Iterator[Handed]:
    kinds = installed().workloads
    for label, spec in study.workloads.items():
        kind = kinds[spec.workload]
        for point in spec.points:
            parameters = kind.parameters.model_validate(dict(point))
            if words := kind.program_of_study(parameters):
                effect = "is run in every machine of the study, the bare host included"
                yield Handed(("workloads", label), shlex.join(words), effect, asks=False)
            for place, source in kind.adds(parameters).files.items():
                effect = f"is copied into the machines as {place}"
                keys = ("workloads", label, "toolbox", "files", place)
                yield Handed(keys, str(source), effect, asks=False)
