"""Read a study, tell everything that is wrong with it at once, and type it by the catalog."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path as FilePath
from typing import Any

from tare.errors import InputError
from tare.study.build import build_study
from tare.study.checking import Findings, KeyStyle
from tare.study.model import Catalog, Study
from tare.study.yamltext import Problem, StudyError, parse

HINT = "every key is described in docs/study.md"


def load_study(path: FilePath, catalog: Catalog) -> Study:
    """Read a study file.

    Args:
        path: A YAML file.
        catalog: The platforms and workloads it may name.

    Raises:
        InputError: It cannot be read, or something in it is wrong; the message has one line
            per problem: file, line, column, key, and what to write instead.
    """
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        others = sorted(str(other) for other in path.parent.glob("*.y*ml"))
        hint = f"studies there: {', '.join(others)}" if others else "name a YAML file"
        raise InputError(f"{path}: there is no such file", hint) from None
    except IsADirectoryError:
        raise InputError(f"{path} is a folder", "name a YAML file in it") from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise InputError(f"{path}: cannot be read: {reason}") from None
    return parse_study(content, str(path), catalog)


def parse_study(content: bytes, name: str, catalog: Catalog) -> Study:
    """Read a study from the bytes of its file.

    Args:
        content: YAML text in UTF-8.
        name: The file's name, for messages.
        catalog: The platforms and workloads it may name.

    Raises:
        InputError: As of :func:`load_study`.
    """
    document = parse(content, name)
    findings = Findings()
    study = build_study(document.data, catalog, KeyStyle(kebab=True), findings)
    problems = document.problems + [
        Problem(message, path, document.place_of(path, key=key))
        for (path, message), key in findings.found.items()
    ]
    if problems or study is None:
        raise StudyError(name, problems, HINT)
    return study


def restore_study(stored: Mapping[str, Any], catalog: Catalog) -> Study:
    """Return the study that was stored as ``study.model_dump(mode="json")`` in a run's events.

    Args:
        stored: The stored data.
        catalog: The platforms and workloads it may name.

    Raises:
        InputError: It does not fit this version's catalog.
    """
    findings = Findings()
    study = build_study(stored, catalog, KeyStyle(kebab=False), findings)
    if findings.found or study is None:
        problems = [Problem(message, path) for path, message in findings.found]
        raise StudyError(
            "the run's study", problems, "use the version of Tare that the run was begun with"
        )
    return study
