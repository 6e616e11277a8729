"""Programs, files and raw arguments that a study passes to hosts.

A user can only review a study from elsewhere if its effects are visible. So a plan lists every
program, file and raw argument that a study names. Whatever may act on a host beyond Tare's own
machines there also needs ``--allow-host-access`` on the command line: a study cannot set that.
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
class HostAccess:
    """One thing that a study passes to a host.

    Args:
        keys: Its key in the study.
        value: Its value in the study.
        effect: Its actual or possible effect on the host.
        restricted: Whether the command line must allow it.
    """

    keys: Keys
    value: str
    effect: str
    restricted: bool

    @property
    def words(self) -> str:
        """The key, the value and the effect in one line."""
        return f"{'.'.join(map(str, self.keys))}: `{self.value}` {self.effect}"


def list_host_access(study: Study) -> tuple[HostAccess, ...]:
    """Return everything that a study passes to its hosts, in the order of the study."""
    found = (*_lab_access(study), *_arm_access(study), *_workload_access(study))
    return tuple({each.words: each for each in found}.values())


def require_allowed(study: Study, path: Path, *, allowed: bool) -> None:
    """Check that the command line allows the restricted host access of a study.

    Args:
        study: The study.
        path: Its file, for the message's line.
        allowed: Whether the command line has :data:`ALLOWING`.

    Raises:
        InputError: It is not allowed; the message names every place in the study.
    """
    refused = () if allowed else tuple(each for each in list_host_access(study) if each.restricted)
    if refused:
        found = [(each.keys, f"`{each.value}` {each.effect}") for each in refused]
        hint = f"remove it; or, if you trust this study with the host, add {ALLOWING}"
        raise wrong_in_study(path, found, hint)


def lines_for_plan(study: Study, path: Path) -> tuple[str, ...]:
    """Return the lines on host access that a plan shows.

    For a study that comes with Tare these are only the restricted ones.

    Args:
        study: The study, with the changes of the command line.
        path: Its file.
    """
    listed = list_host_access(study)
    if path.resolve().parent == FOLDER.resolve():
        listed = tuple(each for each in listed if each.restricted)
    return tuple(
        f"{each.words}{f' (a run needs {ALLOWING})' if each.restricted else ''}" for each in listed
    )


def _lab_access(study: Study) -> Iterator[HostAccess]:
    if study.lab.qemu is not None:
        yield HostAccess(("lab", "qemu"), study.lab.qemu, _PROGRAM_OF_LAB, restricted=True)
    for key, file in (("xen", study.lab.xen), ("kernel", study.lab.kernel)):
        if file is not None:
            yield HostAccess(("lab", key), file, "is booted by the lab", restricted=False)


def _arm_access(study: Study) -> Iterator[HostAccess]:
    platforms = installed().platforms
    for name, arm in study.arms.items():
        if arm.twin_of is not None or arm.platform not in platforms:
            continue
        for each in platforms[arm.platform].host_access(arm.options):
            yield HostAccess(("arms", name, each.option), each.value, each.effect, restricted=True)


def _workload_access(study: Study) -> Iterator[HostAccess]:
    kinds = installed().workloads
    for label, spec in study.workloads.items():
        kind = kinds[spec.workload]
        for point in spec.points:
            parameters = kind.parameters.model_validate(dict(point))
            if words := kind.program_of_study(parameters):
                effect = "is run in every machine of the study, the bare host included"
                yield HostAccess(("workloads", label), shlex.join(words), effect, restricted=False)
            for target, source in kind.adds(parameters).files.items():
                effect = f"is copied into the machines as {target}"
                keys = ("workloads", label, "toolbox", "files", target)
                yield HostAccess(keys, str(source), effect, restricted=False)
