"""The file that ``tare certify`` writes; its results can be recomputed from its events.

Everything in it is a number, a word from a fixed list, or a text that was searched for names and
secrets (:mod:`tare.platforms.certificates.redaction`). Its content is *self-reported*: the sender
may have changed anything. A check verifies only that the file is consistent.
"""

from __future__ import annotations

import statistics
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from tare.errors import InputError
from tare.plaintext import plain_line
from tare.refusals import message_of

LARGEST = 16 << 20
"""The size limit of a file, in bytes: files come from untrusted senders."""
_WORDS = 200


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Case(_Part):
    """One case of the conformance suite: its question and its outcome."""

    name: str = Field(max_length=100)
    asks: str = Field(default="", max_length=500)
    outcome: Literal["passed", "failed", "skipped"]
    words: str = Field(default="", max_length=2000)
    seconds: float = Field(ge=0)


class CreatedKind(_Part):
    """A kind of change: how it is made and undone, and its count in the ledger."""

    kind: str = Field(max_length=100)
    call: str = Field(default="", max_length=500)
    undone: str = Field(default="", max_length=500)
    where: str = Field(default="", max_length=300)
    noted: int = Field(default=0, ge=0)


class Results(_Part):
    """The results of a certificate; all of them follow from the rest of the file.

    Args:
        cases: The number of cases with each outcome.
        cells: The number of the study's cells with each final status, by arm.
        left_out: The skipped parts of the study, with the reasons.
        undeclared: Kinds of changes in the ledger that the platform had not declared.
        lacking: Capabilities that the platform declares but that were not found on this host.
        leftovers: The number of objects that were left behind.
        medians: The median over all blocks, by arm, cell and metric; only with figures.
        passes: Whether the study ran, no case failed, nothing was left behind, and all was
            declared.
    """

    cases: dict[str, int]
    cells: dict[str, dict[str, int]]
    left_out: tuple[str, ...]
    undeclared: tuple[str, ...]
    lacking: tuple[str, ...]
    leftovers: int
    medians: dict[str, dict[str, dict[str, float]]] = Field(default_factory=dict)
    passes: bool


class Certificate(_Part):
    """The findings on one host.

    Args:
        certificate: The version of this format.
        made: The day, as ``2026-11-23``.
        tare: Tare's version, and the agent's digest.
        platform: The name of the platform.
        options: The platform's options; names and addresses are replaced.
        description: A phrase that describes the arm.
        build: The versions of the product and of other software involved, by name.
        shown: Facts that the product reports about itself: its licence, edition, power policy.
        licence: The product's licence, if it reports one.
        host: The kind of computer that Tare ran on, without its name.
        rights: Tare's rights where the machines are: those that the product reports for its
            account, else those of Tare's own user on this computer.
        declared: The capabilities that the platform states.
        found: The capabilities that the platform's check found on this host.
        writes: The changes that the platform states, and those that the ledger recorded.
        cases: The conformance suite, case by case.
        leftovers: The objects that were left behind.
        figures: Whether the file contains measured values; some licences restrict publishing them.
        events: The study's events, without anything that would identify the owner.
        results: The results that follow from the other fields.
    """

    certificate: Literal[1] = 1
    made: str = Field(pattern=r"^\d{4}-\d{2}-\d{2}$")
    tare: dict[str, str]
    platform: str = Field(pattern=r"^[a-z][a-z0-9-]*$", max_length=40)
    options: dict[str, Any]
    description: str = Field(max_length=1000)
    build: dict[str, str]
    shown: dict[str, str] = Field(default_factory=dict)
    licence: str = Field(default="", max_length=200)
    host: dict[str, str]
    rights: tuple[str, ...]
    declared: dict[str, Any]
    found: dict[str, Any]
    writes: tuple[CreatedKind, ...]
    cases: tuple[Case, ...]
    leftovers: tuple[str, ...]
    figures: bool
    events: tuple[dict[str, Any], ...]
    results: Results


def recomputed(about: Certificate) -> Results:
    """Compute a certificate's results from its cases, events, capabilities and writes.

    Raises:
        ValueError: The events are not a run's, or the capabilities are not a platform's.
    """
    try:
        return results_of(
            cases=about.cases,
            events=about.events,
            declared=about.declared,
            found=about.found,
            writes=about.writes,
            leftovers=about.leftovers,
        )
    # The sender may have mixed any types of values; sorting or counting them then fails.
    except ValidationError as error:
        raise ValueError(
            f"its events are not those of a run: {message_of(error.errors()[0])}"
        ) from error
    except (TypeError, ArithmeticError) as error:
        raise ValueError(f"its parts are not those of a certificate: {error!r}") from error


def results_of(
    *,
    cases: Sequence[Case],
    events: Sequence[Mapping[str, Any]],
    declared: Mapping[str, Any],
    found: Mapping[str, Any],
    writes: Sequence[CreatedKind],
    leftovers: Sequence[str],
) -> Results:
    """Compute the results from the parts of a certificate; see :class:`Certificate`.

    Raises:
        ValueError: The events are not those of a run.
    """
    try:
        ended = [each for each in events if each["type"] == "cell_finished"]
        cells: dict[str, Counter[str]] = defaultdict(Counter)
        for each in ended:
            cells[arm_of(each["cell"])][each["status"]] += 1
        left_out = tuple(
            " ".join(filter(None, (each["arm"], each.get("workload") or "")))
            + f": {each['reason']}"
            for each in events
            if each["type"] == "skipped"
        )
        counted = {each["cell"] for each in ended if each["status"] == "ok"}
        medians = _medians(events, counted)
        complete = any(
            each["type"] == "run_finished" and each["status"] in ("complete", "stopped")
            for each in events
        )
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise ValueError(f"its events are not those of a run: {error!r}") from error
    outcomes = Counter(case.outcome for case in cases)
    undeclared = tuple(each.kind for each in writes if each.noted and not each.call)
    ran = complete and bool(ended) and all(each["status"] != "failed" for each in ended)
    return Results(
        cases=dict(sorted(outcomes.items())),
        cells={arm: dict(sorted(counts.items())) for arm, counts in sorted(cells.items())},
        left_out=left_out,
        undeclared=undeclared,
        lacking=lacking(declared, found),
        leftovers=len(leftovers),
        medians=medians,
        passes=bool(outcomes["passed"])
        and not outcomes["failed"]
        and not undeclared
        and not leftovers
        and ran,
    )


def arm_of(cell: str) -> str:
    """Return the arm in a cell's name: ``block/arm/scenario/workload…``."""
    return str(cell).split("/")[1]


def lacking(declared: Mapping[str, Any], found: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the capabilities that are declared but were not found, a few words each."""
    listed = []
    for name, best in declared.items():
        here = found.get(name)
        if isinstance(best, list):
            listed += [f"{name}: {each}" for each in best if each not in (here or [])]
        elif best is True and here is not True:
            listed.append(name)
    return tuple(listed)


def _medians(
    events: Sequence[Mapping[str, Any]], counted: set[str]
) -> dict[str, dict[str, dict[str, float]]]:
    values: dict[tuple[str, str, str], list[float]] = defaultdict(list)
    for each in events:
        if each["type"] == "observation" and each["cell"] in counted:
            work = "/".join(str(each["cell"]).split("/")[2:])
            key = (arm_of(each["cell"]), work, f"{each['metric']} ({each['unit']})")
            values[key].append(float(each["value"]))
    found: dict[str, dict[str, dict[str, float]]] = {}
    for (arm, work, metric), listed in sorted(values.items()):
        found.setdefault(arm, {}).setdefault(work, {})[metric] = statistics.median(listed)
    return found


def read_certificate(file: Path) -> Certificate:
    """Read a certificate that another computer wrote.

    Raises:
        InputError: The file is not a certificate, is too large, or a newer Tare wrote it.
    """
    try:
        if file.stat().st_size > LARGEST:
            raise InputError(f"{file} is larger than {LARGEST >> 20} MiB", "ask for another one")
        return Certificate.model_validate_json(file.read_bytes())
    except OSError as error:
        raise InputError(f"{file} cannot be read: {error.strerror}") from error
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"])) or "its beginning"
        words = plain_line(f"{file} is not a certificate: {place}: {message_of(first)}", _WORDS)
        raise InputError(words, "`tare certify PLATFORM` writes one") from error


KEPT = Path(__file__).with_name("kept")
"""The folder of the certificates that owners sent."""


def kept_certificates(folder: Path = KEPT) -> tuple[Certificate, ...]:
    """Return the certificates of a folder by platform and day, after checking their consistency.

    Raises:
        InputError: A certificate cannot be read, or contradicts itself and must not be shown.
    """
    found = []
    for file in sorted(folder.glob("*.json")):
        about = read_certificate(file)
        if differs := contradictions(about):
            raise InputError(f"{file} contradicts itself: {differs[0]}", "do not keep it")
        found.append(about)
    return tuple(sorted(found, key=lambda each: (each.platform, each.made)))


def contradictions(about: Certificate) -> tuple[str, ...]:
    """Return the statements of a certificate that contradict its own events."""
    try:
        right = recomputed(about).model_dump()
    except ValueError as error:
        return (plain_line(str(error), _WORDS),)
    stated = about.results.model_dump()
    listed = [
        plain_line(f"{name}: it says {stated[name]}, and its events say {value}", _WORDS)
        for name, value in right.items()
        if stated[name] != value
    ]
    if not about.figures and any(each.get("type") == "observation" for each in about.events):
        listed.append("it says that it has no figures, and it has")
    return tuple(listed)
