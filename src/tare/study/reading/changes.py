"""Changes to a study from the command line, made before the study is checked."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

from tare.study.planning.session_plan import without_arms
from tare.study.reading.checking import shown, suggestion
from tare.study.reading.hosting import LABS
from tare.study.reading.yamltext import Path, Problem, dotted, parse_value

SECTIONS = {"arms": "arm", "scenarios": "scenario", "workloads": "workload"}
"""The sections of a study that hold named parts, each with the word for one part."""
ALONE = "alone"
"""The scenario of a study without scenarios."""


@dataclass(frozen=True)
class Changes:
    """The differences from the file.

    Args:
        host: The name of the computer for all arms; empty to keep the study's.
        arms: The arms to keep, in addition to the baseline; empty for all.
        workloads: The labels of the workloads to keep; empty for all.
        scenarios: The scenarios to keep; empty for all.
        blocks: The exact number of blocks to run.
        values: ``KEY=VALUE`` each: a dotted path into the study, and YAML.
        cpus: The CPUs for machines, overriding the study and the hosts file; empty to keep theirs.
        housekeeping: The CPUs for everything else, overriding them as well; empty to keep theirs.
    """

    host: str = ""
    arms: tuple[str, ...] = ()
    workloads: tuple[str, ...] = ()
    scenarios: tuple[str, ...] = ()
    blocks: int | None = None
    values: tuple[str, ...] = ()
    cpus: str = ""
    housekeeping: str = ""

    @property
    def chosen_cpus(self) -> dict[str, str]:
        """The given CPUs, by the equivalent key of a study."""
        given = {"cpus": self.cpus, "housekeeping": self.housekeeping}
        return {key: words for key, words in given.items() if words}

    @property
    def words(self) -> tuple[str, ...]:
        """The options as typed, each with its value, quoted for a shell."""
        given = [("--host", self.host), *(("--set", each) for each in self.values)]
        given += [
            ("--arm", ",".join(self.arms)),
            ("--workload", ",".join(self.workloads)),
            ("--scenario", ",".join(self.scenarios)),
            ("--blocks", "" if self.blocks is None else str(self.blocks)),
            ("--cpus", self.cpus),
            ("--housekeeping", self.housekeeping),
        ]
        return tuple(f"{option} {shlex.quote(value)}" for option, value in given if value)


NONE = Changes()


@dataclass
class ChangedStudy:
    """A study's plain data with changes, and the option that made each.

    Args:
        data: The data, as if from the file.
        options: Path to the option that wrote there.
        problems: The changes that failed.
    """

    data: dict[str, Any]
    options: dict[Path, str] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)

    def option_at(self, path: Path) -> str:
        """Return the option that wrote the value at ``path``; empty if it is from the file."""
        around = [path[:end] for end in range(len(path), 0, -1)]
        return next((self.options[each] for each in around if each in self.options), "")

    def option_below(self, path: Path) -> str:
        """Return the last option that wrote something below ``path``, or an empty string."""
        below = [option for at, option in self.options.items() if at[: len(path)] == path]
        return below[-1] if below else ""


def change(data: Mapping[str, Any], changes: Changes) -> ChangedStudy:
    """Return a study's plain data with ``changes``; the result is checked later, like the file.

    Args:
        data: The file's mapping; it is not modified.
        changes: The changes to make.
    """
    changed = ChangedStudy(deepcopy(dict(data)))
    if changes.host:
        _move(changed, changes.host)
    if changes.blocks is not None:
        option = f"--blocks {changes.blocks}"
        _write(changed, ("blocks", "least"), changes.blocks, option)
        _write(changed, ("blocks", "most"), changes.blocks, option)
    for key, words in changes.chosen_cpus.items():
        _choose_cpus(changed, key, words)
    for text in changes.values:
        _set(changed, text)
    if changes.arms:
        _keep_arms(changed, changes.arms)
    if changes.workloads:
        _keep(changed, "workloads", changes.workloads)
    if changes.scenarios:
        _keep_scenarios(changed, changes.scenarios, asked_for=changes.workloads)
    return changed


def _move(changed: ChangedStudy, host: str) -> None:
    """Move all arms to one host, whatever hosts the study names."""
    changed.data.pop("hosts", None)
    for arm in _named(changed, "arms").values():
        if isinstance(arm, dict):
            arm.pop("on", None)
    changed.data["host"] = host
    changed.options["host",] = f"--host {host}"


def _choose_cpus(changed: ChangedStudy, key: str, words: str) -> None:
    """Make all hosts that the study describes use these CPUs."""
    hosts = changed.data.get("hosts")
    each = list(hosts.values()) if isinstance(hosts, dict) else []
    for host in (changed.data.get("host"), *each):
        if isinstance(host, dict):
            host.pop(key, None)
    plain, problems = parse_value(words, (key,))
    option = f"--{key} {words}"
    changed.problems += [Problem(each.message, each.path, option=option) for each in problems]
    if not problems:
        _write(changed, (key,), plain, option)


# One value


def _set(changed: ChangedStudy, text: str) -> None:
    option = f"--set {text}"
    key, equals, value = text.partition("=")
    path = path_of(key.strip(), changed.data)
    if not equals or not path or "" in path:
        message = "write KEY=VALUE, such as `--set shape.memory=1GiB`"
        changed.problems.append(Problem(message, option=option))
        return
    plain, problems = parse_value(value, path)
    changed.problems += [Problem(each.message, each.path, option=option) for each in problems]
    if not problems:
        _write(changed, path, plain, option)


def path_of(key: str, data: Any) -> Path:
    """Return the path of a dotted key.

    Args:
        key: The key, such as ``scenarios.loaded.neighbours[0].count``. A name with dots is
            recognized if it exists in the study.
        data: The study's plain data.

    Returns:
        The path, with an empty name where the key lacks one.
    """
    path: list[str | int] = []
    here = data
    while key:
        if found := re.match(r"\[(\d+)\]", key):
            index, key = int(found[1]), key[found.end() :]
            path.append(index)
            here = here[index] if isinstance(here, list) and index < len(here) else None
        else:
            name = _first_name(key, here)
            path.append(name)
            if not name:
                break
            here = here.get(name) if isinstance(here, Mapping) else None
            key = key[len(name) :]
        if key.startswith("."):
            key = key[1:]
            path += [] if key else [""]
    return tuple(path)


def _first_name(key: str, here: Any) -> str:
    names = here if isinstance(here, Mapping) else ()
    known = [name for name in names if key == name or key.startswith((f"{name}.", f"{name}["))]
    return max(known, key=len) if known else re.split(r"[.\[]", key, maxsplit=1)[0]


def _write(changed: ChangedStudy, path: Path, value: Any, option: str) -> None:
    """Write a value at ``path``, creating mappings on the way."""
    here: Any = changed.data
    for end, part in enumerate(path, start=1):
        last = end == len(path)
        problem = _unreachable(here, path[:end])
        if not last:
            problem = problem or _unnamed(changed.data, here, path[:end])
        if problem:
            changed.problems.append(Problem(problem, path[:end], option=option))
            return
        if last:
            here[part] = value
        elif isinstance(here, dict):
            here[part] = _keys_of(here.get(part), path[:end])
        here = here[part]
    changed.options[path] = option


def _keys_of(value: Any, path: Path) -> Any:
    """Return the value at ``path`` as a mapping, even if it is missing or a short form."""
    if value is None:
        return {}
    if path == ("lab",) and isinstance(value, str) and value in LABS:
        return dict(LABS[value])
    return value


def _unreachable(here: Any, path: Path) -> str:
    """Return why the last part of ``path`` does not exist in ``here``, or an empty string."""
    part = path[-1]
    if isinstance(here, list):
        if isinstance(part, int) and part < len(here):
            return ""
        return f"{dotted(path[:-1])} is a list of {len(here)}, and its first index is [0]"
    if not isinstance(here, Mapping):
        return f"{dotted(path[:-1])} is {shown(here)}, which has no keys"
    return "" if isinstance(part, str) else f"{dotted(path[:-1])} is not a list"


def _unnamed(data: Mapping[str, Any], here: Mapping[str, Any], path: Path) -> str:
    """Return the message for a change to an unknown arm, scenario or workload, or empty text."""
    if len(path) != 2 or path[0] not in SECTIONS or path[1] in here:
        return ""
    if path == ("scenarios", ALONE) and not data.get("scenarios"):
        return ""
    return f"there is no {SECTIONS[str(path[0])]} {path[1]!r}" + suggestion(path[1], here)


# Some of the names


def _named(changed: ChangedStudy, section: str) -> dict[str, Any]:
    found = changed.data.get(section)
    return found if isinstance(found, dict) else {}


def _keep(changed: ChangedStudy, section: str, wanted: Iterable[str]) -> None:
    """Keep only the wanted names of a section, and report names that do not exist."""
    known = _named(changed, section)
    for name in wanted:
        if name not in known:
            noun = SECTIONS[section]
            message = f"there is no {noun} {name!r}" + suggestion(name, known)
            changed.problems.append(Problem(message, option=f"--{noun} {name}"))
    kept = set(wanted)
    if known:
        changed.data[section] = {name: value for name, value in known.items() if name in kept}


def _keep_arms(changed: ChangedStudy, wanted: tuple[str, ...]) -> None:
    known = _named(changed, "arms")
    matrices = _named(changed, "matrix")
    named = {name: matrices[name] for name in wanted if name in matrices and name not in known}
    if matrices:
        changed.data["matrix"] = named
    kept = {name: None for name in wanted if name not in named}
    bases = (each.get("arm") for each in named.values() if isinstance(each, Mapping))
    kept |= {base: None for base in bases if base in known}
    kept |= {name: None for name in (changed.data.get("baseline"),) if name in known}
    # A twin needs the arm that it repeats.
    for name in list(kept):
        arm = known.get(name)
        if isinstance(arm, Mapping) and arm.get("twin-of") in known:
            kept[arm["twin-of"]] = None
    _keep(changed, "arms", kept)
    changed.data = without_arms(changed.data, set(known) - set(kept))


def _keep_scenarios(
    changed: ChangedStudy, wanted: tuple[str, ...], asked_for: tuple[str, ...]
) -> None:
    named = _named(changed, "scenarios") or {ALONE: {}}
    changed.data["scenarios"] = named
    _keep(changed, "scenarios", wanted)
    left_out = set(named) - set(wanted)
    workloads = _named(changed, "workloads")
    option = f"--scenario {','.join(wanted)}"
    for label, spec in list(workloads.items()):
        listed = spec.get("scenarios") if isinstance(spec, dict) else None
        if not isinstance(listed, list) or not left_out.intersection(map(str, listed)):
            continue
        spec["scenarios"] = [name for name in listed if name not in left_out]
        if spec["scenarios"]:
            continue
        del workloads[label]
        if label in asked_for:
            message = f"{label} is measured in {', '.join(map(str, listed))} only"
            changed.problems.append(Problem(message, option=option))
    if not workloads and not changed.problems:
        changed.problems.append(
            Problem("no workload is measured in these scenarios", option=option)
        )
