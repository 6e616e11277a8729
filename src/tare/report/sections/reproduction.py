"""How to reproduce a run: study, seed, versions, commands."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from typing import Any

import yaml

from tare.analysis.model import RunData
from tare.analysis.runs.run_differences import settings_sha256
from tare.report.figures.svg import legible
from tare.report.page.data import ReportData
from tare.report.sections.contract import Section, SectionData


@dataclass(frozen=True)
class Repetition:
    """The facts, commands and study that repeat one run."""

    facts: tuple[tuple[str, str], ...]
    commands: tuple[str, ...]
    study: str


@dataclass(frozen=True)
class ReproductionData(SectionData):
    """The content of the section: how to repeat each run."""

    runs: tuple[Repetition, ...]


class Reproduction(Section):
    """How to repeat the runs. The template also lists the files next to the page."""

    name, title, template = "again", "Do it again", "reproduction.html.j2"

    def data(self, report: ReportData) -> ReproductionData:
        """Return each run's study, seed, versions and commands."""
        return ReproductionData(tuple(map(repetition_of, report.runs)))


def repetition_of(run: RunData) -> Repetition:
    """Return the facts, commands and study of ``run``."""
    copy = run.folder / "study.yaml"
    study = shlex.quote(str(copy) if copy.is_file() else run.study_path)
    folder = shlex.quote(str(run.folder))
    facts = [
        ("Run", run.run),
        ("Study", run.study_path),
        ("SHA-256 of its file", run.study_sha256),
        ("SHA-256 of all settings", settings_sha256(run)),
        ("Seed of the order", str(run.seed)),
        *((("Changed on the command line", " ".join(run.changes)),) if run.changes else ()),
        *((f"Version of {name}", str(version)) for name, version in sorted(run.versions.items())),
    ]
    commands = (
        " ".join([f"tare run {study}", *run.changes, f"--seed {run.seed}"]),
        f"tare report {folder}",
        f"tare compare {folder}",
        f"tare export {folder} --format csv",
    )
    return Repetition(
        facts=tuple((legible(key), legible(value)) for key, value in facts),
        commands=tuple(legible(command) for command in commands),
        study=legible(_yaml(run.study)),
    )


def _yaml(study: Any) -> str:
    text = yaml.safe_dump(_plain(study), sort_keys=False, allow_unicode=True, width=90)
    return str(text)


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _plain(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    if isinstance(value, str | int | float | bool) or value is None:
        return value
    return str(value)
