"""Published values as data: a paper's tables, where each is in the paper, and how to load them.

A reference is a YAML file in this folder. The file has the values as they are printed, with their
unit; here they are in SI units. They are shown next to a run's own values and enter no estimate.
"""

from __future__ import annotations

from importlib import resources
from pathlib import Path as FilePath
from typing import Any, Literal

from pydantic import Field, model_validator

from tare.errors import InputError
from tare.references.exhibits import Exhibit
from tare.references.printed import Fact, ReferencePart, Unit, as_written, in_si
from tare.study.reading.checking import KeyStyle, StudyErrors, checked, known_keys, suggestion
from tare.study.reading.yamltext import Problem, StudyError, parse


class PublishedArm(ReferencePart):
    """What was measured, as the source calls it."""

    label: str = Field(min_length=1, description="The row's name in the source.")
    counterparts: tuple[dict[str, str | float | bool | None], ...] = Field(
        (),
        description="Which arms of a run are like it: `platform`, and options of that platform as "
        "in a study; a time in seconds.",
    )
    none: str = Field(
        "", description="Why a run has no such arm, where the default reason does not suffice."
    )


class PublishedNeighbours(ReferencePart):
    """The machines that loaded the host in a published scenario."""

    load: str
    count: int = Field(ge=1)
    cpus: Literal["any", "same", "other"]


class PublishedScenario(ReferencePart):
    """A scenario of the source, in Tare's words."""

    number: int = Field(ge=1, description="Its number in the source.")
    section: str = ""
    subject: Literal["any", "pinned"]
    any_place: bool = Field(
        default=False,
        description="Whether a run's scenario may place the subject otherwise: where it was alone "
        "and the source does not compare places.",
    )
    vcpus: int | None = Field(
        default=None,
        ge=1,
        description="How many the subject had, where the source compares such numbers.",
    )
    slaves: int | None = Field(
        default=None, ge=1, description="How many a cluster on one host had, where it was one."
    )
    neighbours: PublishedNeighbours | None = None
    remark: str = ""


class PublishedTable(ReferencePart):
    """One table of the source.

    ``rows`` holds SI values by arm, one for each of ``columns``; ``lost`` says of arms why they
    have no values. Without ``scenario`` it belongs to none, or it is not known to which.
    """

    table: int | None = Field(None, ge=1, description="Its number in the source.")
    place: str = Field("", description="What the page calls it, if it has no number.")
    section: str = ""
    scenario: str | None = None
    workload: str
    metric: str
    shows: str = Field("", description="What the source calls the metric.")
    unit: Unit = "s"
    columns: tuple[dict[str, int | float | str], ...] = Field(
        min_length=1, description="Parameters of the workload, column by column."
    )
    rows: dict[str, tuple[float, ...]] = Field(min_length=1)
    printed: dict[str, tuple[str, ...]] = Field(
        default_factory=dict, description="The rows as the source prints them."
    )
    lost: dict[str, str] = Field(default_factory=dict)
    remark: str = ""

    @model_validator(mode="before")
    @classmethod
    def _convert_to_si(cls, data: Any) -> Any:
        if not isinstance(data, dict) or not isinstance(data.get("rows"), dict):
            return data
        unit, columns = data.get("unit", "s"), data.get("columns")
        rows = {
            arm: tuple(in_si(value, unit) for value in row) if isinstance(row, list) else row
            for arm, row in data["rows"].items()
        }
        printed = {
            arm: tuple(as_written(str(value)) for value in row)
            for arm, row in data["rows"].items()
            if isinstance(row, list)
        }
        return {
            **data,
            "rows": rows,
            "printed": printed,
            "columns": tuple(columns) if isinstance(columns, list) else columns,
        }

    @property
    def name(self) -> str:
        """The table's citation: ``Table 3``, or the name that the page uses."""
        return f"Table {self.table}" if self.table else self.place

    def is_shown_by(self, exhibit: Exhibit) -> bool:
        """Return whether ``exhibit`` is this table."""
        if exhibit.place or self.place:
            return exhibit.place == self.place
        return exhibit.table == str(self.table)


class Reference(ReferencePart):
    """Everything one source published that this project compares with."""

    reference: str = Field(pattern=r"^[a-z0-9][a-z0-9-]*$")
    title: str
    authors: tuple[str, ...] = Field(min_length=1)
    published: str
    reading: str = Field("", description="What a reader must know of all its values.")
    studies: tuple[str, ...] = Field(
        (), description="The shipped studies whose runs are compared with it."
    )
    no_study: str = Field("", description="Why there is none, for the report.")
    machine: dict[str, str] = Field(default_factory=dict)
    baseline: str | None = Field(
        None, description="The bare machine's arm; none where the source's tables have none."
    )
    baseline_alone: bool = Field(
        False, description="Whether the baseline was measured without neighbours throughout."
    )
    arms: dict[str, PublishedArm] = Field(min_length=1)
    scenarios: dict[str, PublishedScenario] = Field(default_factory=dict)
    tables: tuple[PublishedTable, ...] = ()
    exhibits: tuple[Exhibit, ...] = Field(
        (), description="All tables and figures in the source's order, for a page laid out like it."
    )
    facts: dict[str, Fact] = Field(default_factory=dict)


def references_folder() -> FilePath:
    """Return the folder of the references."""
    return FilePath(str(resources.files("tare") / "references"))


def known_references() -> tuple[str, ...]:
    """Return the names of all references."""
    return tuple(sorted(path.stem for path in references_folder().glob("*.yaml")))


def load_reference(name: str) -> Reference:
    """Return the reference called ``name``.

    Raises:
        InputError: There is no such reference, or its file has an error.
    """
    known = known_references()
    if name not in known:
        raise InputError(
            f"there is no reference {name!r}{_close(name, known)}",
            f"known references: {', '.join(known) or 'none'}",
        )
    path = references_folder() / f"{name}.yaml"
    try:
        content = path.read_bytes()
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from None
    reference = parse_reference(content, str(path))
    if reference.reference != name:
        raise InputError(f"{path}: reference: is {reference.reference!r}", f"write {name!r}")
    return reference


def _close(name: str, known: tuple[str, ...]) -> str:
    text = suggestion(name, known)
    return text if text.startswith("; did") else ""


def parse_reference(content: bytes, name: str) -> Reference:
    """Return the reference in the bytes of its file.

    Args:
        content: YAML text in UTF-8.
        name: The file's name, for messages.

    Raises:
        InputError: The file has errors; one line per problem: file, line, column, key, message.
    """
    document = parse(content, name)
    findings, style = StudyErrors(), KeyStyle(kebab=False)
    data = known_keys([Reference], document.data, (), style, findings)
    reference = checked(Reference, data, (), style, findings)
    if reference is not None:
        _check_names(reference, findings)
    problems = document.problems + [
        Problem(message, path, document.place_of(path, key=key))
        for (path, message), key in findings.found.items()
    ]
    if problems or reference is None:
        raise StudyError(name, problems)
    return reference


def _check_names(reference: Reference, findings: StudyErrors) -> None:
    if not reference.tables and not reference.facts:
        findings.add((), "has neither tables nor facts")
    if bool(reference.studies) == bool(reference.no_study):
        findings.add((), "needs either `studies`, or `no_study` with the reason why there is none")
    if reference.baseline is not None and reference.baseline not in reference.arms:
        findings.add(
            ("baseline",), f"is not an arm{suggestion(reference.baseline, reference.arms)}"
        )
    numbers: set[int] = set()
    for index, table in enumerate(reference.tables):
        here = ("tables", index)
        if table.table in numbers:
            findings.add((*here, "table"), f"table {table.table} is here twice")
        numbers |= {table.table} if table.table else set()
        if not table.table and not table.place:
            findings.add(here, "has neither `table`, its number, nor `place`")
        if table.scenario is not None and table.scenario not in reference.scenarios:
            known = suggestion(table.scenario, reference.scenarios)
            findings.add((*here, "scenario"), f"there is no scenario {table.scenario!r}{known}")
        if reference.baseline is not None and reference.baseline not in table.rows:
            findings.add((*here, "rows"), f"the baseline {reference.baseline!r} is missing")
        for arm, values in table.rows.items():
            if len(values) != len(table.columns):
                message = f"{len(values)} values for {len(table.columns)} columns"
                findings.add((*here, "rows", arm), message)
            if any(value <= 0 for value in values):
                findings.add((*here, "rows", arm), "a published value is above zero")
        for key, names in (("rows", table.rows), ("lost", table.lost)):
            for arm in names:
                if arm not in reference.arms:
                    known = suggestion(arm, reference.arms)
                    findings.add((*here, key, arm), f"is not an arm{known}", key=True)
        for arm in set(table.rows) & set(table.lost):
            findings.add((*here, "lost", arm), "has values above", key=True)
    _check_exhibits(reference, findings)
    for name, fact in reference.facts.items():
        if fact.scenario and fact.scenario not in reference.scenarios:
            known = suggestion(fact.scenario, reference.scenarios)
            findings.add(("facts", name, "scenario"), f"is not a scenario{known}")
        others = [("than", each) for each in fact.than] + [("needs", each) for each in fact.needs]
        for key, arm in (("arm", fact.arm), *others):
            if arm and arm not in reference.arms:
                findings.add(
                    ("facts", name, key), f"is not an arm{suggestion(arm, reference.arms)}"
                )
        if fact.against and fact.against not in reference.scenarios:
            known = suggestion(fact.against, reference.scenarios)
            findings.add(("facts", name, "against"), f"is not a scenario{known}")
        shown = {exhibit.name for exhibit in reference.exhibits}
        for one in fact.of:
            if one not in shown:
                findings.add(("facts", name, "of"), f"{one} is not under `exhibits`")


def _check_exhibits(reference: Reference, findings: StudyErrors) -> None:
    names: set[str] = set()
    for index, exhibit in enumerate(reference.exhibits):
        here = ("exhibits", index)
        if exhibit.name in names:
            findings.add(here, f"{exhibit.name} is here twice")
        names.add(exhibit.name)
        written = any(table.is_shown_by(exhibit) for table in reference.tables)
        if [written, exhibit.view is not None, bool(exhibit.none)].count(True) != 1:
            findings.add(
                here,
                f"{exhibit.name} needs one of: its values under `tables`, `view`, or `none` with "
                "the reason why a run cannot have a counterpart",
            )
        for key, study in (("study", exhibit.study), ("longer", exhibit.longer)):
            if study and study not in reference.studies:
                known = suggestion(study, reference.studies)
                findings.add((*here, key), f"is not among `studies`{known}")
        if exhibit.scenario and exhibit.scenario not in reference.scenarios:
            known = suggestion(exhibit.scenario, reference.scenarios)
            findings.add((*here, "scenario"), f"is not a scenario{known}")
        for arm in exhibit.arms:
            if arm not in reference.arms:
                known = suggestion(arm, reference.arms)
                findings.add((*here, "arms"), f"{arm!r} is not an arm{known}")
    if reference.exhibits:
        for index, table in enumerate(reference.tables):
            if not any(table.is_shown_by(exhibit) for exhibit in reference.exhibits):
                findings.add(("tables", index), f"{table.name} is missing under `exhibits`")
