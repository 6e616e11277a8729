"""Build a typed study from plain data, part by part, and collect all its errors."""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ValidationError

from tare.study.model.matrix import Design
from tare.study.model.scenario import Scenario
from tare.study.model.sessions import session_faults
from tare.study.model.shape import Shape
from tare.study.model.study import Arm, ArmFrame, Catalog, Study, StudyFrame, WorkloadSpec
from tare.study.planning.release_arms import release_faults
from tare.study.planning.turns import faults_at_once
from tare.study.reading.checking import (
    KeyStyle,
    StudyErrors,
    checked,
    known_keys,
    message_of,
    shown,
    suggestion,
    takes_list,
)
from tare.study.reading.former_options import renamed, vcpus_of, with_present_method
from tare.study.reading.matrices import arms_of
from tare.study.reading.yamltext import Path

MOST_POINTS = 500
_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,39}")
COMPUTED = ("aa", "own_baselines")
"""Keys of a stored study that users do not write."""
_PARTS = ("arms", "scenarios", "workloads")


def build_study(
    data: Mapping[str, Any], catalog: Catalog, style: KeyStyle, findings: StudyErrors
) -> Study | None:
    """Build a study from plain data.

    Args:
        data: The file's mapping, or a stored study.
        catalog: The available platforms and workloads.
        style: The spelling of its keys.
        findings: Collects all errors.

    Returns:
        The study, or None if there are errors.
    """
    return _Builder(catalog, style, findings).study(data)


class _Builder:
    def __init__(self, catalog: Catalog, style: KeyStyle, findings: StudyErrors) -> None:
        self._catalog = catalog
        self._style = style
        self._findings = findings
        self._notices: list[str] = []

    def study(self, data: Mapping[str, Any]) -> Study | None:
        data, notice = with_present_method(data)
        if notice:
            self._notices.append(notice)
        known = known_keys(
            [Study],
            {
                key: value
                for key, value in data.items()
                if key not in _PARTS and (self._style.kebab or key not in COMPUTED)
            },
            (),
            self._style,
            self._findings,
            without=["folder", "left_out", "designs"] if self._style.kebab else [],
        )
        folder = str(self._style.folder or known.pop("folder", ""))
        left_out = known.pop("left_out", {})
        designs = known.pop("designs", {})
        frame = checked(StudyFrame, known, (), self._style, self._findings)
        sections = {part: self._section(data, part) for part in _PARTS}
        shape = frame.shape if frame else Shape.model_validate({})
        arms = self._arms(sections["arms"], shape)
        if frame is not None and self._style.kebab:
            designs = self._add_matrix_arms(frame, sections["arms"], arms)
        scenarios = {
            name: self._scenario(raw, ("scenarios", name))
            for name, raw in sections["scenarios"].items()
        }
        known_scenarios = list(scenarios) or ["alone"]
        workloads = {
            label: self._workload(label, raw, known_scenarios)
            for label, raw in sections["workloads"].items()
        }
        baseline = known.get("baseline")
        if arms and isinstance(baseline, str) and baseline not in sections["arms"]:
            self._findings.add(
                ("baseline",), f"there is no arm {baseline!r}" + suggestion(baseline, arms)
            )
        if frame is not None:
            at_once = faults_at_once(frame.blocks, arms, scenarios)
            others = (*release_faults(frame, arms), *session_faults(frame, arms))
            for path, fault in (*at_once, *others):
                self._findings.add(path, fault)
        if self._findings.found or frame is None:
            return None
        parts: dict[str, Any] = {"arms": arms, "workloads": workloads, "folder": folder}
        parts |= {"left_out": left_out, "designs": designs}
        if scenarios:
            parts["scenarios"] = scenarios
        return self._assemble(frame, parts)

    def _assemble(self, frame: StudyFrame, parts: Mapping[str, Any]) -> Study | None:
        try:
            return Study.model_validate({**dict(frame), **parts}).with_notices(self._notices)
        except ValidationError as error:
            for detail in error.errors(include_url=False):
                self._findings.add(tuple(detail["loc"]), message_of(detail))
            return None

    def _section(self, data: Mapping[str, Any], part: str) -> dict[str, Any]:
        if part not in data:
            if part != "scenarios":
                self._findings.add((part,), f"is missing; add `{part}:` with at least one name")
            return {}
        section = data[part]
        if not isinstance(section, Mapping) or not section:
            self._findings.add((part,), f"must be names with keys and values, not {shown(section)}")
            return {}
        for name in section:
            if not _NAME.fullmatch(name):
                self._findings.add(
                    (part, name),
                    "a name has at most 40 lower-case letters, digits, `-`, `_` and `.`, and "
                    "starts with a letter or digit",
                    key=True,
                )
        return dict(section)

    def _mapping(self, raw: Any, path: Path) -> Mapping[str, Any] | None:
        if raw is None:
            return {}
        if isinstance(raw, Mapping):
            return raw
        self._findings.add(
            path, f"must be keys with values, such as {{key: value}}, not {shown(raw)}"
        )
        return None

    # Arms

    def _arms(self, section: Mapping[str, Any], shape: Shape) -> dict[str, Arm | None]:
        written: dict[str, Mapping[str, Any]] = {}
        for name, raw in section.items():
            mapping = self._mapping(raw, ("arms", name))
            written[name] = {} if mapping is None else self._flat_arm(mapping)
        twin_key = self._style.written("twin_of")
        for name, raw in written.items():
            written[name] = self._renamed(name, raw, written.get(str(raw.get(twin_key)), {}), shape)
        arms: dict[str, Arm | None] = dict.fromkeys(written)
        for name, raw in written.items():
            if isinstance(section[name], Mapping) and twin_key not in raw:
                arms[name] = self._arm(name, raw, shape, self._findings)
            elif section[name] is None:
                self._findings.add(("arms", name, "platform"), "is missing; add it")
        for name, raw in written.items():
            if twin_key in raw:
                arms[name] = self._twin(name, raw, written, arms, shape)
        return arms

    def _add_matrix_arms(
        self, frame: StudyFrame, section: Mapping[str, Any], arms: dict[str, Arm | None]
    ) -> Mapping[str, Design]:
        """Add the arms of the matrices to the arms, and return the designs."""
        if frame.matrix and frame.sessions is not None:
            self._findings.add(
                ("matrix",), "cannot be used with `sessions`; write the arms one by one", key=True
            )
            return {}

        def build(name: str, raw: Mapping[str, Any], findings: StudyErrors) -> Arm | None:
            return self._arm(name, raw, frame.shape, findings)

        written = {name: raw for name, raw in section.items() if isinstance(raw, Mapping)}
        made = arms_of(frame.matrix, written, arms, build, self._findings)
        arms |= made.arms
        return made.designs

    def _flat_arm(self, raw: Mapping[str, Any]) -> Mapping[str, Any]:
        if self._style.kebab:
            return raw
        # A stored arm has its options under a key of their own, and None where it has no override.
        options = raw.get("options")
        own = dict(options) if isinstance(options, Mapping) else {}
        set_keys = {k: v for k, v in raw.items() if k != "options" and v is not None}
        return {**own, **set_keys}

    def _renamed(
        self, name: str, raw: Mapping[str, Any], repeated: Mapping[str, Any], shape: Shape
    ) -> Mapping[str, Any]:
        """Return an arm with its options under their current names."""
        sizes = (raw.get("shape"), repeated.get("shape"), shape.model_dump())
        found = renamed(raw.get("platform", repeated.get("platform")), raw, vcpus_of(*sizes))
        if found.notice and self._style.kebab:
            self._notices.append(f"arms.{name}: {found.notice}")
        for option, fault in found.faults:
            self._findings.add(("arms", name, option), fault)
        return found.options

    def _arm(
        self, name: str, raw: Mapping[str, Any], shape: Shape, findings: StudyErrors
    ) -> Arm | None:
        path: Path = ("arms", name)
        platform = raw.get("platform")
        model = self._catalog.platforms.get(platform) if isinstance(platform, str) else None
        if "platform" in raw and model is None:
            findings.add((*path, "platform"), self._catalog.without("platform", platform))
            return None
        if model is None:
            findings.add((*path, "platform"), "is missing; add it")
            anything: list[type[BaseModel]] = [ArmFrame, *self._catalog.platforms.values()]
            known_keys(anything, raw, path, self._style, findings)
            return None
        known = known_keys(
            [ArmFrame, model], raw, path, self._style, findings, instead=model.instead
        )
        common = {key: value for key, value in known.items() if key in ArmFrame.model_fields}
        if isinstance(common.get("shape"), Mapping):
            common["shape"] = {**shape.model_dump(), **common["shape"]}
        own = {key: value for key, value in known.items() if key not in ArmFrame.model_fields}
        frame = checked(ArmFrame, common, path, self._style, findings)
        options = checked(model, own, path, self._style, findings)
        if frame is None or options is None:
            return None
        if self._style.kebab:
            for option, fault in options.faults(self._style.folder is not None):
                findings.add((*path, self._style.written(option)), fault)
        return Arm.model_validate({**frame.__dict__, "options": options})

    def _twin(
        self,
        name: str,
        raw: Mapping[str, Any],
        written: Mapping[str, Mapping[str, Any]],
        arms: Mapping[str, Arm | None],
        shape: Shape,
    ) -> Arm | None:
        key = self._style.written("twin_of")
        path: Path = ("arms", name, key)
        target = raw[key]
        others = [other for other in written if other != name and key not in written[other]]
        if not isinstance(target, str) or target not in others:
            why = f"{shown(target)} is not an arm" if target != name else "names itself"
            if isinstance(target, str) and target in written and target != name:
                why = f"{shown(target)} is a twin too"
            self._findings.add(path, why + suggestion(target, others))
            return None
        theirs = written[target].get("platform")
        if raw.get("platform", theirs) != theirs:
            self._report_difference(name, target, "platform", raw["platform"], theirs)
            return None
        own = StudyErrors()
        twin = self._arm(name, {**written[target], **raw}, shape, own)
        for (found, message), at_key in own.found.items():
            # Errors of the other arm are reported there.
            if len(found) < 3 or found[2] in raw:
                self._findings.add(found, message, key=at_key)
        original = arms[target]
        if twin is None or original is None:
            return None
        self._require_same(name, target, raw, twin, original)
        return twin

    def _require_same(
        self, name: str, target: str, raw: Mapping[str, Any], twin: Arm, original: Arm
    ) -> None:
        for key in raw:
            field = key.replace("-", "_") if self._style.kebab else key
            if field == "twin_of":
                continue
            ours, theirs = (arm.value_of(field) for arm in (twin, original))
            if ours != theirs:
                self._report_difference(name, target, key, ours, theirs)

    def _report_difference(self, name: str, target: str, key: str, ours: Any, theirs: Any) -> None:
        self._findings.add(
            ("arms", name, key),
            f"a twin is identical to the arm that it repeats, but this is {shown(ours)} here and "
            f"{shown(theirs)} in {target}; remove the line",
        )

    # Scenarios

    def _scenario(self, raw: Any, path: Path) -> Scenario | None:
        mapping = self._mapping(raw, path)
        if mapping is None:
            return None
        known = known_keys([Scenario], mapping, path, self._style, self._findings)
        if (scenario := checked(Scenario, known, path, self._style, self._findings)) is None:
            return None
        neighbours = tuple(
            neighbour.model_copy(
                update={"parameters": self._load(neighbour.load, neighbour.parameters, where)}
            )
            for index, neighbour in enumerate(scenario.neighbours)
            for where in [(*path, "neighbours", index)]
        )
        for role in scenario.machines:
            if role not in self._catalog.roles:
                self._findings.add(
                    (*path, "machines", role),
                    f"no workload uses a machine {role!r}" + suggestion(role, self._catalog.roles),
                    key=True,
                )
        return scenario.model_copy(update={"neighbours": neighbours})

    def _load(self, name: str, parameters: Mapping[str, Any], path: Path) -> dict[str, Any]:
        model = self._catalog.workloads.get(name)
        if model is None:
            self._findings.add((*path, "load"), self._catalog.without("workload", name))
            return {}
        where = (*path, "parameters")
        known = known_keys([model], parameters, where, self._style, self._findings)
        valid = checked(model, known, where, self._style, self._findings)
        return valid.model_dump(mode="json", exclude_unset=True) if valid else {}

    # Workloads

    def _workload(self, label: str, raw: Any, scenarios: list[str]) -> WorkloadSpec | None:
        path: Path = ("workloads", label)
        mapping = self._mapping(raw, path)
        if mapping is None:
            return None
        name = mapping.get("workload", label)
        model = self._catalog.workloads.get(name) if isinstance(name, str) else None
        if model is None:
            at: Path = (*path, "workload") if "workload" in mapping else path
            self._findings.add(
                at,
                self._catalog.without("workload", name),
                key="workload" not in mapping,
            )
            return None
        if name in self._catalog.neighbours_only:
            self._findings.add(
                (*path, "workload") if "workload" in mapping else path,
                f"{name} ends with a subject, so it cannot be measured itself; make it a "
                f"neighbour: `scenarios: {{loaded: {{neighbours: [{{load: {name}}}]}}}}`",
                key="workload" not in mapping,
            )
            return None
        stored = mapping.get("points") if not self._style.kebab else None
        if stored is not None and not isinstance(stored, list):
            self._findings.add((*path, "points"), f"must be a list, not {shown(stored)}")
            return None
        written = {k: v for k, v in mapping.items() if stored is None or k != "points"}
        known = known_keys(
            [WorkloadSpec, model], written, path, self._style, self._findings, without=["points"]
        )
        common = {key: value for key, value in known.items() if key in WorkloadSpec.model_fields}
        own = {key: value for key, value in known.items() if key not in WorkloadSpec.model_fields}
        spec = checked(
            WorkloadSpec, {**common, "workload": name}, path, self._style, self._findings
        )
        points = (
            [checked(model, point, path, self._style, self._findings) for point in stored]
            if stored is not None
            else self._points(model, own, path)
        )
        if spec is None or None in points:
            return None
        self._require_scenarios(spec, scenarios, path)
        plain = tuple(
            point.model_dump(mode="json", exclude_unset=True) for point in points if point
        )
        return spec.model_copy(update={"points": plain})

    def _require_scenarios(self, spec: WorkloadSpec, known: list[str], path: Path) -> None:
        for index, scenario in enumerate(spec.scenarios or ()):
            if scenario not in known:
                self._findings.add(
                    (*path, "scenarios", index),
                    f"there is no scenario {scenario!r}" + suggestion(scenario, known),
                )

    def _points(
        self, model: type[BaseModel], own: Mapping[str, Any], path: Path
    ) -> list[BaseModel | None]:
        """Expand lists of scalar parameters into all combinations."""
        axes = {name: self._axis(model, name, value) for name, value in own.items()}
        count = 1
        for name, axis in axes.items():
            count *= len(axis)
            if not axis:
                self._findings.add(
                    (*path, self._style.written(name)), "is an empty list; give at least one value"
                )
        if count > MOST_POINTS:
            self._findings.add(
                path, f"{count} combinations of parameters; at most {MOST_POINTS} are allowed"
            )
            return [None]
        points = []
        seen: dict[str, Path] = {}
        for chosen in itertools.product(*axes.values()):
            places = {name: where for name, (where, _) in zip(axes, chosen, strict=True)}
            values = {name: value for name, (_, value) in zip(axes, chosen, strict=True)}
            point = self._point(model, values, places, path)
            points.append(point)
            if point is not None:
                identity = point.model_dump_json()
                if identity in seen:
                    self._findings.add(path, f"the cell {shown(values)} is listed twice")
                seen[identity] = path
        return points

    def _axis(self, model: type[BaseModel], name: str, value: Any) -> list[tuple[Path, Any]]:
        key = self._style.written(name)
        nested = isinstance(value, list) and bool(value) and isinstance(value[0], list)
        if isinstance(value, list) and (nested or not takes_list(model, name)):
            return [((key, index), item) for index, item in enumerate(value)]
        return [((key,), value)]

    def _point(
        self,
        model: type[BaseModel],
        values: Mapping[str, Any],
        places: Mapping[str, Path],
        path: Path,
    ) -> BaseModel | None:
        found = StudyErrors()
        point = checked(model, values, (), KeyStyle(kebab=False, folder=self._style.folder), found)
        for where, message in found.found:
            head, rest = (str(where[0]), where[1:]) if where else ("", ())
            place = places.get(head, (self._style.written(head),) if head else ())
            self._findings.add((*path, *place, *rest), message)
        return point
