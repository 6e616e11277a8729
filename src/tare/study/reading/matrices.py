"""Make arms from the matrices of a study: plan each design, and describe every run as an arm."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

from tare.study.model.matrix import (
    MOST_ARMS,
    MOST_LEVELS,
    Design,
    DesignRun,
    Matrix,
    Setting,
)
from tare.study.model.study import Arm, ArmFrame
from tare.study.planning.factorial import (
    MOST_RUNS_LOG2,
    Fraction,
    full_runs,
    single_runs,
    smallest_fraction,
)
from tare.study.reading.checking import StudyErrors, shown, suggestion
from tare.study.reading.yamltext import Path

LONGEST_NAME = 40
Build = Callable[[str, Mapping[str, Any], StudyErrors], Arm | None]
"""Types one arm from its name and plain data."""


@dataclass(frozen=True)
class Level:
    """One value of a setting: its place in the file, its keys, and the arm that has only it."""

    place: Path
    keys: Mapping[str, Any]
    words: str


@dataclass(frozen=True)
class Made:
    """The arms that matrices made, and their designs."""

    arms: Mapping[str, Arm]
    designs: Mapping[str, Design]


def arms_of(
    matrices: Mapping[str, Matrix],
    written: Mapping[str, Mapping[str, Any]],
    arms: Mapping[str, Arm | None],
    build: Build,
    findings: StudyErrors,
) -> Made:
    """Return the arms of all matrices; equal changes in two matrices share one arm.

    Args:
        matrices: The matrices by name.
        written: The plain data of the study's arms.
        arms: The study's arms by name; None for those with errors.
        build: Types an arm.
        findings: Collects the errors.
    """
    made: dict[str, Arm] = {}
    designs = {}
    shared: dict[tuple[str, str], str] = {}
    for name, matrix in matrices.items():
        maker = _Maker(name, matrix, written, arms, build, findings, made, shared)
        design = maker.design()
        if design is not None:
            designs[name] = design
    return Made(made, designs)


def without_matrices(data: Mapping[str, Any], left: Collection[str]) -> Mapping[str, Any]:
    """Return a study's plain data without the matrices of arms that were left out.

    Args:
        data: The study as written.
        left: The arms that were left out.
    """
    written = data.get("matrix")
    if not isinstance(written, Mapping) or not left:
        return data
    kept = {
        name: matrix
        for name, matrix in written.items()
        if not isinstance(matrix, Mapping) or matrix.get("arm") not in left
    }
    return {**data, "matrix": kept}


class _Maker:
    def __init__(
        self,
        name: str,
        matrix: Matrix,
        written: Mapping[str, Mapping[str, Any]],
        arms: Mapping[str, Arm | None],
        build: Build,
        findings: StudyErrors,
        made: dict[str, Arm],
        shared: dict[tuple[str, str], str],
    ) -> None:
        self.name, self.matrix = name, matrix
        self.written, self.arms = written, arms
        self.build, self.findings = build, findings
        self.made, self.shared = made, shared
        self.path: Path = ("matrix", name)

    def design(self) -> Design | None:
        """Return the design with an arm for every run, or None if there are errors."""
        matrix = self.matrix
        if matrix.arm not in self.arms:
            fault = f"there is no arm {matrix.arm!r}" + suggestion(matrix.arm, self.arms)
            self.findings.add((*self.path, "arm"), fault)
            return None
        base = self.arms[matrix.arm]
        if base is None:
            return None
        if base.twin_of is not None:
            fault = f"{matrix.arm} is a twin; name the arm that it repeats, {base.twin_of}"
            self.findings.add((*self.path, "arm"), fault)
            return None
        levels = [self._levels(key, base) for key in matrix.settings]
        named = self._named()
        planned = self._plan([len(each) for each in levels], named)
        if self.findings.under(self.path) or planned is None:
            return None
        core, alone, fraction = planned
        settings = tuple(
            Setting(
                name=key,
                levels=tuple(level.words for level in own),
                values=tuple(dict(level.keys) for level in own),
            )
            for key, own in zip(matrix.settings, levels, strict=True)
        )
        runs = []
        for number, (run, is_alone) in enumerate(
            chain(((run, False) for run in core), ((run, True) for run in alone)), start=1
        ):
            arm = self._arm(run, settings, levels, number)
            if arm is None:
                return None
            runs.append(DesignRun(arm=arm, levels=run, alone=is_alone))
        return Design(
            arm=matrix.arm,
            design=matrix.design,
            settings=settings,
            runs=tuple(runs),
            resolution=fraction.resolution if fraction else None,
            generators=fraction.generators if fraction else (),
            aliases=fraction.aliases if fraction else (),
            named=named,
        )

    def _levels(self, key: str, base: Arm) -> list[Level]:
        """Return the values of one setting, each tried alone on the arm."""
        raw = self.matrix.settings[key]
        path = (*self.path, "settings", key)
        if not 2 <= len(raw) <= MOST_LEVELS:
            self.findings.add(
                path,
                f"needs 2 to {MOST_LEVELS} values, the arm's own first; the number here is "
                f"{len(raw)}",
            )
            return []
        levels = []
        for index, (place, words, keys) in enumerate(_written_levels(path, key, raw)):
            own = StudyErrors()
            arm = self.build(self.matrix.arm, self._with([keys]), own)
            self._report(own, place, keys)
            if arm is None or own.found:
                continue
            if index == 0 and arm != base:
                self.findings.add(
                    place,
                    f"the first value must be the arm's own: {self.matrix.arm} has "
                    f"{_words_of(base, keys)}, not {words or _words_of(arm, keys)}",
                )
                break
            if index and arm == base:
                self.findings.add(place, f"does not change {self.matrix.arm}; remove it")
            levels.append(Level(place, keys, words or _words_of(arm, keys)))
        return levels

    def _report(self, own: StudyErrors, place: Path, keys: Mapping[str, Any]) -> None:
        """Report the errors of an arm at the value that caused them, once each."""
        for (found, message), at_key in own.found.items():
            below = found[2:]
            head = str(below[0]) if below else ""
            named = next((key for key in keys if key.split(".")[0] == head), None)
            # A named value has its keys below it; an unnamed value is itself the place.
            inner = (named,) if named is not None and isinstance(place[-1], str) else ()
            text = message if named is not None else f"{head}: {message}" if head else message
            if at_key and named is not None:
                place_, at_key = (*place, *inner) if inner else place[:-1], True
                self.findings.add(place_, text, key=True)
            else:
                self.findings.add((*place, *inner), text)

    def _with(self, changes: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
        """Return the plain data of the arm with some keys changed."""
        arm: dict[str, Any] = dict(self.written[self.matrix.arm])
        for keys in changes:
            for key, value in keys.items():
                _put(arm, key.split("."), value)
        return arm

    def _named(self) -> tuple[tuple[int, int], ...]:
        names = list(self.matrix.settings)
        found = []
        for index, pair in enumerate(self.matrix.interactions):
            path = (*self.path, "interactions", index)
            unknown = [name for name in pair if name not in names]
            if unknown:
                fault = f"there is no setting {unknown[0]!r}" + suggestion(unknown[0], names)
                self.findings.add(path, fault)
            elif pair[0] == pair[1]:
                self.findings.add(path, "an interaction needs two different settings")
            else:
                one, other = sorted(map(names.index, pair))
                found.append((one, other))
        if self.matrix.design != "fractional":
            for key in {"interactions", "resolution"} & self.matrix.model_fields_set:
                self.findings.add((*self.path, key), "needs `design: fractional`", key=True)
        return tuple(dict.fromkeys(found))

    def _plan(
        self, counts: Sequence[int], named: tuple[tuple[int, int], ...]
    ) -> tuple[Sequence[tuple[int, ...]], Sequence[tuple[int, ...]], Fraction | None] | None:
        """Return the core's runs, the runs that change one setting, and the fraction if any."""
        if 0 in counts:
            return None
        default = (0,) * len(counts)
        fraction = None
        core: Sequence[tuple[int, ...]]
        alone: Sequence[tuple[int, ...]]
        if self.matrix.design == "full":
            core, alone = full_runs(counts) if _product(counts) <= MOST_ARMS else (), ()
            total = _product(counts)
        elif self.matrix.design == "one-at-a-time":
            core, alone = (default,), single_runs(counts)
            total = 1 + len(alone)
        else:
            fraction = smallest_fraction(len(counts), self.matrix.resolution, named)
            if fraction is None:
                self.findings.add(
                    self.path,
                    f"needs more than {2**MOST_RUNS_LOG2} combinations; use fewer settings or "
                    "interactions, or two matrices",
                    key=True,
                )
                return None
            core, alone = fraction.runs, single_runs(counts, beyond=2)
            total = len(core) + len(alone)
        if total > MOST_ARMS:
            self.findings.add(
                self.path,
                f"{total} combinations; at most {MOST_ARMS} are allowed: use `design: fractional`, "
                "or fewer values",
                key=True,
            )
            return None
        return core, alone, fraction

    def _arm(
        self,
        run: tuple[int, ...],
        settings: Sequence[Setting],
        levels: Sequence[Sequence[Level]],
        number: int,
    ) -> str | None:
        """Return the name of a run's arm, which is made unless it exists."""
        changes = [own[level] for own, level in zip(levels, run, strict=True) if level]
        if not changes:
            return self.matrix.arm
        plain = self._with([change.keys for change in changes])
        identity = (self.matrix.arm, json.dumps(plain, sort_keys=True, default=str))
        if identity in self.shared:
            return self.shared[identity]
        own = StudyErrors()
        arm = self.build(self.matrix.arm, plain, own)
        if arm is None or own.found:
            words = ", ".join(
                f"{setting.name} {setting.levels[level]}"
                for setting, level in zip(settings, run, strict=True)
                if level
            )
            why = next(message for _, message in own.found)
            self.findings.add(
                self.path,
                f"the combination {words} is impossible: {why}; use another design, or put these "
                "settings into one with named values",
                key=True,
            )
            return None
        name = self._name(run, settings, number)
        self.made[name] = arm
        self.shared[identity] = name
        return name

    def _name(self, run: tuple[int, ...], settings: Sequence[Setting], number: int) -> str:
        changed = [
            f"{setting.name.rpartition('.')[2]}-{setting.levels[level]}"
            for setting, level in zip(settings, run, strict=True)
            if level
        ]
        alone = re.sub(r"[^a-z0-9._-]+", "-", f"{self.matrix.arm}.{changed[0]}".lower()).strip("-")
        name = alone if len(changed) == 1 else ""
        while not name or len(name) > LONGEST_NAME or name in self.arms or name in self.made:
            name = f"{self.name[: LONGEST_NAME - 5]}-{number:02}"
            number += MOST_ARMS
        return name


def _written_levels(
    path: Path, key: str, raw: Sequence[Any] | Mapping[str, Mapping[str, Any]]
) -> Iterator[tuple[Path, str, Mapping[str, Any]]]:
    """Return the place, the name (empty for a plain value) and the keys of each value."""
    if isinstance(raw, Mapping):
        yield from (((*path, name), name, keys) for name, keys in raw.items())
    else:
        yield from (((*path, index), "", {key: value}) for index, value in enumerate(raw))


def _put(arm: dict[str, Any], parts: Sequence[str], value: Any) -> None:
    """Set a key, which may be nested; copy the mappings on the way to it."""
    first, *rest = parts
    if not rest:
        arm[first] = value
        return
    inner = arm.get(first)
    copy = dict(inner) if isinstance(inner, Mapping) else {}
    _put(copy, rest, value)
    arm[first] = copy


def _words_of(arm: Arm, keys: Mapping[str, Any]) -> str:
    """Return the values that an arm has for some keys, as a study writes them."""
    return ", ".join(_word(_value(arm, key)) for key in keys) or "the default"


def _value(arm: Arm, key: str) -> Any:
    first, *rest = [part.replace("-", "_") for part in key.split(".")]
    holder = arm if first in ArmFrame.model_fields else arm.options
    found: Any = holder.model_dump(mode="json").get(first)
    for part in rest:
        found = found.get(part) if isinstance(found, Mapping) else None
    return found


def _word(value: Any) -> str:
    if value is None:
        return "default"
    if isinstance(value, bool | int | float):
        return json.dumps(value)
    return value if isinstance(value, str) else shown(value)


def _product(counts: Sequence[int]) -> int:
    total = 1
    for count in counts:
        total *= count
    return total
