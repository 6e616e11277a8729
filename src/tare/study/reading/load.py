"""Read a study, report all its errors at once, and type it by the catalog."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path as FilePath
from typing import Any

from tare.errors import InputError
from tare.study.model.study import Catalog, Study
from tare.study.planning.baselines import as_stored, with_baselines, without_added
from tare.study.planning.session_plan import without_arms
from tare.study.planning.spreading import with_spread_hosts
from tare.study.reading.build import build_study
from tare.study.reading.changes import NONE, ChangedStudy, Changes, change
from tare.study.reading.checking import KeyStyle, StudyErrors
from tare.study.reading.hosts_file import KnownHosts, hosts_path
from tare.study.reading.matrices import without_matrices
from tare.study.reading.named_hosts import name_hosts
from tare.study.reading.named_hypervisors import name_hypervisors
from tare.study.reading.shipped import shipped_studies
from tare.study.reading.yamltext import Document, Path, Problem, StudyError, parse
from tare.study.reference.explaining import hint_for

MOST_NAMED = 10


def load_study(
    path: FilePath,
    catalog: Catalog,
    changes: Changes = NONE,
    hosts: KnownHosts | None = None,
) -> Study:
    """Read a study file.

    Args:
        path: A YAML file.
        catalog: The available platforms and workloads.
        changes: The changes from the command line.
        hosts: The named computers; by default only `local` and `lab`.

    Raises:
        InputError: It cannot be read, or something in it or in the changes is wrong; the message
            has one line per problem: file, line and column, or option; key; and the correction.
    """
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        hint = _yaml_files(path.parent) or "name a YAML file"
        if path.stem in shipped_studies():
            hint = f"to use the study that comes with Tare, write {path.stem}; {hint}"
        raise InputError(f"{path}: there is no such file", hint) from None
    except IsADirectoryError:
        raise InputError(f"{path} is a folder", _yaml_files(path) or "name a YAML file") from None
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror or error}") from None
    except ValueError as error:
        raise InputError(f"{path}: cannot be read: {error}") from None
    return parse_study(content, str(path), catalog, changes, hosts, path.parent.resolve())


def _yaml_files(folder: FilePath) -> str:
    found = sorted(str(each) for each in folder.glob("*.y*ml"))
    more = f" and {len(found) - MOST_NAMED} more" if len(found) > MOST_NAMED else ""
    return f"YAML files there: {', '.join(found[:MOST_NAMED])}{more}" if found else ""


def parse_study(
    content: bytes,
    name: str,
    catalog: Catalog,
    changes: Changes = NONE,
    hosts: KnownHosts | None = None,
    folder: FilePath | None = None,
) -> Study:
    """Read a study from the bytes of its file.

    Args:
        content: YAML text in UTF-8.
        name: The file's name, for messages.
        catalog: The available platforms and workloads.
        changes: The changes from the command line.
        hosts: The named computers; by default only `local` and `lab`.
        folder: The folder that paths in it are relative to; None to check no paths.

    Raises:
        InputError: As for :func:`load_study`.
    """
    known = KnownHosts(hosts_path()) if hosts is None else hosts
    known = known.without(changes.chosen_cpus) if changes.chosen_cpus else known

    def build(data: Mapping[str, Any]) -> tuple[Study | None, StudyErrors]:
        findings = StudyErrors()
        own, left_out = name_hypervisors(with_spread_hosts(data), known, catalog, findings)
        own = without_arms(without_matrices(own, left_out), left_out)
        style = KeyStyle(kebab=True, folder=folder)
        study = build_study(name_hosts(own, known, findings), catalog, style, findings)
        return study and study.model_copy(update={"left_out": left_out}), findings

    document = parse(content, name)
    changed = change(document.data, changes)
    # If an option fails, further errors would be about a different study.
    if changed.problems:
        problems = document.problems + changed.problems
        raise StudyError(name, problems, hint_for(problems, catalog))
    study, findings = build(changed.data)
    if document.problems or findings.found or study is None:
        already = build(document.data)[1] if changes != NONE else findings
        problems = document.problems + _placed(findings, document, changed, already)
        raise StudyError(name, problems, hint_for(problems, catalog))
    return with_baselines(study)


def _placed(
    findings: StudyErrors, document: Document, changed: ChangedStudy, already: StudyErrors
) -> list[Problem]:
    """Return the problems, each with its option or its place in the file."""

    def option_of(path: Path, message: str) -> str:
        if (path, message) in already.found:
            return ""
        return changed.option_at(path) or changed.option_below(path)

    return [
        Problem(message, path, None, option)
        if (option := option_of(path, message))
        else Problem(message, path, document.place_of(path, key=key))
        for (path, message), key in findings.found.items()
    ]


def wrong_in_study(path: FilePath, found: Iterable[tuple[Path, str]], hint: str = "") -> StudyError:
    """Return the error for problems that were found only after a study had been read.

    Args:
        path: The study's file.
        found: The keys of each problem, and its message.
        hint: Advice for all of them.
    """
    try:
        document = parse(path.read_bytes(), str(path))
    except OSError:
        # A worker of a cluster has the study but not its file.
        return StudyError(str(path), [Problem(message, keys) for keys, message in found], hint)
    problems = [Problem(message, keys, document.place_of(keys)) for keys, message in found]
    return StudyError(str(path), problems, hint)


def restore_study(stored: Mapping[str, Any], catalog: Catalog) -> Study:
    """Return the study that was stored as ``study.model_dump(mode="json")`` in a run's events.

    Args:
        stored: The stored data.
        catalog: The available platforms and workloads.

    Raises:
        InputError: It does not fit this version's catalog.
    """
    findings = StudyErrors()
    study = build_study(without_added(stored), catalog, KeyStyle(kebab=False), findings)
    if findings.found or study is None:
        problems = [Problem(message, path) for path, message in findings.found]
        raise StudyError(
            "the run's study", problems, "use the version of Tare that started the run"
        )
    return as_stored(with_baselines(study, stored=True), stored)
