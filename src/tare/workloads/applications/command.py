"""``command``: a program of the user's own, with what it needs, and what its output says."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, ValidationInfo, model_validator

from tare.errors import WorkloadFault
from tare.events.metric import Better, Kind
from tare.study.model.forms import PACKAGE
from tare.study.reading.study_path import StudyPath, folder_of
from tare.units import Duration
from tare.workloads.additions import Additions
from tare.workloads.applications import figures, printed
from tare.workloads.applications.program import TIMES, times_of, writes
from tare.workloads.contract import Metric, Parameters, Workload
from tare.workloads.values import number, words

KEPT_BYTES = 128 << 10
"""What is kept of the output. The agent's message holds 1 MiB, and a byte may take 6 in JSON."""
ROOMS = ("/opt", "/srv", "/usr/local")
"""Where files may be added: what no package of the distribution brings (FHS 3.0)."""
_NAME = r"^[a-z][a-z0-9.-]{0,39}$"
_POWER = re.compile(r"-?[0-9]{1,9}(\.[0-9]{1,9})?[eE][+-]?[0-9]{1,3}")
_TO_BOTH = 'exec "$@" 2>&1'
USER_TIME = Metric(
    "user-time", "s", "lower", "The part of the CPU time that the programs themselves used."
)


def _in_a_room(place: str) -> str:
    parts = place.split("/")
    roomy = any(place.startswith(f"{room}/") for room in ROOMS)
    if not roomy or any(part in ("", ".", "..") for part in parts[1:]) or not place.isprintable():
        raise ValueError(
            f"{place!r} is no place for a file of yours in the toolbox: write a whole path below "
            f"{', '.join(ROOMS)}"
        )
    return place


def _number(value: object) -> object:
    # YAML takes `1e6` for a text: it wants `1.0e+6`.
    return float(value) if isinstance(value, str) and _POWER.fullmatch(value) else value


Place = Annotated[str, Field(max_length=1024), AfterValidator(_in_a_room)]
Package = Annotated[str, PACKAGE]


class CommandToolbox(Parameters):
    """What the toolbox must hold for it. All workloads of a study share one toolbox."""

    packages: tuple[Package, ...] = Field(
        default=(),
        max_length=100,
        description="Packages of this computer's distribution; apt adds what they depend on. They "
        "are unpacked, not installed: no script of theirs runs.",
    )
    files: dict[Place, StudyPath] = Field(
        default_factory=dict,
        max_length=1000,
        description="Where each file or folder goes in the toolbox (below `/opt`, `/srv` or "
        "`/usr/local`), and where it is, relative to the study. What is executable stays so.",
    )


class CommandMetric(Parameters):
    """A figure of its output: by `regex` or by `field`."""

    unit: figures.Unit = Field(
        description="In which unit the figure is once it is multiplied by `scale`. A unit that the "
        "program prints behind the number, within the parentheses, counts instead: `12 MiB/s` is "
        "read as such, and so are `3us`, `45 %` and `1,234`. Reports show seconds, bytes and "
        "such, with prefixes."
    )
    better: Better = Field(description="Which direction is an improvement.")
    regex: str | None = Field(
        default=None,
        min_length=1,
        max_length=1000,
        description="A regular expression (Rust's syntax) with one pair of parentheses, around the "
        "number, or the number and its unit. It is matched line by line; the last line that "
        "matches counts.",
    )
    field: str | None = Field(
        default=None,
        min_length=1,
        max_length=1000,
        description="Where the number is in the JSON that it prints, as all of its output or as "
        "the last line: keys with dots between, indices in brackets, like `runs[0].latency.p99`; a "
        'key that holds dots in quotes, like fio\'s `percentile."99.000000"`.',
    )
    scale: Annotated[float, BeforeValidator(_number)] = Field(
        default=1.0,
        allow_inf_nan=False,
        description="What the number is multiplied by, such as 1e-6 where it is in microseconds.",
    )
    kind: Kind = Field(
        default="typical",
        description="`tail` for a high percentile and `maximum` for a maximum, which have "
        "intervals of their own kinds.",
    )
    headline: bool = Field(
        default=False,
        description="Whether it is on the report's first screen, and a run goes on until it is "
        "precise. If none is, `wall-time` is.",
    )
    values: Literal["above-zero", "zero-or-more", "any"] | None = Field(
        default=None,
        description="Which values are possible; a cell with another value is withheld. Default: "
        "`above-zero` where `better` is `higher`, else `any`. Where values of 0 or less occur, "
        "Tare compares differences instead of ratios.",
    )
    summary: str = Field(default="", max_length=500, description="What it means, in one sentence.")

    @model_validator(mode="after")
    def _one_way(self) -> Self:
        if (self.regex is None) == (self.field is None):
            raise ValueError("give either `regex` or `field`, which say where the number is")
        if self.regex is not None:
            printed.require_pattern(self.regex, groups=1)
        if self.field is not None:
            printed.require_field(self.field)
        if self.headline and self.better == "neither":
            raise ValueError("what is neither better nor worse cannot be a headline")
        if self.scale == 0:
            raise ValueError("a scale of 0 leaves nothing of the number")
        return self

    def of(self, name: str) -> Metric:
        """Return the metric under the study's name for it."""
        where = f"`{self.regex or self.field}`"
        summary = self.summary or f"What its output says at {where}."
        values = self.values or ("above-zero" if self.better == "higher" else "any")
        return Metric(
            name,
            figures.scale_of(self.unit)[0],
            self.better,
            summary,
            self.kind,
            self.headline,
            may_be_zero=values != "above-zero",
            may_be_negative=values == "any",
        )


class CommandCheck(Parameters):
    """What must be so for a run to count; anything else is a failed cell."""

    contains: str | None = Field(
        default=None, min_length=1, max_length=1000, description="A text that its output holds."
    )
    regex: str | None = Field(
        default=None,
        min_length=1,
        max_length=1000,
        description="A regular expression (Rust's syntax) that a line of its output matches.",
    )
    file: str | None = Field(
        default=None,
        pattern=r"^/",
        max_length=1024,
        description="A file that each run writes; it is removed before.",
    )
    sha256: str | None = Field(
        default=None,
        pattern=r"^[0-9a-f]{64}$",
        description="What `file` must have as its SHA-256.",
    )
    status: tuple[int, ...] = Field(
        default=(0,), min_length=1, description="Exit codes that mean success."
    )

    @model_validator(mode="after")
    def _usable(self) -> Self:
        if self.sha256 is not None and self.file is None:
            raise ValueError("sha256 is of a file: write `file` too")
        if self.file is not None and (self.file == "/" or ".." in self.file.split("/")):
            raise ValueError(f"{self.file!r} is no file that a run can write")
        if self.regex is not None:
            printed.require_pattern(self.regex)
        return self


class CommandParameters(Parameters):
    """Which program, what it needs, and what to make of its output."""

    argv: tuple[str, ...] = Field(
        min_length=1,
        description="The program, by its name in the toolbox or a path in it, and its arguments. "
        "It sees the toolbox as its root, with `/tmp` (in memory) and `/scratch` (the machine's "
        "own disk) to write to.",
    )
    toolbox: CommandToolbox = Field(
        default_factory=CommandToolbox,
        description="Packages and files that it needs besides those of the toolbox.",
    )
    metrics: dict[Annotated[str, Field(pattern=_NAME)], CommandMetric] = Field(
        default_factory=dict,
        max_length=50,
        description="What its output says, by names of your own; of several runs, the last one's.",
    )
    check: CommandCheck = Field(
        default_factory=CommandCheck, description="What must be so for a run to count."
    )
    stderr: bool = Field(
        default=False,
        description="Whether what it writes as errors belongs to its output, as some programs "
        "write their figures there. A shell then starts it, which takes about a millisecond.",
    )
    env: dict[str, str] = Field(
        default_factory=dict, description="Variables of its environment, besides the usual ones."
    )
    cwd: str = Field(
        default="/tmp", pattern=r"^/", description="The directory it works in, in the toolbox."
    )
    stdin: str | None = Field(
        default=None,
        description="A file of the toolbox that it reads as its standard input; nothing if left "
        "out.",
    )
    runs: int = Field(default=1, ge=1, le=100_000, description="How often it runs.")
    timeout: Duration = Field(
        default=3600.0,
        gt=0,
        le=1e6,
        description="One run that takes longer is killed with all its children, and has failed.",
    )
    expect: Duration = Field(
        default=5.0, gt=0, le=1e6, description="About what one run takes; only for the plan."
    )

    @model_validator(mode="after")
    def _usable(self, info: ValidationInfo) -> Self:
        taken = {metric.name for metric in (*TIMES, USER_TIME)} & set(self.metrics)
        if taken:
            raise ValueError(
                f"every program has the metric {min(taken)}; choose another name for yours"
            )
        source, folder = self.toolbox.files.get(self.argv[0]), folder_of(info)
        if source is not None and folder is not None and not os.access(folder / source, os.X_OK):
            raise ValueError(f"{source} is not executable: `chmod +x {folder / source}`")
        return self


class Command(Workload[CommandParameters]):
    """A program of the user's own: nothing of it is known but what the study says."""

    name = "command"
    summary = (
        "A program of your own: packages and files are added to the toolbox for it, its figures "
        "are found in its output, and its time and what it used are told in any case."
    )
    parameters = CommandParameters
    needs = frozenset({"toolbox"})
    carried_out_by = "program"
    metrics = (TIMES[0]._replace(headline=True), TIMES[1], USER_TIME, *TIMES[2:])

    def metrics_for(self, parameters: CommandParameters) -> tuple[Metric, ...]:
        """Return the study's own metrics, and those that every program has."""
        own = tuple(metric.of(name) for name, metric in parameters.metrics.items())
        if not any(metric.headline for metric in own):
            return (*own, *self.metrics)
        return (*own, *(metric._replace(headline=False) for metric in self.metrics))

    def adds(self, parameters: CommandParameters) -> Additions:
        """Return the packages and files that the study adds to the toolbox."""
        asked = parameters.toolbox
        files = {place: Path(source) for place, source in asked.files.items()}
        return Additions(frozenset(asked.packages), files)

    def program_of_study(self, parameters: CommandParameters) -> tuple[str, ...]:
        """Return the study's own program."""
        return parameters.argv

    def request(self, parameters: CommandParameters) -> dict[str, Any]:
        """Return the agent's parameters: paths, counts, seconds."""
        argv = list(parameters.argv)
        if parameters.stderr:
            argv = ["sh", "-c", _TO_BOTH, "sh", *argv]
        check = parameters.check
        step: dict[str, Any] = {"argv": argv, "cwd": parameters.cwd, "codes": list(check.status)}
        optional = {"env": parameters.env, "stdin": parameters.stdin}
        step |= {name: value for name, value in optional.items() if value}
        request: dict[str, Any] = {
            "steps": [step],
            "repeats": parameters.runs,
            "timeout_s": parameters.timeout,
            "keep": KEPT_BYTES,
        }
        if check.file is not None:
            request |= writes(check.file, check.sha256)
        return request

    def expected_s(self, parameters: CommandParameters) -> float:
        """Estimate the seconds of one cell."""
        return parameters.expect * parameters.runs

    def observe(self, parameters: CommandParameters, result: Mapping[str, Any]) -> dict[str, float]:
        """Return the study's own metrics and the times, in SI units.

        Raises:
            KeyError: The agent's result lacks something.
            ValueError: A time is no finite number.
            WorkloadFault: The output is not as the study's check says, or a metric is not in it;
                the last lines are told.
        """
        output = words(result, "output")
        _require_right(parameters.check, output)
        found = _figures(parameters.metrics, output)
        return {**found, **times_of(result), USER_TIME.name: number(result, "user_s")}


def _require_right(check: CommandCheck, output: str) -> None:
    said = printed.last_lines(output)
    if check.contains is not None and check.contains not in output:
        raise WorkloadFault(f"{check.contains!r} is not in what it printed{said}")
    if check.regex is not None and not printed.matches(output, check.regex):
        raise WorkloadFault(f"no line of what it printed matches `{check.regex}`{said}")


def _figures(metrics: Mapping[str, CommandMetric], output: str) -> dict[str, float]:
    """Return each metric's figure in what the program printed.

    Raises:
        WorkloadFault: One is not there, or is no number.
    """
    by_field = any(metric.field is not None for metric in metrics.values())
    try:
        document = printed.json_of(output) if by_field else None
        return {name: _figure(metric, output, document) for name, metric in metrics.items()}
    except KeyError as error:
        raise WorkloadFault(
            f"there is nothing at `{error.args[0]}` in what it printed{printed.last_lines(output)}"
        ) from error
    except ValueError as error:
        raise WorkloadFault(f"{error}{printed.last_lines(output)}") from error


def _figure(metric: CommandMetric, output: str, document: Any) -> float:
    if metric.field is not None:
        text, name = printed.text_by_field(document, metric.field), metric.field
    else:
        pattern = str(metric.regex)
        text, name = printed.text_by_pattern(output, pattern), f"what `{pattern}` finds"
    return figures.figure(text, name, metric.unit, metric.scale)
